//! A flow engine on the in-memory store, with helpers to start runs and wait for them.
//!
//! Time is the runtime's: a test that pauses it advances it by waiting. Helpers that wait for a run
//! check again after each commit; they never poll on a timer.

use super::bus::BroadcastBus;
use super::engine::{NullNotifier, World};
use super::full_permit;
use super::timeout::within;
use super::workflow_builder::Air;
use crate::memory::MemoryRecords;
use chimera_core::access::Level;
use chimera_core::access::tables::{TENANTS, tenants};
use chimera_core::flow::policy::Policy;
use chimera_core::flow::tables::{NotificationRow, steps};
use chimera_core::flow::work::{Jobs, NoJobs};
use chimera_core::job::executions::ExecutionLog;
use chimera_core::json::Digest32;
use chimera_core::limits;
use chimera_core::record::{Insert, Row, StoredRow, Table, Tx};
use chimera_core::secret::Secret;
use chimera_engine::EngineError;
use chimera_engine::access::Permit;
use chimera_engine::access::port::{OneTenant, Tenancy};
use chimera_engine::act::rules::Rules;
use chimera_engine::flow::call_slots::CallLimits;
use chimera_engine::flow::port::{Notifier, Tool, ToolSource};
use chimera_engine::flow::{
    self, Asking, Decide, Decision, DecisionResult, Flow, FlowPorts, LinkSeal, ProcessLog, RunLimits, StartRun,
    reload_tools,
};
use chimera_engine::port::{NoSpans, Records, Spans};
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use uuid::Uuid;

/// How often a node renews its leases.
const RENEW_EVERY: Duration = Duration::from_secs(4);

/// The tenant that tests act for unless they say otherwise.
pub const TENANT: &str = "acme";

/// The key that encrypts secrets in the stores of tests.
pub const SEAL: [u8; 32] = [3; 32];

/// The default approval settings.
#[must_use]
pub fn asking() -> Asking {
    Asking { seal: LinkSeal::new(Secret::new(SEAL)), ..Asking::default() }
}

/// The decrypted approval link in a stored message.
#[must_use]
pub fn approval_link(message: &Row) -> Option<String> {
    let message = NotificationRow::peek(message).expect("a message that can be read");
    let payload = asking().seal.open(message.id, message.payload.value().expect("a payload")).ok()?;
    payload["data"]["link"].as_str().map(str::to_owned)
}

/// Builds a [`EngineFixture`]. Each method returns the changed builder.
pub struct EngineSetup {
    world: World,
    tools: Vec<Arc<dyn Tool>>,
    source: Option<Arc<dyn ToolSource>>,
    policy: Arc<dyn Policy>,
    notifier: Arc<dyn Notifier>,
    spans: Arc<dyn Spans>,
    jobs: Arc<dyn Jobs>,
    asking: Asking,
    tenancy: Arc<dyn Tenancy>,
    slots: CallLimits,
    places: RunLimits,
    keeps: bool,
    alone: bool,
}

/// An engine and its in-memory store.
pub struct EngineFixture {
    pub world: World,
    pub records: Arc<MemoryRecords>,
    pub flow: Flow,
}

/// A setup with scripted tools, no policy rules and default limits.
#[must_use]
pub fn stage(seed: u64) -> EngineSetup {
    EngineSetup {
        world: World::new(seed),
        tools: Vec::new(),
        source: None,
        policy: Arc::new(Rules::default()),
        notifier: Arc::new(NullNotifier),
        spans: Arc::new(NoSpans),
        jobs: Arc::new(NoJobs),
        asking: asking(),
        tenancy: Arc::new(OneTenant),
        slots: CallLimits::default(),
        places: RunLimits::default(),
        keeps: true,
        alone: true,
    }
}

impl EngineSetup {
    #[must_use]
    pub fn tenancy(mut self, tenancy: Arc<dyn Tenancy>) -> Self {
        self.tenancy = tenancy;
        self
    }

    #[must_use]
    pub fn world(mut self, world: World) -> Self {
        self.world = world;
        self
    }

    #[must_use]
    pub fn tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// Tools that [`TENANT`] and other tenants declare.
    #[must_use]
    pub fn declared_by(mut self, source: Arc<dyn ToolSource>) -> Self {
        self.source = Some(source);
        self
    }

    #[must_use]
    pub fn policy(mut self, policy: impl Policy + 'static) -> Self {
        self.policy = Arc::new(policy);
        self
    }

    #[must_use]
    pub fn notifier(mut self, notifier: Arc<dyn Notifier>) -> Self {
        self.notifier = notifier;
        self
    }

    #[must_use]
    pub fn spans(mut self, spans: Arc<dyn Spans>) -> Self {
        self.spans = spans;
        self
    }

    #[must_use]
    pub fn jobs(mut self, jobs: Arc<dyn Jobs>) -> Self {
        self.jobs = jobs;
        self
    }

    #[must_use]
    pub fn asking(mut self, asking: Asking) -> Self {
        self.asking = asking;
        self
    }

    #[must_use]
    pub fn call_limits(mut self, slots: CallLimits) -> Self {
        self.slots = slots;
        self
    }

    /// Limits the number of active runs, in total and per tenant.
    #[must_use]
    pub fn runs_max(self, runs_max: usize) -> Self {
        self.run_limits(RunLimits { total: runs_max, per_tenant: runs_max, ..RunLimits::default() })
    }

    #[must_use]
    pub fn run_limits(mut self, places: RunLimits) -> Self {
        self.places = places;
        self
    }

    /// Does not start the keeper, which picks up runs without an owner.
    #[must_use]
    pub fn unkept(mut self) -> Self {
        self.keeps = false;
        self
    }

    /// Other nodes write to the same store.
    #[must_use]
    pub fn shared(mut self) -> Self {
        self.alone = false;
        self
    }

    /// Opens on an empty store.
    pub async fn open(self) -> EngineFixture {
        self.open_on(Arc::new(MemoryRecords::new())).await
    }

    /// Opens on an existing store, like a process that restarts.
    pub async fn open_on(self, records: Arc<MemoryRecords>) -> EngineFixture {
        for tenant in [TENANT, "other"] {
            let row =
                vec![(tenants::id, tenant.into()), (tenants::slug, tenant.into()), (tenants::name, tenant.into())];
            let tx = Tx { inserts: vec![Insert::new(&TENANTS, row).expect("a tenant")], ..Tx::default() };
            // A conflict means that it exists.
            let _ = records.commit(tx).await;
        }
        let mut registry = self.world.registry();
        for tool in self.tools {
            registry.add(tool).expect("a name of its own");
        }
        let mut registry = registry.shared_by(self.tenancy);
        if let Some(source) = self.source {
            registry = registry.declared_by(source, TENANT);
        }
        let parts = FlowPorts {
            call_log: Arc::new(ProcessLog),
            records: Arc::clone(&records) as Arc<dyn Records>,
            clock: Arc::clone(&self.world.clock),
            random: Arc::clone(&self.world.random) as _,
            bus: Arc::new(BroadcastBus::default()),
            notifier: self.notifier,
            spans: self.spans,
            jobs: self.jobs,
            asking: self.asking,
            registry: Arc::new(registry),
            projection: Arc::new(ExecutionLog),
            policy: self.policy,
            slots: self.slots,
            alone: self.alone,
        };
        let flow = Flow::bounded(parts, self.places);
        reload_tools(&flow).await.expect("the store records the declared tools");
        if self.keeps {
            let keeper = flow.clone();
            tokio::spawn(async move { flow::run_keeper(&keeper).await });
        }
        EngineFixture { world: self.world, records, flow }
    }
}

/// A read model as JSON, to compare its members.
#[must_use]
pub fn shown(model: impl Serialize) -> Value {
    serde_json::to_value(model).expect("a read model is JSON")
}

impl EngineFixture {
    /// Stops this engine and opens another on the same store.
    pub async fn restart(&self, setup: EngineSetup) -> EngineFixture {
        self.flow.stop();
        setup.world(self.world.clone()).open_on(Arc::clone(&self.records)).await
    }

    /// Renews the leases of this node until the task is aborted.
    #[must_use]
    pub fn renew(&self) -> JoinHandle<()> {
        let records = Arc::clone(&self.records);
        tokio::spawn(async move {
            loop {
                records.renew();
                tokio::time::sleep(RENEW_EVERY).await;
            }
        })
    }

    /// A permit for everything in a tenant.
    #[must_use]
    pub fn permit_of(&self, tenant: &str, actor: &str) -> Permit {
        full_permit(tenant, actor)
    }

    /// A permit for everything in [`TENANT`].
    #[must_use]
    pub fn permit(&self, actor: &str) -> Permit {
        self.permit_of(TENANT, actor)
    }

    /// Applies a workflow as `user_ann`. Returns its version.
    pub async fn apply(&self, air: &Air) -> i64 {
        self.apply_as("user_ann", air).await
    }

    pub async fn apply_as(&self, who: &str, air: &Air) -> i64 {
        let text = air.document().to_string();
        let applied = self.flow.workflows().apply(&self.permit(who), &air.id(), &text).await;
        applied.unwrap_or_else(|error| panic!("{}: {}", error, json!(error.body()))).version
    }

    /// Starts a run as `user_ann`.
    pub async fn start(&self, ask: StartRun) -> Uuid {
        let started = flow::start(&self.flow, &self.permit("user_ann"), ask).await;
        started.unwrap_or_else(|error| panic!("{}", json!(error.body()))).run_id
    }

    /// Applies a workflow and starts a run of it.
    pub async fn run(&self, air: &Air, level: Level) -> Uuid {
        self.run_with(air, level, json!({})).await
    }

    pub async fn run_with(&self, air: &Air, level: Level, inputs: Value) -> Uuid {
        self.apply(air).await;
        self.start(StartRun { level, ..StartRun::of(air.id(), inputs) }).await
    }

    pub async fn show(&self, run: Uuid) -> Value {
        shown(flow::show_run(&self.flow, &self.permit("admin"), run).await.expect("the run"))
    }

    /// Waits until the run satisfies a condition.
    pub async fn until(&self, run: Uuid, wanted: impl Fn(&Value) -> bool) -> Value {
        self.wait_for_in(TENANT, run, wanted).await
    }

    pub async fn wait_for_in(&self, tenant: &str, run: Uuid, wanted: impl Fn(&Value) -> bool) -> Value {
        let (mut commits, admin) = (self.records.commits(), self.permit_of(tenant, "admin"));
        let waiting = async {
            loop {
                commits.borrow_and_update();
                let shown = shown(flow::show_run(&self.flow, &admin, run).await.expect("the run"));
                if wanted(&shown) {
                    return shown;
                }
                commits.changed().await.expect("the store is open");
            }
        };
        match within(waiting).await {
            Some(shown) => shown,
            None => panic!("timed out; the steps are {:#}", self.steps(run).await),
        }
    }

    /// Waits until the run has this status.
    pub async fn status(&self, run: Uuid, status: &str) -> Value {
        self.until(run, |shown| shown["status"] == status).await
    }

    /// Waits until the run has ended.
    pub async fn ended(&self, run: Uuid) -> Value {
        let ends = ["completed", "failed", "cancelled", "rolled_back"];
        self.until(run, |shown| ends.iter().any(|end| shown["status"] == *end)).await
    }

    /// Waits until a node of the run has this status. Returns the step.
    pub async fn step(&self, run: Uuid, node: &str, status: &str) -> Value {
        let mut commits = self.records.commits();
        let waiting = async {
            loop {
                commits.borrow_and_update();
                let steps = self.steps(run).await;
                let found = steps.as_array().expect("steps").iter().find(|step| step["node_id"] == node);
                if let Some(step) = found.filter(|step| step["status"] == status) {
                    return step.clone();
                }
                commits.changed().await.expect("the store is open");
            }
        };
        match within(waiting).await {
            Some(step) => step,
            None => panic!("timed out waiting for {node} to be {status}; the steps are {:#}", self.steps(run).await),
        }
    }

    /// The current steps, all pages.
    pub async fn steps(&self, run: Uuid) -> Value {
        let (admin, mut steps, mut cursor) = (self.permit("admin"), Vec::new(), None::<String>);
        loop {
            let page = flow::list_steps(&self.flow, &admin, run, limits::PAGE_ROWS_MAX, cursor.as_deref()).await;
            let page = page.expect("the steps");
            steps.extend(page.steps.into_iter().map(shown));
            match page.next_cursor {
                Some(next) => cursor = Some(next),
                None => return Value::from(steps),
            }
        }
    }

    /// The statuses of the steps, in order: `a=completed b=skipped`.
    pub async fn step_statuses(&self, run: Uuid) -> String {
        let steps = self.steps(run).await;
        let words = steps.as_array().expect("steps").iter().map(|step| {
            let item = step["map_index"].as_i64().map(|item| format!("[{item}]")).unwrap_or_default();
            let text = |member: &str| step[member].as_str().unwrap_or_default().to_owned();
            format!("{}{item}={}", text("node_id"), text("status"))
        });
        words.collect::<Vec<_>>().join(" ")
    }

    /// The types of the run's events, in order.
    pub async fn events(&self, run: Uuid) -> Vec<String> {
        let events = flow::events(&self.flow, &self.permit("admin"), run, 0, 1_000).await.expect("events");
        events.into_iter().map(|event| event.event_type).collect()
    }

    /// Waits until an approval is pending. Returns the approval requests.
    pub async fn asks(&self, run: Uuid) -> Vec<Value> {
        let asked = |shown: &Value| {
            shown["status"] == "awaiting_approval"
                && shown["approvals"].as_array().is_some_and(|asked| !asked.is_empty())
        };
        self.until(run, asked).await["approvals"].as_array().expect("approvals").clone()
    }

    /// Decides an approval request. `asked` supplies the digest.
    pub async fn decide(
        &self,
        who: &str,
        run: Uuid,
        decision: Decision,
        asked: Option<&Value>,
    ) -> Result<DecisionResult, EngineError> {
        let digest = asked.and_then(|asked| asked["digest"].as_str());
        let digest = digest.map(|digest| Digest32::from_hex(digest).expect("a digest"));
        let ask = Decide { run, decision, approval: None, step: None, digest, reason: None };
        flow::decide(&self.flow, &self.permit(who), ask).await
    }

    /// Waits until an approval is pending and approves it. Returns the approval request.
    pub async fn approve(&self, who: &str, run: Uuid) -> Value {
        let asked = self.asks(run).await.remove(0);
        self.decide(who, run, Decision::Approve, Some(&asked)).await.expect("an approval");
        asked
    }

    /// Lets time pass.
    pub async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    #[must_use]
    pub fn rows(&self, table: &'static Table) -> Vec<Row> {
        self.records.rows(table)
    }

    /// The rows of a table that belong to a run.
    #[must_use]
    pub fn rows_of(&self, table: &'static Table, run: Uuid) -> Vec<Row> {
        self.rows(table).into_iter().filter(|row| row.get(steps::run_id).as_uuid() == Some(run)).collect()
    }
}

/// Parses the id in a JSON value.
#[must_use]
pub fn id_of(value: &Value) -> Uuid {
    value.as_str().and_then(|text| Uuid::parse_str(text).ok()).expect("an id")
}

/// The error code of a result, or `none`.
#[must_use]
pub fn code_of<T>(result: Result<T, EngineError>) -> String {
    match result {
        Ok(_) => "none".to_owned(),
        Err(error) => error.body().code.as_str().to_owned(),
    }
}
