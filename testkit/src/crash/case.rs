//! Runs one case to its end, with as many engines as it takes.

use super::final_state::FinalState;
use super::late_lane::LateLaneRecords;
use super::{Store, UNCERTAIN_TOOL, workflow};
use crate::flow::{BroadcastBus, NullNotifier, World};
use crate::simulate::port_switch::{CrashPoint, LinkState, PortSwitch, SwitchedRecords, SwitchedTool};
use chimera_core::access::Level;
use chimera_core::error::Code;
use chimera_core::flow::run::{RunStatus, StepStatus};
use chimera_core::flow::status::RequestStatus;
use chimera_core::flow::tables::{EVENT_WAITS, event_waits};
use chimera_core::flow::tables::{RUN_SIGNALS, RUNS, SCOPED_APPROVALS, STEPS, runs, scoped_approvals, steps};
use chimera_core::flow::work::NoJobs;
use chimera_core::job::executions::ExecutionLog;
use chimera_core::record::{Comparison, Scope, Select};
use chimera_core::secret::Secret;
use chimera_engine::EngineError;
use chimera_engine::flow::call_slots::CallLimits;
use chimera_engine::flow::view::StepView;
use chimera_engine::flow::{
    self, Asking, Decide, Decision, Flow, FlowPorts, OutcomeReport, ProcessLog, PublishEvent, RunFilter, RunKey,
    StartRun, ToolRegistry,
};
use chimera_engine::port::{NoSpans, Records};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use uuid::Uuid;

/// The idempotency key of the run; the client repeats the request after every crash.
const KEY: &str = "the only one";

/// The autonomy level of a run, and when its engines crash.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub level: Level,
    /// When the first engine crashes; never if `None`.
    pub crash_at: Option<CrashPoint>,
    /// When the engine that takes over crashes.
    pub then: Option<CrashPoint>,
}

pub async fn run_case(store: &dyn Store, case: Case) -> FinalState {
    let world = World::new(7).with(workflow::script);
    let mut person = RunClient { world: &world, level: case.level, doubts: BTreeSet::new() };
    let mut crashes = 0;
    loop {
        let mut records = store.open().await;
        world.create_tenant(&*records).await;
        if crashes > 0 {
            records = Arc::new(LateLaneRecords::new(records));
        }
        let wire = Arc::new(PortSwitch::cut_at([case.crash_at, case.then].get(crashes).copied().flatten()));
        let flow = engine(&world, &records, &wire);
        let keeper = flow.clone();
        let keeper = tokio::spawn(async move { flow::run_keeper(&keeper).await });
        let done = tokio::select! {
            biased;
            () = wire.wait_until_cut() => false,
            () = async {
                person.drive_to_rollback(&flow, &*records, &wire).await;
                wait_until_idle(&*records, &wire).await;
            } => true,
        };
        wire.set(LinkState::Cut);
        keeper.abort();
        flow.stop();
        if done {
            let mut end = FinalState::read(&*records, &world.outside).await;
            records.close().await;
            (end.commits, end.sends) = wire.counted();
            (end.doubts, end.crashes) = (person.doubts, crashes);
            return end;
        }
        records.close().await;
        crashes += 1;
    }
}

async fn finds(records: &dyn Records, select: Select) -> bool {
    let select = select.take(1);
    !records.read(select).await.expect("a store that answers").rows.is_empty()
}

/// Waits until every signal is consumed and no run has an owner. A run that has ended may still get a signal from a
/// child that was taken over.
async fn wait_until_idle(records: &dyn Records, wire: &PortSwitch) {
    let mut moves = wire.subscribe();
    loop {
        moves.borrow_and_update();
        let told = records.read(Select::from(&RUN_SIGNALS, Scope::System).take(1)).await.expect("a store that answers");
        let driven = Select::from(&RUNS, Scope::System)
            .filter(runs::owner_lane, Comparison::IsNot, chimera_core::record::Value::Null)
            .take(1);
        let driven = records.read(driven).await.expect("a store that answers");
        if told.rows.is_empty() && driven.rows.is_empty() {
            return;
        }
        let _ = moves.changed().await;
    }
}

fn engine(world: &World, records: &Arc<dyn Records>, wire: &Arc<PortSwitch>) -> Flow {
    let (tools, mut registry) = (world.registry(), ToolRegistry::default());
    for tool in tools.specs().into_iter().filter_map(|spec| tools.get("", &spec.name)) {
        registry.add(Arc::new(SwitchedTool::new(tool, Arc::clone(wire)))).expect("a name of its own");
    }
    Flow::new(FlowPorts {
        call_log: Arc::new(ProcessLog),
        records: Arc::new(SwitchedRecords::new(Arc::clone(records), Arc::clone(wire))),
        clock: Arc::clone(&world.clock),
        random: Arc::clone(&world.random) as _,
        bus: Arc::new(BroadcastBus::default()),
        notifier: Arc::new(NullNotifier),
        spans: Arc::new(NoSpans),
        jobs: Arc::new(NoJobs),
        asking: Asking::default(),
        registry: Arc::new(registry),
        projection: Arc::new(ExecutionLog),
        policy: Arc::new(workflow::limits()),
        slots: CallLimits::default(),
        alone: true,
    })
}

/// A client that wants the run completed and then rolled back, and repeats its requests after every crash.
struct RunClient<'a> {
    world: &'a World,
    level: Level,
    doubts: BTreeSet<String>,
}

impl RunClient<'_> {
    async fn drive_to_rollback(&mut self, flow: &Flow, records: &dyn Records, wire: &PortSwitch) {
        let run = self.begin(flow).await;
        let mut moves = wire.subscribe();
        let pending = Select::from(&SCOPED_APPROVALS, Scope::System);
        let pending = pending.with(scoped_approvals::status, RequestStatus::Pending);
        let unknown = Select::from(&STEPS, Scope::System).with(steps::status, StepStatus::OutcomeUnknown);
        loop {
            moves.borrow_and_update();
            let mut asked = false;
            if finds(records, Select::from(&EVENT_WAITS, Scope::System).with(event_waits::event_key, "later")).await {
                self.tell(flow, "later").await;
            }
            // This runs after every commit, so it checks the rows before it loads whole documents.
            if finds(records, pending.clone()).await || finds(records, unknown.clone()).await {
                for id in self.runs(flow).await {
                    asked |= self.answer(flow, id).await;
                }
            }
            let shown = flow::show_run(flow, &self.world.actor("admin"), run).await.expect("a run that is there");
            match shown.summary.status {
                RunStatus::RolledBack => return,
                RunStatus::Completed if shown.rollback.is_none() => {
                    let told = flow::rollback(flow, &self.world.actor("user_ann"), run, None, None).await;
                    match told {
                        Ok(()) => {}
                        // Already requested; the run has not processed the signal yet.
                        Err(EngineError::Refused(body)) if body.code == Code::InvalidTransition.as_str() => {}
                        Err(error) => panic!("cannot roll back the run: {error:?}"),
                    }
                }
                RunStatus::Failed | RunStatus::Cancelled => panic!("the run ended with another status: {shown:#?}"),
                _ => {}
            }
            if !asked {
                let _ = moves.changed().await;
            }
        }
    }

    /// Publishes an event. A repetition counts once.
    async fn tell(&self, flow: &Flow, key: &str) {
        let event = PublishEvent {
            name: "told".to_owned(),
            key: key.to_owned(),
            payload: json!({"key": key}),
            event_id: Some(format!("the only one {key}")),
            ttl_seconds: None,
        };
        flow::publish_event(flow, &self.world.actor("agent_bell"), event).await.expect("an event that counts");
    }

    async fn begin(&self, flow: &Flow) -> Uuid {
        self.tell(flow, "before").await;
        let (admin, ann) = (self.world.actor("admin"), self.world.actor("user_ann"));
        for document in [workflow::child_workflow(), workflow::parent_workflow()] {
            let id = document["workflow_id"].as_str().unwrap_or_default().to_owned();
            flow.workflows().apply(&admin, &id, &document.to_string()).await.expect("a workflow that can be applied");
        }
        let ask = StartRun {
            level: self.level,
            idempotency_key: RunKey::new(&Secret::new("the seal"), &ann, KEY).ok(),
            ..StartRun::of("whole", json!({"list": [1, 2, 3]}))
        };
        match flow::start(flow, &ann, ask).await {
            Ok(started) => started.run_id,
            Err(EngineError::KeyUsed(run)) => run.id,
            Err(error) => panic!("cannot start the run: {error:?}"),
        }
    }

    async fn runs(&self, flow: &Flow) -> Vec<Uuid> {
        let filter = RunFilter { limit: 100, ..RunFilter::default() };
        let listed = flow::list_runs(flow, &self.world.actor("admin"), filter).await.expect("a list");
        listed.items.into_iter().map(|run| run.run_id).collect()
    }

    /// Approves pending requests and reports unknown outcomes. Returns whether an approval was pending.
    async fn answer(&mut self, flow: &Flow, run: Uuid) -> bool {
        let ann = self.world.actor("user_ann");
        let shown = flow::show_run(flow, &ann, run).await.expect("a run that is there");
        for approval in &shown.approvals {
            let decide = Decide {
                run,
                decision: Decision::Approve,
                approval: Some(approval.approval_id),
                step: None,
                digest: None,
                reason: None,
            };
            flow::decide(flow, &ann, decide).await.expect("a decision that counts");
        }
        let steps =
            flow::list_steps(flow, &ann, run, chimera_core::limits::PAGE_ROWS_MAX, None).await.expect("steps").steps;
        for step in steps.iter().filter(|step| step.status == StepStatus::OutcomeUnknown) {
            self.settle(flow, run, step).await;
        }
        !shown.approvals.is_empty()
    }

    async fn settle(&mut self, flow: &Flow, run: Uuid, step: &StepView) {
        let Some(call) = step.tool_calls.iter().find(|call| !call.dry_run) else { return };
        self.doubts.insert(call.tool_name.clone());
        if call.tool_name != UNCERTAIN_TOOL {
            return;
        }
        let output = self.world.outside.find(&call.tool_name, call.idempotency_key.as_deref().unwrap_or_default());
        let happened = output.is_some();
        let step = step.step_id.expect("a step that has started");
        let found = OutcomeReport { step, attempt: None, happened, output, notes: None };
        // Possibly already reported; the run has not processed the signal yet.
        let _ = flow::report_outcome(flow, &self.world.actor("user_ann"), run, found).await;
    }
}
