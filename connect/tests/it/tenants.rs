//! Every tool and every reference that an input can hold, called for a tenant that owns none of it.
//!
//! The tools come from the bundled list, so a new tool fails here until it has a case. Each is called for the tenant
//! that owns a secret, a bucket and an artifact, and for another tenant. The other tenant gets the same answer as if
//! they did not exist, and nothing of the owner's is sent.

use crate::fixtures::{blobs, call, call_of, every_tool, owned, shared_tenancy};
use crate::server::{FixedSecrets, Reply, Server, local};
use chimera_connect::flow::{ToolDependencies, http_tools, local_tools, s3_tool};
use chimera_engine::access::TenantSecrets;
use chimera_engine::flow::port::{CallContext, Tool};
use chimera_engine::flow::{TenantBuckets, ToolRegistry};
use chimera_storage::bucket::FolderBuckets;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// The values of the owner's secrets, which nobody else may send.
const OWNERS: &str = "token-of-the-owner";
/// The values of the other tenant's own secrets.
const NEIGHBOURS: &str = "token-of-the-neighbour";

/// What a tool can reach of a tenant.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ToolReach {
    /// Nothing but its input.
    Nothing,
    /// A secret.
    Secret,
    /// An artifact.
    Artifact,
    /// A bucket, and an artifact.
    Bucket,
    /// What the operator configured for every tenant that shares the tool.
    Setup,
}
use ToolReach::{Artifact, Bucket, Nothing, Secret, Setup};

/// Every tool, what it reaches, and an input; `URL` and `CAS` stand for a server and for an artifact.
const CASES: &[(&str, ToolReach, &str)] = &[
    ("email_send", Setup, "{}"),
    ("github.issues.create", Secret, r#"{"owner": "acme", "repo": "rocket", "title": "Leak"}"#),
    ("github.issues.list", Secret, r#"{"owner": "acme", "repo": "rocket"}"#),
    ("github.repos.read", Secret, r#"{"owner": "acme", "repo": "rocket"}"#),
    ("google.drive.search", Secret, r#"{"text": "plan"}"#),
    ("http.request", Secret, r#"{"url": "URL", "headers": {"Authorization": "Bearer secret://http.127.0.0.1"}}"#),
    ("local.echo", Nothing, r#"{"message": "CAS secret://github"}"#),
    ("local.markdown_to_pdf", Artifact, r#"{"markdown": "![x](CAS)"}"#),
    ("local.summarize", Nothing, r#"{"text": "CAS secret://github"}"#),
    ("notion.create_page", Secret, r#"{"title": "Summary", "parent_page_id": "p"}"#),
    ("notion.search", Secret, r#"{"query": "Plan"}"#),
    ("outlook.send", Secret, r#"{"to": ["a@example.com"], "subject": "Hi", "body": "Hello"}"#),
    ("s3_upload", Bucket, r#"{"bucket": "acme-files", "key": "k", "artifact": "CAS"}"#),
    ("slack_post", Secret, r#"{"channel_alias": "ops", "text": "x"}"#),
    ("webhook_send", Secret, r#"{"url": "URL", "event_type": "a", "secret": "secret://webhook.crm"}"#),
];

fn secrets(prefix: &str, token: &str) -> Vec<(String, String)> {
    let key = format!("whsec_{}", hex::encode(token));
    let bot = json!({"token": token, "channel": "C1"}).to_string();
    let plain = ["github", "google", "notion", "outlook", "http.127.0.0.1"].map(|name| (name, token.to_owned()));
    let all = plain.into_iter().chain([("webhook.crm", key), ("slack.ops", bot)]);
    all.map(|(name, value)| (format!("{prefix}{name}"), value)).collect()
}

/// The bundled tools, at a server, with these secrets.
fn tools(home: &Path, server: &Server, secrets: &[(String, String)]) -> Vec<Arc<dyn Tool>> {
    let known: Vec<(&str, &str)> = secrets.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let secrets = Arc::new(TenantSecrets::new(FixedSecrets::of(&known), shared_tenancy()));
    let vendors = ["github", "google", "notion", "outlook", "slack"].map(|name| (name.to_owned(), server.url("")));
    let toolbox = ToolDependencies { client: local(), secrets, base_urls: vendors.into_iter().collect() };
    let mut tools = http_tools(&toolbox).unwrap();
    let blobs = owned(&blobs(&home.join("blobs")));
    tools.extend(local_tools(blobs.clone()).unwrap());
    let buckets = Arc::new(FolderBuckets::new(home.join("buckets")));
    tools.push(s3_tool(TenantBuckets::new(buckets, shared_tenancy()), blobs).unwrap());
    tools
}

async fn told(tools: &[Arc<dyn Tool>], name: &str, ctx: &CallContext, input: &str) -> (bool, String) {
    let tool = tools.iter().find(|tool| tool.spec().name == name).unwrap();
    let input: Value = serde_json::from_str(input).unwrap();
    assert_eq!(tool.spec().input.check(&input), Ok(()), "{name}");
    match tool.execute(ctx, &input).await {
        Ok(output) => (true, output.to_string()),
        Err(error) => (false, format!("{error} {}", json!(error.body))),
    }
}

#[tokio::test]
async fn every_tool_has_its_case() {
    let home = TempDir::new().unwrap();
    let shipped: BTreeSet<String> = every_tool(home.path()).await.iter().map(|tool| tool.spec().name.clone()).collect();
    let written: BTreeSet<String> = CASES.iter().map(|case| case.0.to_owned()).collect();
    assert_eq!(shipped, written, "a tool without its case, or a case without its tool");
}

#[tokio::test]
async fn nothing_of_a_tenant_is_reached_by_a_tool_that_another_calls() {
    let server = Server::start(|_| Reply::json(200, &json!({"ok": true}))).await;
    let (home, empty) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let full = tools(home.path(), &server, &secrets("", OWNERS));
    let bare = tools(empty.path(), &server, &[]);
    let theirs = secrets("tenants.globex.", NEIGHBOURS);
    let both: Vec<_> = secrets("", OWNERS).into_iter().chain(theirs).collect();
    let both = tools(TempDir::new().unwrap().path(), &server, &both);
    // The owner's artifact is the output of its own tool call.
    let pdf = told(&full, "local.markdown_to_pdf", &call(1), r#"{"markdown": "of the owner"}"#).await.1;
    let artifact = serde_json::from_str::<Value>(&pdf).unwrap()["artifact"].as_str().unwrap().to_owned();
    let input = |text: &str| text.replace("URL", &server.url("/hook")).replace("CAS", &artifact);
    for (name, reaches, text) in CASES {
        let (before, input) = (server.seen().len(), input(text));
        let neighbour = call_of("globex", 2);
        match reaches {
            Setup => continue,
            Nothing => assert!(told(&full, name, &neighbour, &input).await.0, "{name}"),
            Secret | Artifact | Bucket => {
                let (with, without) =
                    (told(&full, name, &neighbour, &input).await, told(&bare, name, &neighbour, &input).await);
                assert_eq!(with, without, "{name} tells what is another tenant's from what is not there");
                assert!(!with.0, "{name}: {with:?}");
            }
        }
        assert_eq!(server.seen().len(), before, "{name} called somebody");
        if *reaches == Secret {
            assert!(!told(&full, name, &call(3), &input).await.1.contains("is not set"), "{name} has its secret");
            let _ = told(&both, name, &neighbour, &input).await;
            let seen = server.seen();
            assert!(seen.len() >= before + 2, "{name} used no secret");
            let last = format!("{:?}", seen.last().unwrap());
            assert!(!last.contains(OWNERS), "{name} sent the owner's secret: {last}");
            if *name != "webhook_send" {
                assert!(last.contains(NEIGHBOURS), "{name} did not send the neighbour's own: {last}");
            }
        }
    }
    let objects = home.path().join("buckets");
    assert!(!objects.exists(), "the neighbour put something into a bucket that is not shared with it");
}

/// A tool that is not shared does not exist; one that only computes is available to all.
#[tokio::test]
async fn a_tenant_has_the_tools_that_are_shared_with_it() {
    let home = TempDir::new().unwrap();
    let mut registry = ToolRegistry::default();
    every_tool(home.path()).await.into_iter().for_each(|tool| registry.add(tool).unwrap());
    let registry = registry.shared_by(shared_tenancy());
    let names = |tenant: &str| registry.specs_of(tenant).iter().map(|spec| spec.name.clone()).collect::<Vec<_>>();
    assert_eq!(names("acme").len(), CASES.len());
    let local = ["local.echo", "local.markdown_to_pdf", "local.summarize"];
    assert_eq!(names("initech"), local);
    assert_eq!(names("globex"), [&local[..], &["s3_upload"]].concat());
    for (name, _, _) in CASES {
        assert_eq!(registry.tool_of("globex", name).is_some(), names("globex").contains(&(*name).to_owned()), "{name}");
        assert!(registry.tool_of("acme", name).is_some(), "{name}");
    }
}
