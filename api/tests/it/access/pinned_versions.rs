//! What was looked at is what runs: the versions of workflows within, and the plan that a patch is put on, while
//! others change both.

use super::access_server::access_fixture;
use chimera_core::access::{ActorEntry, Level};
use chimera_core::flow::run::{Replay, ReplayMode};
use chimera_core::tool::{EffectKind, ReadOnlyInputs};
use chimera_engine::access::Permit;
use chimera_engine::act::{self, ActOutcome, ActRequest, Actions, Objective};
use chimera_engine::flow::{PatchRequest, StartRun};
use chimera_testkit::access::{everybody, settings};
use chimera_testkit::flow::{Air, CallLog, EngineFixture, ScriptedTool, TENANT, World, stage, workflow};
use chimera_testkit::memory::MemoryRecords;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use uuid::Uuid;

/// A front door without a socket, so that time stands until everybody waits.
struct SocketlessServer {
    stage: EngineFixture,
    access: Arc<Actions>,
    http: CallLog,
    gates: Arc<BTreeMap<&'static str, Notify>>,
}

async fn yard() -> SocketlessServer {
    let (world, records) = (World::new(1), Arc::new(MemoryRecords::new()));
    let ground = access_fixture(&world, &records, None);
    let directory = ground.directory(settings(TENANT, everybody(TENANT))).await;
    let http = ScriptedTool::new("http.request", EffectKind::Write).with_declaration(|tool| {
        tool.metadata.capabilities = vec!["http.request".to_owned(), "external_api".to_owned()];
        tool.reads_when = Some(ReadOnlyInputs { member: "method", values: &["GET"], deletes: &["DELETE"] });
    });
    let gates: Arc<BTreeMap<&'static str, Notify>> =
        Arc::new(["a", "b"].into_iter().map(|gate| (gate, Notify::new())).collect());
    let at_gates = Arc::clone(&gates);
    let gated = ScriptedTool::new("gated", EffectKind::Read).on_execute(move |_, input| {
        let gates = Arc::clone(&at_gates);
        async move {
            gates[input["gate"].as_str().unwrap()].notified().await;
            Ok(json!({}))
        }
    });
    let asked = http.asked();
    let stage = stage(1).tool(http.build()).tool(gated.build()).world(world).open_on(records).await;
    let access = ground.access(&directory, stage.flow.clone());
    SocketlessServer { stage, access, http: asked, gates }
}

/// A service that acts at L2.
fn service() -> Permit {
    let scopes = ["http.request", "test.*", "runs.manage"].map(str::to_owned).to_vec();
    Permit::for_entry(ActorEntry {
        scopes,
        level: Some(Level::ExecuteNotify),
        ..ActorEntry::default_for("n8n_workflow_1", TENANT)
    })
}

fn calls(id: &str, method: &str, path: &str) -> Value {
    let inputs = json!({"method": method, "url": format!("https://acme.example/{path}")});
    json!({"id": id, "type": "function", "fn": "http.request", "inputs": inputs})
}

fn starts(id: &str, child: &str) -> Value {
    json!({"id": id, "type": "workflow", "workflow_id": child, "inputs": {}})
}

fn adds(nodes: Vec<Value>, from: &str) -> Value {
    let edges: Vec<Value> = nodes.iter().map(|node| json!({"from": from, "to": node["id"]})).collect();
    json!({"patch_version": "0.1", "justification": "more", "add_nodes": nodes, "add_edges": edges})
}

/// `a`, then `b`; each works until it is let go.
fn two() -> Air {
    let node = |id: &str| json!({"id": id, "type": "function", "fn": "gated", "inputs": {"gate": id}});
    workflow("two").node(node("a")).node(node("b")).edge("a", "b")
}

impl SocketlessServer {
    fn slow(&self, by: u64) {
        self.stage.records.slow_reads(Duration::from_millis(by));
    }

    async fn act(&self, workflow: &str) -> (Uuid, Level) {
        let what = Objective::Workflow { id: workflow.to_owned(), version: None, inputs: json!({}) };
        let act = ActRequest::of(what, json!({}));
        match act::act(&self.access, &service(), act).await {
            Ok(ActOutcome::Started(begun)) => (begun.started.run_id, begun.started.level),
            Ok(ActOutcome::Duplicate { .. }) => panic!("there is no key"),
            Err(error) => panic!("{}", json!(error.body())),
        }
    }

    /// A run of `two` whose `a` is under way.
    async fn held(&self, level: Level) -> Uuid {
        self.stage.apply(&two()).await;
        let run = self.stage.start(StartRun { level, ..StartRun::of("two", json!({})) }).await;
        if level == Level::Draft {
            self.stage.approve("user_ann", run).await;
        }
        self.stage.step(run, "a", "running").await;
        run
    }

    async fn patch(&self, run: Uuid, patch: Value) -> Result<(), String> {
        let proposed = act::patch(&self.access, &service(), PatchRequest::new(run, patch)).await;
        proposed.map(drop).map_err(|error| error.body().code.to_string())
    }

    async fn let_go(&self, run: Uuid) -> Value {
        self.gates["a"].notify_one();
        self.gates["b"].notify_one();
        self.stage.ended(run).await
    }

    /// What was called for real: `GET /path`.
    fn sent(&self) -> Vec<String> {
        let line = |input: &Value| {
            let url = input["url"].as_str().unwrap();
            format!("{} {}", input["method"].as_str().unwrap(), url.strip_prefix("https://acme.example").unwrap())
        };
        self.http.of("execute").iter().map(|made| line(&made.input)).collect()
    }
}

/// The level is decided on a version of each workflow within; another one that is applied at the same moment is
/// for later runs, alone or for each item of a list.
#[tokio::test(start_paused = true)]
async fn a_version_that_nobody_looked_at_does_not_run_however_close_it_comes() {
    let yard = yard().await;
    for wait in (0..60).step_by(3) {
        let (child, outer) = (format!("child{wait}"), format!("outer{wait}"));
        let version = |method: &str| workflow(&child).node(calls("c", method, &wait.to_string()));
        yard.stage.apply(&version("GET")).await;
        let each = json!({"type": "workflow", "workflow_id": child, "inputs": {}});
        let map = json!({"id": "m", "type": "map", "over": [1], "do": each});
        yard.stage.apply(&workflow(&outer).node(starts("s", &child)).node(map).edge("s", "m")).await;
        yard.slow(10);
        let applies = async {
            yard.stage.pass(Duration::from_millis(wait)).await;
            yard.stage.apply(&version("DELETE")).await;
        };
        let ((run, level), ()) = tokio::join!(yard.act(&outer), applies);
        yard.slow(0);
        if level == Level::ExecuteNotify {
            yard.stage.ended(run).await;
            let get = format!("GET /{wait}");
            let sent: Vec<String> =
                yard.sent().into_iter().filter(|line| line.ends_with(&format!("/{wait}"))).collect();
            assert_eq!(sent, [get.clone(), get], "after {wait} ms");
        }
    }
    assert!(yard.sent().len() > 2, "some were let in before");
}

/// A run that is repeated starts the same versions as before.
#[tokio::test(start_paused = true)]
async fn what_is_done_again_is_done_by_the_versions_of_the_first_time() {
    let yard = yard().await;
    let inner = |method: &str| workflow("inner").node(calls("c", method, "inner"));
    yard.stage.apply(&inner("GET")).await;
    yard.stage.apply(&workflow("middle").node(starts("s", "inner"))).await;
    yard.stage.apply(&workflow("outer").node(starts("s", "middle"))).await;
    let (run, _) = yard.act("outer").await;
    yard.stage.ended(run).await;
    yard.stage.pass(Duration::from_secs(2)).await;
    yard.stage.apply(&inner("DELETE")).await;
    yard.stage.pass(Duration::from_secs(2)).await;
    let replay = Replay { of: run, mode: ReplayMode::Retry, from: Some("s".to_owned()) };
    let again = act::replay(&yard.access, &service(), replay, None).await.map_err(|error| error.body()).unwrap();
    assert_eq!(again.level, Level::ExecuteNotify);
    let ended = yard.stage.ended(again.run_id).await;
    assert_eq!((&ended["status"], yard.sent()), (&json!("completed"), vec!["GET /inner".to_owned(); 2]), "{ended:#}");
}

/// A patch is judged by versions of all that it starts, within each other too; those run, and no others.
#[tokio::test(start_paused = true)]
async fn a_patch_runs_the_versions_that_it_was_judged_by() {
    let yard = yard().await;
    let inner = |method: &str| workflow("inner").node(calls("c", method, "inner"));
    yard.stage.apply(&inner("DELETE")).await;
    yard.stage.apply(&workflow("middle").node(starts("s", "inner"))).await;
    let run = yard.held(Level::ExecuteNotify).await;
    yard.stage.pass(Duration::from_secs(2)).await;
    assert_eq!(yard.patch(run, adds(vec![starts("p", "middle")], "a")).await.unwrap_err(), "POLICY_DENIED");
    yard.stage.apply(&inner("GET")).await;
    yard.patch(run, adds(vec![starts("p", "middle")], "a")).await.unwrap();
    yard.stage.pass(Duration::from_secs(2)).await;
    yard.stage.apply(&inner("DELETE")).await;
    assert_eq!(yard.let_go(run).await["status"], "completed");
    assert_eq!(yard.sent(), ["GET /inner"]);
    let replay = Replay { of: run, mode: ReplayMode::Retry, from: Some("p".to_owned()) };
    let again = act::replay(&yard.access, &service(), replay, None).await.map_err(|error| error.body()).unwrap();
    yard.stage.ended(again.run_id).await;
    assert_eq!(yard.sent(), ["GET /inner", "GET /inner"], "also when it is repeated");
}

/// A patch that can't be put on at one moment is not let through unchecked at the next.
#[tokio::test(start_paused = true)]
async fn a_patch_is_checked_on_the_run_that_it_is_put_on() {
    let yard = yard().await;
    for wait in (0..120).step_by(3) {
        let run = yard.held(Level::ExecuteNotify).await;
        yard.slow(10);
        let opens = async {
            yard.stage.pass(Duration::from_millis(wait)).await;
            yard.gates["a"].notify_one();
        };
        let (patched, ()) = tokio::join!(yard.patch(run, adds(vec![calls("w", "DELETE", "wipe")], "b")), opens);
        yard.slow(0);
        assert!(patched.is_err(), "after {wait} ms");
        yard.gates["b"].notify_one();
        yard.stage.ended(run).await;
    }
    assert!(yard.sent().is_empty(), "{:?}", yard.sent());
}

/// The cap on calls holds for patches that come at the same time, too.
#[tokio::test(start_paused = true)]
async fn patches_at_the_same_time_can_not_pass_the_cap_together() {
    let yard = yard().await;
    for apart in (0..40).step_by(2) {
        let run = yard.held(Level::ExecuteNotify).await;
        yard.slow(5);
        let one = async |number: u64| {
            yard.stage.pass(Duration::from_millis(apart * number)).await;
            let nodes = (0..4).map(|at| calls(&format!("n{number}{at}"), "GET", "cap")).collect();
            yard.patch(run, adds(nodes, "a")).await
        };
        let all = tokio::join!(one(0), one(1), one(2), one(3), one(4), one(5));
        yard.slow(0);
        let accepted = [all.0, all.1, all.2, all.3, all.4, all.5].iter().filter(|patched| patched.is_ok()).count();
        assert_eq!(accepted, 2, "two calls, and twice four; {apart} ms apart");
        yard.let_go(run).await;
    }
}

/// Whoever decides about a patch sees how risky that is which it adds.
#[tokio::test(start_paused = true)]
async fn a_request_for_a_patch_shows_the_risk_of_what_it_adds() {
    let yard = yard().await;
    yard.stage.apply(&workflow("inner").node(calls("c", "POST", "inner"))).await;
    let run = yard.held(Level::Draft).await;
    yard.patch(run, adds(vec![calls("p", "POST", "one"), starts("q", "inner")], "a")).await.unwrap();
    let asks = |shown: &Value| shown["approvals"][0]["action_type"] == "graph.patch";
    let asked = yard.stage.until(run, asks).await["approvals"][0].clone();
    let risk = &asked["review"]["risk"];
    assert!(risk["score"].as_u64().unwrap() > 0, "{asked:#}");
    let places: Vec<&Value> =
        risk["reasons"].as_array().unwrap().iter().flat_map(|reason| reason["places"].as_array().unwrap()).collect();
    assert!(
        places.iter().any(|place| place.as_str().unwrap().starts_with("/steps/1")),
        "of the workflow within too: {risk:#}"
    );
}
