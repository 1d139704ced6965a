//! A test server with access control, tools that count their calls, and a clock that a test advances.

use crate::flow::{FlowServer, NOTHING};
use crate::support::{client, served};
use chimera_api::Edge;
use chimera_core::access::ActorEntry;
use chimera_core::access::token::Claims;
use chimera_core::act::risk;
use chimera_core::flow::plan::Plan;
use chimera_core::flow::policy::{Action, Policy, PolicyVerdict};
use chimera_core::flow::reservation::Limit;
use chimera_core::flow::risk::Score;
use chimera_core::flow::tables::RUNS;
use chimera_core::ledger::tables::{AUDIT_LOG_ENTRIES, AUDIT_LOGS, IDEMPOTENCY_RECORDS};
use chimera_core::time::Timestamp;
use chimera_core::tool::{EffectKind, ReadOnlyInputs, Risk, Rollback, Spec};
use chimera_engine::access::port::Counters;
use chimera_engine::access::{Directory, Settings};
use chimera_engine::act::rules::Rules;
use chimera_engine::act::{AccessPolicy, DirectoryRecipients, Schedules};
use chimera_engine::flow::Asking;
use chimera_engine::flow::port::ToolError;
use chimera_engine::port::Clock;
use chimera_storage::bus::LocalBus;
use chimera_storage::counter::LocalCounters;
use chimera_testkit::access::{AccessFixture, settings, signature, token, token_key};
use chimera_testkit::build::NOON;
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{CallLog, EngineSetup, ScriptedTool, TENANT, World, asking, stage};
use chimera_testkit::memory::MemoryRecords;
use reqwest::header::HeaderMap;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// The runtime's time plus an offset that a test sets, or a frozen time.
pub(crate) struct OffsetClock {
    began: Instant,
    more: AtomicI64,
    stands: AtomicBool,
    /// Error of the wall clock, in microseconds.
    wrong: AtomicI64,
}

impl OffsetClock {
    pub(crate) fn wait(&self, seconds: i64) {
        self.more.fetch_add(seconds * 1_000_000, Ordering::Relaxed);
    }

    /// Sets the error of the wall clock.
    pub(crate) fn jump(&self, seconds: i64) {
        self.wrong.store(seconds * 1_000_000, Ordering::Relaxed);
    }

    /// Freezes the time at noon; only `wait` advances it.
    pub(crate) fn stand(&self) {
        self.stands.store(true, Ordering::Relaxed);
    }
}

impl Clock for OffsetClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.steady().micros() + self.wrong.load(Ordering::Relaxed))
    }

    fn steady(&self) -> Timestamp {
        let runs = !self.stands.load(Ordering::Relaxed);
        let since = if runs { i64::try_from(self.began.elapsed().as_micros()).unwrap() } else { 0 };
        Timestamp::from_micros(NOON.micros() + since + self.more.load(Ordering::Relaxed))
    }
}

/// A policy that forbids one tool, and has a limit on the refunds of [`LIMITED_ACTOR`].
struct TestPolicy {
    forbidden: &'static str,
    limits: Rules,
}

/// Refunds up to 1000 per hour.
pub(crate) const LIMITED_ACTOR: &str = "service_chatbot";

impl TestPolicy {
    fn new() -> Self {
        let limit = json!({
            "name": "refunds", "tool": "desk.refund", "actor": LIMITED_ACTOR, "effect": "limit", "beyond": "ask",
            "sum_at_most": {"of": "/amount", "limit": 1000, "per": "1h"},
        });
        Self { forbidden: "local.forbidden", limits: Rules(vec![serde_json::from_value(limit).unwrap()]) }
    }
}

impl Policy for TestPolicy {
    fn evaluate(&self, action: &Action<'_>) -> PolicyVerdict {
        match action.tool.name == self.forbidden {
            true => PolicyVerdict::Deny { rule: "never".to_owned(), reason: "not here".to_owned() },
            false => PolicyVerdict::Allow,
        }
    }

    fn has_limits(&self) -> bool {
        true
    }

    fn limits(&self, action: &Action<'_>) -> Vec<Limit> {
        self.limits.limits(action)
    }

    fn score_call(&self, _: &Spec, _: &Value) -> Score {
        Score::default()
    }

    fn score(&self, plan: &Plan, tools: &[&Spec]) -> Score {
        risk::score_with(plan, tools)
    }
}

/// A server with access control, its clock, and the recorded calls of its tools.
pub(crate) struct AccessServer {
    pub(crate) house: FlowServer,
    pub(crate) clock: Arc<OffsetClock>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) schedules: Arc<Schedules>,
    tools: BTreeMap<&'static str, CallLog>,
}

/// A response, read to its end.
#[derive(Debug)]
pub(crate) struct ApiResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl ApiResponse {
    pub(crate) fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or_default()
    }

    pub(crate) fn detail(&self, name: &str) -> &Value {
        &self.body["error"]["details"][name]
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no {name}: {self:?}")).to_str().unwrap()
    }

    pub(crate) fn number(&self, name: &str) -> i64 {
        self.header(name).parse().unwrap()
    }
}

/// The tools of the specification's examples, and a few more.
fn tools() -> Vec<ScriptedTool> {
    let says = |name: &'static str, reach: EffectKind, capabilities: &[&str]| {
        let capabilities: Vec<String> = capabilities.iter().map(|name| (*name).to_owned()).collect();
        ScriptedTool::new(name, reach).with_declaration(|tool| tool.metadata.capabilities = capabilities)
    };
    let text = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
    let careful = |tool: ScriptedTool, risk: Risk| {
        tool.with_declaration(|tool| {
            tool.metadata.requires_approval = true;
            tool.metadata.risk_level = risk;
        })
    };
    let broken = says("notion.broken", EffectKind::Write, &["notion.pages.write"]);
    vec![
        says("local.summarize", EffectKind::Pure, &["local.summarize"]).with_declaration(|tool| {
            tool.description = "Summarises a text.";
            tool.input = text;
        }),
        says("notion.search", EffectKind::Read, &["notion.pages.read", "notion.search"]),
        says("notion.note", EffectKind::Write, &["notion.notes.write"]),
        careful(says("notion.create_page", EffectKind::Write, &["notion.pages.create", "notion.write"]), Risk::Medium),
        careful(says("outlook.send", EffectKind::Write, &["outlook.send", "external_api"]), Risk::High)
            .with_declaration(|tool| tool.rollback = Rollback::Unsupported),
        says("local.forbidden", EffectKind::Pure, &["local.summarize"]),
        says("http.request", EffectKind::Write, &["http.request", "external_api"]).with_declaration(|tool| {
            tool.reads_when = Some(ReadOnlyInputs { member: "method", values: &["GET"], deletes: &["DELETE"] });
        }),
        says("desk.refund", EffectKind::Write, &["billing.refunds.create"]),
        says("webhook_send", EffectKind::Write, &["webhook.send", "external_api"]),
        broken.answers(|_, _| Err(ToolError::not_sent(chimera_core::error::Code::MalformedArgs, "it never works"))),
    ]
}

/// A server with the shipped registry.
pub(crate) async fn porch() -> AccessServer {
    porch_with(settings(TENANT, Vec::new()), None).await
}

/// A server with other settings, and optionally shared counters.
pub(crate) async fn porch_with(settings: Settings, shared: Option<Arc<dyn Counters>>) -> AccessServer {
    porch_with_tools(settings, shared, Vec::new()).await
}

/// The same with further tools.
pub(crate) async fn porch_with_tools(
    settings: Settings,
    shared: Option<Arc<dyn Counters>>,
    more_tools: Vec<ScriptedTool>,
) -> AccessServer {
    let (more, wrong) = (AtomicI64::new(0), AtomicI64::new(0));
    let clock = Arc::new(OffsetClock { began: Instant::now(), more, stands: AtomicBool::new(false), wrong });
    let world = World { clock: Arc::clone(&clock) as Arc<dyn Clock>, ..World::new(1) };
    let records = Arc::new(MemoryRecords::new());
    let ground = access_fixture(&world, &records, shared);
    let directory = ground.directory(settings).await;
    let tools: Vec<ScriptedTool> = tools().into_iter().chain(more_tools).collect();
    let asked = tools.iter().map(|tool| (tool.name(), tool.asked())).collect();
    let setup = tools.into_iter().fold(stage(1), |setup: EngineSetup, tool| setup.tool(tool.build()));
    let policy = AccessPolicy::new(Arc::clone(&directory), TestPolicy::new());
    let recipients = Arc::new(DirectoryRecipients::new(Arc::clone(&directory)));
    let asking = Asking { base_url: "https://chimera.example".to_owned(), recipients, ..asking() };
    let stage = setup.world(world).policy(policy).asking(asking).open_on(records).await;
    let access = ground.access(&directory, stage.flow.clone());
    let schedules = Arc::new(Schedules::new(Arc::clone(&access)));
    let edge = edge_of(&stage.world).with_flow(stage.flow.clone()).with_actions(access);
    let house = FlowServer { server: served(edge).await, stage, client: client() };
    AccessServer { house, clock, directory, schedules, tools: asked }
}

pub(crate) fn access_fixture(
    world: &World,
    records: &Arc<MemoryRecords>,
    shared: Option<Arc<dyn Counters>>,
) -> AccessFixture {
    AccessFixture {
        records: Arc::clone(records) as _,
        clock: Arc::clone(&world.clock),
        random: Arc::clone(&world.random) as _,
        bus: Arc::new(LocalBus::new()),
        own: Arc::new(LocalCounters::new()),
        shared,
    }
}

/// An edge whose ids are unique among all edges of the world.
fn edge_of(world: &World) -> Edge {
    let random = Arc::clone(&world.random) as Arc<dyn chimera_engine::port::Random>;
    Edge::new(Arc::clone(&world.clock), random).with_request_timeout(Duration::from_secs(20))
}

/// An entry with these scopes, at the default level of its kind.
pub(crate) fn entry(id: &str, scopes: &[&str]) -> ActorEntry {
    let level = chimera_core::access::registry::shipped(TENANT)
        .iter()
        .find(|entry| chimera_core::access::matches_pattern(&entry.id, id))
        .and_then(|entry| entry.level);
    let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
    ActorEntry { scopes, level, quota_per_minute: 1_000, ..ActorEntry::default_for(id, TENANT) }
}

impl AccessServer {
    /// Another node on the same store, with its own directory and counters.
    pub(crate) async fn second_node(&self, settings: Settings, shared: Option<Arc<dyn Counters>>) -> AccessServer {
        let ground = access_fixture(&self.house.stage.world, &self.house.stage.records, shared);
        let directory = ground.directory(settings).await;
        let flow = self.house.stage.flow.clone();
        let access = ground.access(&directory, flow.clone());
        let schedules = Arc::new(Schedules::new(Arc::clone(&access)));
        let edge = edge_of(&self.house.stage.world).with_flow(flow.clone()).with_actions(access);
        let server = served(edge).await;
        let stage = chimera_testkit::flow::EngineFixture {
            world: self.house.stage.world.clone(),
            records: Arc::clone(&self.house.stage.records),
            flow,
        };
        let house = FlowServer { server, stage, client: self.house.client.clone() };
        let clock = Arc::clone(&self.clock);
        AccessServer { house, clock, directory, schedules, tools: self.tools.clone() }
    }

    pub(crate) fn now(&self) -> i64 {
        self.clock.now().millis() / 1_000
    }

    /// The recorded calls of a tool.
    pub(crate) fn asked(&self, tool: &str) -> &CallLog {
        &self.tools[tool]
    }

    /// The number of real calls of all tools.
    pub(crate) fn effects(&self) -> usize {
        self.tools.values().map(|asked| asked.count("execute")).sum()
    }

    /// A token with changed claims.
    pub(crate) fn token_with(&self, actor: &str, change: impl FnOnce(&mut Claims)) -> String {
        let iat = self.now();
        let mut claims = Claims {
            sub: actor.to_owned(),
            exp: iat + 3_600,
            iat,
            nbf: None,
            jti: None,
            fam: None,
            aud: None,
            scopes: None,
            key_of: None,
        };
        change(&mut claims);
        token_key().sign(&claims).unwrap()
    }

    /// A request with the actor's token and signature.
    pub(crate) fn request(&self, actor: &str, method: Method, path: &str, body: &Value) -> RequestBuilder {
        let token = token(actor, self.clock.now());
        let request = self.house.client.request(method, self.house.server.url(path)).bearer_auth(token);
        crate::flow::signed(request, self.clock.now(), actor, body)
    }

    /// Posts to `/act`.
    pub(crate) async fn act(&self, actor: &str, body: Value) -> ApiResponse {
        sent(self.request(actor, Method::POST, "/act", &body)).await
    }

    pub(crate) async fn ask(&self, actor: &str, method: Method, path: &str, body: Value) -> ApiResponse {
        sent(self.request(actor, method, path, &body)).await
    }

    pub(crate) async fn get(&self, actor: &str, path: &str) -> ApiResponse {
        self.ask(actor, Method::GET, path, NOTHING).await
    }

    /// Posts a body to `/act` with the given token and signature.
    pub(crate) async fn raw(&self, token: &str, signature: Option<&str>, body: &str) -> ApiResponse {
        let request = self.house.client.post(self.house.server.url("/act")).bearer_auth(token);
        let request = request.header("content-type", "application/json").body(body.to_owned());
        sent(match signature {
            Some(signature) => request.header("x-hmac-signature", signature),
            None => request,
        })
        .await
    }

    /// Posts a signed body without a token.
    pub(crate) async fn post(&self, actor: &str, path: &str, body: &Value) -> ApiResponse {
        sent(crate::flow::signed(self.house.client.post(self.house.server.url(path)), self.clock.now(), actor, body))
            .await
    }

    /// Gets a token from `/auth/token`.
    pub(crate) async fn sign_in(&self, actor: &str, nonce: &str) -> ApiResponse {
        let body = json!({"actor": actor, "issued_at": self.now(), "nonce": nonce});
        self.post(actor, "/auth/token", &body).await
    }

    /// Counts of what a refusal must not leave behind: runs, idempotency records, calls.
    pub(crate) fn traces(&self) -> (usize, usize, usize) {
        let rows = |table| self.house.stage.rows(table).len();
        (rows(&RUNS), rows(&IDEMPOTENCY_RECORDS), self.effects())
    }

    /// The refusals in the ledger.
    pub(crate) fn refusals(&self) -> Vec<Value> {
        let entries = self.house.stage.rows(&AUDIT_LOG_ENTRIES);
        let refused = entries.iter().filter(|row| row.text("event_type") == "access.refused");
        refused.map(|row| row.get("data_json").as_json().unwrap().value().unwrap()["details"].clone()).collect()
    }

    /// The number of rejections in the ledger.
    pub(crate) fn rejections(&self) -> usize {
        let rows = self.house.stage.rows(&AUDIT_LOGS);
        rows.iter().filter(|row| row.text("decision_outcome") == "rejected").count()
    }
}

/// Sends a request and reads the whole answer.
pub(crate) async fn sent(request: RequestBuilder) -> ApiResponse {
    let answer = request.send().await.unwrap();
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    let text = answer.text().await.unwrap();
    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
    ApiResponse { status, headers, body }
}

/// A step that every actor of the shipped registry except `anonymous` may request.
pub(crate) fn harmless() -> Value {
    json!([{"tool": "local.summarize", "input": {"text": "One. Two."}}])
}

/// The body signature of an actor.
pub(crate) fn by(actor: &str, body: &str) -> String {
    signature(actor, body.as_bytes())
}
