//! The crash matrix over real sockets: every request of a workflow is cut once, after the server has read it and
//! before its answer.
//!
//! The server records a request and closes the connection without an answer. In one variant the engine crashes at
//! that moment and another one takes over; in the second it survives and handles the error; in a third it crashes
//! before the first byte. Only `http.request` with a writing method is neither idempotent nor checkable: it is never
//! sent again, and a person reports the outcome.

use crate::server::{FixedSecrets, ReceivedRequest, Reply, Server, local};
use async_trait::async_trait;
use chimera_connect::flow::HttpRequest;
use chimera_connect::flow::{ToolDependencies, declared};
use chimera_core::flow::tables::{EFFECTS, STEPS};
use chimera_core::flow::work::NoJobs;
use chimera_core::job::executions::ExecutionLog;
use chimera_core::record::{Scope, Select};
use chimera_core::secret::Secret;
use chimera_engine::EngineError;
use chimera_engine::act::rules::Rules;
use chimera_engine::flow::call_slots::CallLimits;
use chimera_engine::flow::port::Tool;
use chimera_engine::flow::{self, Asking, Flow, FlowPorts, OutcomeReport, ProcessLog, RunKey, StartRun, ToolRegistry};
use chimera_engine::port::{NoSpans, Records};
use chimera_storage::records::{AccessMode, PostgresOptions, PostgresRecords, SqliteRecords};
use chimera_testkit::cells::Cells;
use chimera_testkit::crash::Store;
use chimera_testkit::flow::{BroadcastBus, NullNotifier, World, shown as as_json};
use chimera_testkit::postgres::PrivatePostgres;
use chimera_testkit::simulate::port_switch::{CrashPoint, LinkState, PortSwitch, SwitchedRecords, SwitchedTool};
use futures::StreamExt;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use uuid::Uuid;

const VENDOR: &str = include_str!("cut.toml");

/// The requests of an undisturbed run, in order: each waits for the previous one.
const CALLS: [&str; 7] = [
    "GET /look",
    "PUT /again/first",
    "POST /checked",
    "POST /once",
    "PUT /again/item-1",
    "PUT /again/item-2",
    "GET /look/back",
];

/// Concurrent cases: they mostly wait for retries.
const AT_A_TIME: usize = 7;

/// What happens to the request with this number, counted from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// The engine crashes before it is sent.
    Unsent(usize),
    /// The server has it, the connection is closed, and the engine crashes.
    Lost(usize),
    /// The server has it, and the connection is closed.
    Closed(usize),
}

impl Cut {
    fn call(self) -> &'static str {
        let (Self::Unsent(at) | Self::Lost(at) | Self::Closed(at)) = self;
        CALLS[at - 1]
    }

    /// What the server must have seen: retries and lookups where they are due, and nothing else more than once.
    fn expected(self) -> Vec<&'static str> {
        let (Self::Unsent(at) | Self::Lost(at) | Self::Closed(at)) = self;
        let mut expected = CALLS.to_vec();
        match (self, self.call()) {
            (Self::Unsent(_), "POST /checked") => {
                expected.splice(at - 1..at - 1, ["GET /checked", "GET /checked"]);
            }
            (Self::Unsent(_), _) | (_, "POST /once") => {}
            (_, "POST /checked") => expected.insert(at, "GET /checked"),
            (_, repeated) => expected.insert(at, repeated),
        }
        expected
    }
}

fn workflow(address: &str) -> Value {
    let request = |id: &str, method: &str, path: &str| {
        let mut inputs = json!({"method": method, "url": format!("http://{address}{path}")});
        if method == "POST" {
            inputs["json"] = json!({"from": "${run_id}"});
        }
        json!({"id": id, "type": "function", "fn": "http.request", "inputs": inputs})
    };
    json!({
        "air_version": "1.0", "workflow_id": "cut",
        "nodes": [
            request("look", "GET", "/look"),
            {"id": "again", "type": "function", "fn": "acme.again", "inputs": {"name": "first"}},
            {"id": "checked", "type": "function", "fn": "acme.checked", "inputs": {}},
            request("once", "POST", "/once"),
            {"id": "each", "type": "map", "over": "${[1, 2]}", "max_parallel": 1,
             "do": {"type": "function", "fn": "acme.again", "inputs": {"name": "item-${item}"}}},
            request("back", "GET", "/look/back"),
        ],
        "edges": [
            {"from": "look", "to": "again"}, {"from": "again", "to": "checked"}, {"from": "checked", "to": "once"},
            {"from": "once", "to": "each"}, {"from": "each", "to": "back"},
        ],
    })
}

/// The server, and which request it cuts.
struct CuttingServer {
    server: Server,
    engine: Arc<Mutex<Option<Arc<PortSwitch>>>>,
}

impl CuttingServer {
    async fn start(cut: Cut) -> Self {
        let engine: Arc<Mutex<Option<Arc<PortSwitch>>>> = Arc::default();
        let held = Arc::clone(&engine);
        let server = Server::start(move |seen| {
            let (Cut::Lost(at) | Cut::Closed(at)) = cut else { return Self::answer(seen) };
            if seen.len() != at {
                return Self::answer(seen);
            }
            if let (Cut::Lost(_), Some(wire)) = (cut, held.lock().unwrap().as_ref()) {
                wire.set(LinkState::Cut);
            }
            Reply::Cut
        })
        .await;
        Self { server, engine }
    }

    fn answer(seen: &[ReceivedRequest]) -> Reply {
        if seen.last().is_some_and(|last| last.line() == "GET /checked") {
            let notes: Vec<Value> =
                seen.iter().filter(|s| s.line() == "POST /checked").map(ReceivedRequest::json).collect();
            return Reply::json(200, &json!(notes));
        }
        Reply::json(200, &json!({"ok": true}))
    }

    /// Everything sent to one path had one key, and no two paths shared one.
    fn keys_are_kept(&self, cut: Cut) {
        let mut keys: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for seen in self.server.seen().iter().filter(|seen| seen.method != "GET") {
            keys.entry(seen.line()).or_default().insert(seen.header("idempotency-key").to_owned());
        }
        let all: BTreeSet<&String> = keys.values().flatten().collect();
        assert!(keys.values().all(|keys| keys.len() == 1) && all.len() == keys.len(), "{cut:?}: {keys:?}");
        assert!(all.iter().all(|key| !key.is_empty()), "{cut:?}: {keys:?}");
    }
}

/// One case from start to end, with as many engines as it takes.
struct CutCase {
    world: World,
    other: CuttingServer,
    cut: Cut,
    /// Tools whose outcome was unknown at some time.
    doubts: BTreeSet<String>,
}

impl CutCase {
    async fn new(cut: Cut) -> Self {
        Self { world: World::new(7), other: CuttingServer::start(cut).await, cut, doubts: BTreeSet::new() }
    }

    fn engine(&self, records: &Arc<dyn Records>, wire: &Arc<PortSwitch>) -> Flow {
        let toolbox = ToolDependencies { client: local(), secrets: FixedSecrets::of(&[]), base_urls: BTreeMap::new() };
        let request = HttpRequest::new(toolbox.client.clone(), Arc::clone(&toolbox.secrets)).unwrap();
        let vendor = VENDOR.replace("ADDRESS", &self.other.server.address.to_string());
        let mut tools: Vec<Arc<dyn Tool>> = vec![Arc::new(request)];
        let declared = declared::tools(&vendor, "cut.toml", &toolbox).unwrap();
        tools.extend(declared.into_iter().map(|tool| Arc::new(tool) as Arc<dyn Tool>));
        let mut registry = ToolRegistry::default();
        for tool in tools {
            registry.add(Arc::new(SwitchedTool::new(tool, Arc::clone(wire)))).unwrap();
        }
        Flow::new(FlowPorts {
            call_log: Arc::new(ProcessLog),
            records: Arc::new(SwitchedRecords::new(Arc::clone(records), Arc::clone(wire))),
            clock: Arc::clone(&self.world.clock),
            random: Arc::clone(&self.world.random) as _,
            bus: Arc::new(BroadcastBus::default()),
            notifier: Arc::new(NullNotifier),
            spans: Arc::new(NoSpans),
            jobs: Arc::new(NoJobs),
            asking: Asking::default(),
            registry: Arc::new(registry),
            projection: Arc::new(ExecutionLog),
            policy: Arc::new(Rules::default()),
            slots: CallLimits::default(),
            alone: true,
        })
    }

    /// Runs it; returns how many engines crashed.
    async fn play(&mut self, store: &dyn Store) -> usize {
        let mut crashes = 0;
        loop {
            let records = store.open().await;
            let moment = match self.cut {
                Cut::Unsent(at) if crashes == 0 => Some(CrashPoint::BeforeSend(at as u64)),
                _ => None,
            };
            let wire = Arc::new(PortSwitch::cut_at(moment));
            *self.other.engine.lock().unwrap() = Some(Arc::clone(&wire));
            let flow = self.engine(&records, &wire);
            self.world.create_tenant(&*records).await;
            let keeper = flow.clone();
            let keeper = tokio::spawn(async move { flow::run_keeper(&keeper).await });
            let done = tokio::select! {
                biased;
                () = wire.wait_until_cut() => false,
                () = self.see_it_through(&flow, &wire) => true,
            };
            wire.set(LinkState::Cut);
            keeper.abort();
            flow.stop();
            if done {
                ended_well(&*records, self.cut).await;
            }
            records.close().await;
            if done {
                return crashes;
            }
            crashes += 1;
        }
    }

    /// Starts the run, retrying if necessary, and answers what only a person can.
    async fn see_it_through(&mut self, flow: &Flow, wire: &PortSwitch) {
        let (admin, ann) = (self.world.actor("admin"), self.world.actor("user_ann"));
        let document = workflow(&self.other.server.address.to_string()).to_string();
        flow.workflows().apply(&admin, "cut", &document).await.unwrap();
        let key = RunKey::new(&Secret::new("the seal"), &ann, "the only one").unwrap();
        let ask = StartRun { idempotency_key: Some(key), ..StartRun::of("cut", json!({})) };
        let run = match flow::start(flow, &ann, ask).await {
            Ok(started) => started.run_id,
            Err(EngineError::KeyUsed(run)) => run.id,
            Err(error) => panic!("the run can't be started: {error:?}"),
        };
        let mut moves = wire.subscribe();
        loop {
            moves.borrow_and_update();
            let shown = as_json(flow::show_run(flow, &ann, run).await.unwrap());
            match shown["status"].as_str() {
                Some("completed") => return,
                Some("failed" | "cancelled") => panic!("{:?}: {shown:#}", self.cut),
                _ => {}
            }
            let steps = as_json(flow::list_steps(flow, &ann, run, 100, None).await.unwrap().steps);
            for step in steps.as_array().unwrap().iter().filter(|step| step["status"] == "outcome_unknown") {
                self.doubts.insert(step["node_id"].as_str().unwrap().to_owned());
                let happened = self.other.server.lines().iter().any(|line| line == "POST /once");
                let output = json!({"status": 200, "headers": {}, "body": {"ok": true}, "truncated": false});
                let id = Uuid::parse_str(step["step_id"].as_str().unwrap()).unwrap();
                // It may be resolved already, but not yet consumed by the run.
                let found = match happened {
                    true => OutcomeReport::happened(id, Some(output)),
                    false => OutcomeReport::did_not_happen(id),
                };
                let _ = flow::report_outcome(flow, &ann, run, found).await;
            }
            let _ = moves.changed().await;
        }
    }
}

/// Every step is completed, and every effect is known to have happened.
async fn ended_well(records: &dyn Records, cut: Cut) {
    for (table, status) in [(&STEPS, "completed"), (&EFFECTS, "succeeded")] {
        let rows = records.read(Select::from(table, Scope::System)).await.unwrap().rows;
        assert!(rows.iter().all(|row| row.text("status") == status), "{cut:?}: {rows:?}");
        assert!(rows.len() >= CALLS.len() - 2, "{cut:?}: {rows:?}");
    }
}

async fn survives(cut: Cut, store: Box<dyn Store>) {
    let mut play = CutCase::new(cut).await;
    let crashes = play.play(&*store).await;
    assert_eq!(crashes, usize::from(!matches!(cut, Cut::Closed(_))), "{cut:?}");
    assert_eq!(play.other.server.lines(), cut.expected(), "{cut:?}");
    play.other.keys_are_kept(cut);
    let in_doubt: BTreeSet<String> = (cut.call() == "POST /once").then(|| "once".to_owned()).into_iter().collect();
    assert_eq!(play.doubts, in_doubt, "{cut:?}");
}

/// Every request, cut in every way.
fn cuts() -> impl Iterator<Item = Cut> {
    (1..=CALLS.len()).flat_map(|at| [Cut::Unsent(at), Cut::Lost(at), Cut::Closed(at)])
}

struct File(TempDir, World);

#[async_trait]
impl Store for File {
    async fn open(&self) -> Arc<dyn Records> {
        Arc::new(SqliteRecords::open(self.0.path(), AccessMode::Write, Arc::clone(&self.1.clock)).unwrap())
    }
}

struct Database(String);

#[async_trait]
impl Store for Database {
    async fn open(&self) -> Arc<dyn Records> {
        Arc::new(PostgresRecords::open(PostgresOptions::new(&self.0)).await.unwrap())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_cut_after_any_request_loses_and_doubles_nothing_on_sqlite() {
    let cases = cuts().map(|cut| survives(cut, Box::new(File(tempfile::tempdir().unwrap(), World::new(1)))));
    futures::stream::iter(cases).buffer_unordered(AT_A_TIME).collect::<()>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_cut_after_any_request_loses_and_doubles_nothing_on_postgres() {
    let server = PrivatePostgres::shared().unwrap();
    let first = server.fresh_database().unwrap();
    Database(first.clone()).open().await.close().await;
    let fresh = |cut| {
        let first = first.clone();
        async move {
            let copied = tokio::task::spawn_blocking(move || server.copy_of(&first).unwrap()).await.unwrap();
            survives(cut, Box::new(Database(copied))).await;
        }
    };
    futures::stream::iter(cuts().map(fresh)).buffer_unordered(AT_A_TIME).collect::<()>().await;
}
