//! A server whose actors have signing keys, and envelopes of theirs.

use crate::access::access_server::{AccessServer, ApiResponse, entry, porch_with_tools, sent};
use chimera_core::access::{ActorEntry, Ed25519PrivateKey, Kind, Level};
use chimera_core::intent::sign;
use chimera_core::intent::tables::INTENT_LOG;
use chimera_core::ledger::tables::AUDIT_LOG_ENTRIES;
use chimera_core::record::Row;
use chimera_core::tool::EffectKind;
use chimera_engine::access::{NewSigningKey, Settings, SigningKeyView, add_signing_key};
use chimera_testkit::access::{settings, token};
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{Air, ScriptedTool, TENANT, full_permit, workflow};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};

/// What `user_ann` may do by an intent.
pub(super) const SCOPES: &[&str] = &[
    "local.*",
    "notion.*",
    "outlook.*",
    "test.*",
    "runs.*",
    "approvals.decide",
    "runs:*",
    "approvals:decide",
    "cache:invalidate",
    "logs:read",
    "artifacts:read",
    "kb:search",
];

pub(super) struct IntentServer {
    pub(super) porch: AccessServer,
    nonces: AtomicU64,
}

/// An actor at L2 with these scopes.
pub(super) fn free(id: &str, scopes: &[&str]) -> ActorEntry {
    ActorEntry { level: Some(Level::ExecuteNotify), ..entry(id, scopes) }
}

/// Everybody of the tests: ann and dan at L2, bob at L1, cat in another tenant, and a service.
fn entries() -> Vec<ActorEntry> {
    let scopes = SCOPES;
    vec![
        free("user_ann", scopes),
        free("user_dan", scopes),
        ActorEntry { level: Some(Level::Draft), ..entry("user_bob", scopes) },
        ActorEntry { tenant: "other".to_owned(), ..free("user_cat", scopes) },
        ActorEntry { kind: Kind::Service, ..free("service_bot", scopes) },
    ]
}

fn tools() -> Vec<ScriptedTool> {
    let capability = |tool: ScriptedTool, name: &str| {
        let name = name.to_owned();
        tool.with_declaration(|tool| tool.metadata.capabilities = vec![name])
    };
    let text = |names: &[&str]| {
        let properties: serde_json::Map<String, Value> =
            names.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
        json!({"type": "object", "properties": properties, "required": names, "additionalProperties": false})
    };
    let success = json!({"type": "object", "properties": {"success": {"type": "boolean"}}});
    let upload = ScriptedTool::new("s3_upload", EffectKind::Write).with_declaration(|tool| {
        tool.input = text(&["bucket", "key_template"]);
        tool.output = success;
    });
    let upload = upload.answers(|_, _| Ok(json!({"success": true})));
    let mail = ScriptedTool::new("email_send", EffectKind::Write);
    let mail = mail.with_declaration(|tool| tool.input = text(&["to", "subject"]));
    let slack = ScriptedTool::new("slack_post", EffectKind::Write);
    let slack = slack.with_declaration(|tool| tool.input = text(&["channel_alias", "text"]));
    let fetch = ScriptedTool::new("fetch", EffectKind::Read);
    let change = ScriptedTool::new("change", EffectKind::Write);
    [upload, mail, slack, fetch, change]
        .into_iter()
        .map(|tool| {
            let name = format!("test.{}", tool.name());
            capability(tool, &name)
        })
        .collect()
}

/// The private key of an actor.
pub(super) fn key_of(actor: &str) -> Ed25519PrivateKey {
    let digest = chimera_core::json::Digest32::of_bytes(actor.as_bytes());
    Ed25519PrivateKey::from_seed(&digest.0)
}

pub(super) async fn server() -> IntentServer {
    let porch = porch_with_tools(settings(TENANT, entries()), None, tools()).await;
    let server = IntentServer { porch, nonces: AtomicU64::new(0) };
    let own = ["user_ann", "user_bob", "user_dan", "service_bot"].map(|actor| (TENANT, actor));
    for (tenant, actor) in own.into_iter().chain([("other", "user_cat")]) {
        server.add_key(tenant, actor, &key_of(actor), None).await;
    }
    server
}

impl IntentServer {
    /// Another node on the same store, with other settings.
    pub(super) async fn second(&self, settings: Settings) -> Self {
        Self { porch: self.porch.second_node(settings, None).await, nonces: AtomicU64::new(1_000) }
    }

    pub(super) async fn add_key(
        &self,
        tenant: &str,
        actor: &str,
        key: &Ed25519PrivateKey,
        expires_in: Option<i64>,
    ) -> SigningKeyView {
        let expires_at =
            expires_in.map(|seconds| chimera_engine::port::Clock::now(&*self.porch.clock).plus_seconds(seconds));
        let new = NewSigningKey { public_key: key.public().x(), label: None, not_before: None, expires_at };
        let permit = full_permit(tenant, if tenant == TENANT { "admin" } else { actor });
        add_signing_key(&self.porch.directory, &permit, actor, new).await.unwrap().added
    }

    pub(super) fn now(&self) -> String {
        chimera_engine::port::Clock::now(&*self.porch.clock).to_string()
    }

    /// An envelope that its actor issues now, without a signature.
    pub(super) fn unsigned(&self, actor: &str, intent: &str, args: Value) -> Value {
        let nonce = self.nonces.fetch_add(1, Ordering::Relaxed);
        let tenant = if actor == "user_cat" { "other" } else { TENANT };
        json!({
            "version": "1.0",
            "intent": {"type": intent, "args": args},
            "actor": {"user_id": actor, "tenant": tenant},
            "constraints": {"ttl_sec": 120, "idempotency_key": format!("key {nonce}")},
            "trace_id": "abcd-1234",
            "issued_at": self.now(),
            "kid": key_of(actor).public().kid(),
        })
    }

    /// An envelope that its actor issues and signs now.
    pub(super) fn envelope(&self, actor: &str, intent: &str, args: Value) -> Value {
        sign(self.unsigned(actor, intent, args), &key_of(actor)).unwrap()
    }

    /// Submits an envelope with the token of the actor that it names.
    pub(super) async fn send(&self, envelope: &Value) -> ApiResponse {
        let actor = envelope["actor"]["user_id"].as_str().unwrap_or("user_ann").to_owned();
        self.send_as(&actor, "/intents", envelope.to_string()).await
    }

    pub(super) async fn send_as(&self, actor: &str, path: &str, body: String) -> ApiResponse {
        let token = token(actor, chimera_engine::port::Clock::now(&*self.porch.clock));
        let request = self.porch.house.client.post(self.porch.house.server.url(path)).bearer_auth(token);
        sent(request.header("content-type", "application/json").body(body)).await
    }

    /// Issues, signs and submits an intent.
    pub(super) async fn submit(&self, actor: &str, intent: &str, args: Value) -> ApiResponse {
        self.send(&self.envelope(actor, intent, args)).await
    }

    pub(super) async fn apply(&self, air: &Air) {
        self.porch.house.stage.apply_as("admin", air).await;
    }

    /// A workflow with one call of a tool.
    pub(super) async fn apply_single(&self, id: &str, tool: &str, inputs: Value) {
        self.apply(&workflow(id).function("work", tool, inputs)).await;
    }

    /// The rows of the intent log, in order.
    pub(super) fn log(&self) -> Vec<Row> {
        let mut rows = self.porch.house.stage.rows(&INTENT_LOG);
        rows.sort_by_key(|row| row.get("id").as_uuid());
        rows
    }

    /// The data of the ledger entries of one type.
    pub(super) fn entries(&self, event_type: &str) -> Vec<Value> {
        let entries = self.porch.house.stage.rows(&AUDIT_LOG_ENTRIES);
        let of_type = entries.iter().filter(|row| row.text("event_type") == event_type);
        of_type.map(|row| row.get("data_json").as_json().unwrap().value().unwrap()).collect()
    }
}

/// The id of the run that an answer names.
pub(super) fn run_of(answer: &ApiResponse) -> uuid::Uuid {
    answer.body["result"]["run_id"].as_str().unwrap_or_else(|| panic!("{answer:?}")).parse().unwrap()
}
