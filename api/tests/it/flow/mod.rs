//! The flow endpoints over a real socket, on an in-memory store.

mod decisions;
mod events;
mod links;
mod published_events;
mod runs;
mod steering;
mod work;
mod workflows;

use crate::support::{TestServer, client, edge, served};
use chimera_api::Edge;
use chimera_core::time::Timestamp;
use chimera_core::tool::EffectKind;
use chimera_engine::access::Settings;
use chimera_engine::act::Actions;
use chimera_storage::bus::LocalBus;
use chimera_storage::counter::LocalCounters;
use chimera_testkit::access::{AccessFixture, everybody, settings, token};
use chimera_testkit::flow::{Air, EngineFixture, EngineSetup, ScriptedTool, TENANT, id_of, stage};
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// A served engine and its store.
pub(crate) struct FlowServer {
    pub(crate) server: TestServer,
    pub(crate) stage: EngineFixture,
    /// One client: making one reads the system's certificates.
    pub(crate) client: reqwest::Client,
}

/// A setup with three tools: a pure one, one with an effect, one that always fails.
pub(crate) fn setup() -> EngineSetup {
    let broken = ScriptedTool::new("broken", EffectKind::Read).answers(|_, _| {
        let body =
            chimera_engine::flow::port::ToolError::not_sent(chimera_core::error::Code::MalformedArgs, "it never works");
        Err(body)
    });
    stage(1)
        .tool(ScriptedTool::new("think", EffectKind::Pure).build())
        .tool(ScriptedTool::new("change", EffectKind::Write).build())
        .tool(broken.build())
}

pub(crate) async fn house() -> FlowServer {
    furnished(setup(), |edge| edge).await
}

pub(crate) async fn furnished(setup: EngineSetup, change: impl FnOnce(Edge) -> Edge) -> FlowServer {
    let stage = setup.open().await;
    let settings = settings(TENANT, everybody(TENANT));
    let edge = edge().with_flow(stage.flow.clone()).with_actions(front(&stage, settings).await);
    let edge = change(edge.with_request_timeout(Duration::from_secs(20)));
    FlowServer { server: served(edge).await, stage, client: client() }
}

/// Access control for the engine of a stage.
pub(crate) async fn front(stage: &EngineFixture, settings: Settings) -> Arc<Actions> {
    let ground = AccessFixture {
        records: stage.records.clone(),
        clock: Arc::clone(&stage.world.clock),
        random: Arc::clone(&stage.world.random) as Arc<dyn chimera_engine::port::Random>,
        bus: Arc::new(LocalBus::new()),
        own: Arc::new(LocalCounters::new()),
        shared: None,
    };
    ground.access(&ground.directory(settings).await, stage.flow.clone())
}

/// No body.
pub(crate) const NOTHING: Value = Value::Null;

impl FlowServer {
    /// Sends a request as the operator.
    pub(crate) async fn ask(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        self.ask_as("admin", method, path, body).await
    }

    /// Sends a request as an actor.
    pub(crate) async fn ask_as(&self, actor: &str, method: Method, path: &str, body: Value) -> (u16, Value) {
        let request = self.client.request(method, self.server.url(path)).bearer_auth(self.token(actor));
        let answer = signed(request, self.stage.world.clock.now(), actor, &body).send().await.unwrap();
        let status = answer.status().as_u16();
        let text = answer.text().await.unwrap();
        (status, if text.is_empty() { Value::Null } else { serde_json::from_str(&text).unwrap() })
    }

    /// An access token of an actor.
    pub(crate) fn token(&self, actor: &str) -> String {
        token(actor, self.stage.world.clock.now())
    }

    /// Starts a run of a workflow as the operator, and does not wait unless the request says so.
    pub(crate) async fn start(&self, workflow: &str, body: Value) -> (u16, Value) {
        self.start_as("admin", workflow, body).await
    }

    /// Starts a run of a workflow as an actor.
    pub(crate) async fn start_as(&self, actor: &str, workflow: &str, body: Value) -> (u16, Value) {
        let mut asked = json!({"workflow_id": workflow, "wait": 0});
        body.as_object().into_iter().flatten().for_each(|(name, value)| asked[name] = value.clone());
        self.ask_as(actor, Method::POST, "/act", asked).await
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        self.ask(Method::GET, path, NOTHING).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.ask(Method::POST, path, body).await
    }

    /// Applies a workflow that must be valid.
    pub(crate) async fn apply(&self, air: &Air) {
        let (status, answer) = self.ask(Method::PUT, &format!("/workflows/{}", air.id()), air.document().clone()).await;
        assert_eq!(status, 200, "{answer}");
    }

    /// Applies and runs a workflow until it ends or awaits approval; returns the run.
    pub(crate) async fn run(&self, air: &Air, mut ask: Value) -> Value {
        self.apply(air).await;
        ask["wait"] = 15.into();
        let (status, run) = self.start(&air.id(), ask).await;
        assert!([200, 202].contains(&status), "{run}");
        run
    }

    /// Waits until a run has this status.
    pub(crate) async fn until(&self, run: &Value, status: &str) -> Value {
        within_timeout(self.stage.status(id_of(&run["run_id"]), status)).await
    }

    /// Waits until a node of a run has this status.
    pub(crate) async fn wait_for_step(&self, run: &Value, node: &str, status: &str) -> Value {
        within_timeout(self.stage.step(id_of(&run["run_id"]), node, status)).await
    }

    /// Waits until a run satisfies a condition.
    pub(crate) async fn sees(&self, run: &Value, wanted: impl Fn(&Value) -> bool) -> Value {
        within_timeout(self.stage.until(id_of(&run["run_id"]), wanted)).await
    }
}

/// Fails the test if the future takes too long.
async fn within_timeout<T>(waiting: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), waiting).await.expect("timed out")
}

/// A signed request, with its body if there is one.
pub(crate) fn signed(
    request: reqwest::RequestBuilder,
    now: Timestamp,
    actor: &str,
    body: &Value,
) -> reqwest::RequestBuilder {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let built = request.try_clone().unwrap().build().unwrap();
    let url = built.url();
    let target = url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()));
    let headers = chimera_testkit::access::signed(actor, now, (built.method().as_str(), &target), text.as_bytes());
    let request = headers.into_iter().fold(request, |request, (name, value)| request.header(name, value));
    if text.is_empty() { request } else { request.header("content-type", "application/json").body(text) }
}

/// The error code of a problem document.
pub(crate) fn code(problem: &Value) -> &str {
    problem["error"]["code"].as_str().unwrap_or("no problem document")
}

/// The path of a run.
pub(crate) fn path(run: &Value, rest: &str) -> String {
    format!("/runs/{}{rest}", run["run_id"].as_str().unwrap())
}

/// The example of the docs: compute, wait for an approval, change something.
pub(crate) fn reviewed() -> Air {
    chimera_testkit::flow::workflow("reviewed")
        .function("think", "think", json!({"n": 1}))
        .node(json!({"id": "review", "type": "hitl", "prompt": "May it?", "show": {"n": 1}}))
        .function("change", "change", json!({"n": 2}))
        .edge("think", "review")
        .edge("review", "change")
}
