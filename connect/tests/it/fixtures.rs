//! Fixtures for calls: a context, blobs and buckets.

use crate::server::{Reply, Server, toolbox};
use chimera_connect::flow::{MailSettings, MailTls, http_tools, local_tools, mail_tool, s3_tool};
use chimera_core::access::{Guest, SharedResources};
use chimera_core::secret::Secret;
use chimera_core::time::Timestamp;
use chimera_core::tool::{EffectKind, Metadata, Rollback, Spec, ToolDeclaration};
use chimera_engine::access::port::Tenancy;
use chimera_engine::flow::port::{Blobs, Buckets, CallContext, CallLog, CancelToken, Tool};
use chimera_engine::flow::{TenantBlobs, TenantBuckets};
use chimera_storage::blob::{FolderBlobs, LinkSigner};
use chimera_storage::bucket::FolderBuckets;
use chimera_testkit::memory::MemoryRecords;
use chimera_testkit::s3::PrivateS3;
use chimera_testkit::seeded::Seeded;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// A call with a minute left, under the effect with this number.
pub(crate) fn call(effect: u128) -> CallContext {
    CallContext {
        tenant: "acme".into(),
        actor: "user_1".into(),
        run_id: Uuid::from_u128(1),
        step_id: Uuid::from_u128(2),
        effect_id: Uuid::from_u128(effect),
        idempotency_key: format!("key-{effect}"),
        attempt: 1,
        deadline: "2026-02-06T15:31:00Z".parse::<Timestamp>().unwrap(),
        time_left: Duration::from_secs(60),
        traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into(),
        log: CallLog::none(),
        cancel: CancelToken::pair().1,
    }
}

pub(crate) fn blobs(root: &Path) -> Arc<dyn Blobs> {
    let links = LinkSigner::new("https://chimera.example", &Secret::new("key")).unwrap();
    Arc::new(FolderBlobs::open(root, links, Arc::new(Seeded::new(1))))
}

/// The same call for another tenant.
pub(crate) fn call_of(tenant: &str, effect: u128) -> CallContext {
    CallContext { tenant: tenant.into(), ..call(effect) }
}

/// An empty blob store, with owners in memory.
pub(crate) fn owned(blobs: &Arc<dyn Blobs>) -> TenantBlobs {
    TenantBlobs::new(Arc::clone(blobs), Arc::new(MemoryRecords::new()))
}

/// Everything belongs to the tenant `acme`. `globex` shares a bucket called `shared`, those of the S3 server, and
/// uploads.
pub(crate) fn shared_tenancy() -> Arc<dyn Tenancy> {
    struct Neighbours;
    impl Tenancy for Neighbours {
        fn guest(&self, tenant: &str) -> Option<Arc<Guest>> {
            let shared = match tenant {
                "globex" => SharedResources {
                    tools: vec!["s3_*".into()],
                    buckets: vec!["shared".into(), PrivateS3::BUCKET.into()],
                    secrets: Vec::new(),
                },
                _ => SharedResources::default(),
            };
            (tenant != "acme").then(|| Arc::new(Guest { id: tenant.into(), slug: tenant.into(), shared }))
        }

        fn is_shared(&self) -> bool {
            true
        }
    }
    Arc::new(Neighbours)
}

/// Buckets shared by these tenants.
pub(crate) fn apart(buckets: Arc<dyn Buckets>) -> TenantBuckets {
    TenantBuckets::new(buckets, shared_tenancy())
}

/// Calls a tool as the engine does: validates input and output.
pub(crate) async fn execute(
    tool: &dyn Tool,
    ctx: &CallContext,
    input: &Value,
) -> Result<Value, chimera_engine::flow::port::ToolError> {
    tool.spec().input.check(input).unwrap();
    let output = tool.execute(ctx, input).await?;
    if input["dry_run"] != true {
        tool.spec().output.check(&output).unwrap();
    }
    Ok(output)
}

/// Every tool that is bundled with Chimera; the servers they call don't answer.
pub(crate) async fn every_tool(home: &Path) -> Vec<Arc<dyn Tool>> {
    let nobody = Server::start(|_| Reply::status(500)).await;
    let toolbox = toolbox(&[], &[], &nobody);
    let mut tools = http_tools(&toolbox).unwrap();
    tools.extend(local_tools(owned(&blobs(home))).unwrap());
    tools.push(s3_tool(apart(Arc::new(FolderBuckets::new(home.join("buckets")))), owned(&blobs(home))).unwrap());
    let mail = MailSettings {
        server: "localhost".into(),
        port: 25,
        tls: MailTls::None,
        user: None,
        password: None,
        from: "Chimera <chimera@acme.example>".into(),
        roots_pem: None,
    };
    tools.push(mail_tool(mail, Arc::clone(&toolbox.secrets)).unwrap());
    tools
}

/// A tool with a minimal spec.
pub(crate) fn tool(name: &'static str, effect: EffectKind, input: Value, output: Value) -> Arc<Spec> {
    let declared = ToolDeclaration {
        name,
        version: "1",
        description: "",
        metadata: Metadata::default(),
        effect,
        reads_when: None,
        checkable: false,
        rollback: Rollback::Unsupported,
        timeout_ms: 1_000,
        input,
        output,
    };
    Arc::new(declared.compile().unwrap())
}

/// The schema of an object with exactly these members.
pub(crate) fn object_schema(properties: Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}
