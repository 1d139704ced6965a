//! A run of a workflow: a state machine that takes events and returns turns.
//!
//! A run has one owner, and at most one of its turns is being committed. The state in memory is ahead
//! of the store by that turn. If the commit fails, the run is discarded and loaded again. Effects are
//! performed only after their turn is durable, so nothing has happened too early (pure calls of a first turn
//! run before it is committed).
//! Rows are derived from the state at the end of a turn; `load` rebuilds a run from them.
//!
//! The state is divided among small machines, each with private fields in a file or folder of its own. The other
//! modules are what happens in a turn: each is a set of functions over the run, and `step` calls them in order.

mod answer;
mod approval_rows;
mod approvals;
mod approve;
mod approvers;
mod budget;
mod children;
mod close;
mod consult;
mod create;
mod demands;
mod doubts;
mod drafting;
mod elsewhere;
mod end;
pub mod env;
pub mod event;
mod head;
mod judge;
mod load;
mod map_calls;
mod maps;
mod merge;
mod patches;
mod policy_verdict;
mod projecting;
mod refused_turn;
mod renew;
mod replay;
mod requesters;
mod restore;
pub mod retry;
mod rollback;
mod row;
mod scope;
mod signals;
mod start;
pub mod status;
mod step;
mod stop;
mod stopping;
mod tasks;
mod turn_builder;
mod waits;

pub use crate::flow::approval::{ApprovalRequirement, Obligation, SamePerson};
pub use approval_rows::{ApprovalRequested, INBOX, OutboxMessage, inbox_row, outbox_row};
pub use budget::check_output;
pub use close::affinity;
pub use create::NewRun;
pub use doubts::UnknownOutcome;
pub use env::{Env, Gate, KnownWindows, SlotRequest};
pub use event::{
    AfterRefusal, Call, CallMode, Effect, Event, EventQuery, GovernanceDecision, LedgerNote, ReceivedAnswer, RunPlace,
    Signal, SignalKind, Turn,
};
pub use head::{Replay, ReplayMode, RunHead, Source, WorkflowRef};
pub use load::{RunRecording, StepRecording, StoredPatch, StoredRun, with_descendants};
pub use map_calls::too_many_with_patch;
pub use patches::apply::PatchPreview;
pub use patches::pins::request_of_row;
pub use restore::UncertainStep;
pub use status::{EffectStatus, RunStatus, StepStatus};
pub use stopping::{may_change_pause, paused_by};
pub use tasks::edges::IncomingEdges;
pub use tasks::in_flight::CallsInFlight;
pub use tasks::trace::StepTrace;

use crate::error::ErrorBody;
use crate::flow::air::{DocumentProblem, Graph};
use crate::flow::call::CallOutcome;
use crate::flow::patch::Patch;
use crate::flow::policy::PolicyVerdict;
use crate::record::{DamagedRows, Unstorable};
use crate::time::Timestamp;
use crate::tool::EffectKind;
use approvals::Approvals;
use budget::RunBudget;
use children::ChildRuns;
use doubts::Doubts;
use drafting::Drafting;
use patches::Patches;
use rollback::Rollbacks;
use row::WrittenRow;
use serde_json::Value;
use start::Work;
use std::sync::Arc;
use stopping::Stopping;
use tasks::Tasks;
use tasks::task::Task;
use uuid::Uuid;

/// The in-memory state of a run: small machines, each of which owns its state.
pub struct Run {
    head: Arc<RunHead>,
    status: RunStatus,
    /// Shared with whoever waits for the run.
    result: Option<Arc<Value>>,
    completed_at: Option<Timestamp>,
    row: WrittenRow,
    tasks: Tasks,
    doubts: Doubts,
    children: ChildRuns,
    approvals: Approvals,
    drafting: Drafting,
    patches: Patches,
    rollback: Rollbacks,
    stopping: Stopping,
    budget: RunBudget,
    /// The outputs of the replayed run, by node and item.
    recorded: Option<RunRecording>,
}

/// The lane that a run's owner writes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneOwner {
    pub lane: i64,
    pub epoch: i64,
}

impl Run {
    /// A run that is not stored yet. Its first turn writes it.
    #[must_use]
    pub fn new(head: RunHead, graph: Arc<Graph>, recorded: Option<RunRecording>) -> Self {
        Self {
            status: RunStatus::Pending,
            result: None,
            completed_at: None,
            row: WrittenRow::none(&head),
            tasks: Tasks::new(graph),
            doubts: Doubts::default(),
            children: ChildRuns::default(),
            approvals: Approvals::none(),
            drafting: Drafting::default(),
            patches: Patches::default(),
            rollback: Rollbacks::default(),
            stopping: Stopping::default(),
            budget: RunBudget::new(),
            recorded,
            head: Arc::new(head),
        }
    }

    /// Creates the run and makes its first turn. Pure calls need no record before they are made, so
    /// `at_once` may make the first ones now, and their results are written together with the run. A call
    /// that it returns no answer for is made after the commit like any other.
    pub fn create(
        new: NewRun,
        env: &mut Env<'_>,
        at_once: &mut dyn FnMut(&Self, &Call) -> Option<CallOutcome>,
    ) -> Result<(Self, Turn), Unstorable> {
        let NewRun { head, graph, recorded, facts } = new;
        let mut run = Self::new(head, graph, recorded);
        let turn = create::first_turn(&mut run, facts, env, at_once)?;
        Ok((run, turn))
    }

    /// Loads a run. Send it `Claimed` next.
    pub fn load(stored: StoredRun) -> Result<Self, DamagedRows> {
        load::load(stored)
    }

    /// Applies the events and returns the turn to commit.
    pub fn step(&mut self, events: Vec<Event>, env: &mut Env<'_>) -> Result<Turn, Unstorable> {
        step::step(self, events, env)
    }

    #[must_use]
    pub const fn head(&self) -> &Arc<RunHead> {
        &self.head
    }

    #[must_use]
    pub const fn status(&self) -> RunStatus {
        self.status
    }

    /// The version of its row after the last turn.
    #[must_use]
    pub const fn version(&self) -> i64 {
        self.row.version()
    }

    /// The owner, once the last turn is committed.
    #[must_use]
    pub const fn owner(&self) -> Option<LaneOwner> {
        self.row.owner()
    }

    /// When its state was restored from a backup.
    #[must_use]
    pub const fn restored_at(&self) -> Option<Timestamp> {
        self.row.restored_at()
    }

    /// All turns of a run go through the same lane.
    #[must_use]
    pub fn affinity(&self) -> u64 {
        affinity(self.head.id)
    }

    /// The result, once it is completed.
    #[must_use]
    pub const fn result(&self) -> Option<&Arc<Value>> {
        self.result.as_ref()
    }

    /// The error, once it has failed.
    #[must_use]
    pub fn failure(&self) -> Option<&ErrorBody> {
        self.stopping.failure()
    }

    #[must_use]
    pub const fn completed_at(&self) -> Option<Timestamp> {
        self.completed_at
    }

    /// The graph, with all applied patches.
    #[must_use]
    pub const fn graph(&self) -> &Arc<Graph> {
        self.tasks.graph()
    }

    /// The state of every node's incoming edges, in graph order.
    #[must_use]
    pub fn decided_edges(&self) -> Vec<IncomingEdges> {
        self.tasks.decided_edges()
    }

    /// When it needs a `Tick` at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        if self.status.is_final() && !self.rollback.is_under_way() {
            return None;
        }
        let end = self.head.timeout_at.filter(|_| !self.status.is_final() && !self.stopping.is_stopping());
        let patch = self.patches.deadline().filter(|_| !self.status.is_final());
        let deadlines = [self.next_timer(), self.drafting.deadline(), end, self.rollback.retry_at(), patch];
        deadlines.into_iter().flatten().min()
    }

    /// When the next timer of a step is due.
    #[must_use]
    pub fn next_timer(&self) -> Option<Timestamp> {
        self.tasks.next_timer()
    }

    /// Whether a place is ready and only needs a slot.
    #[must_use]
    pub fn wants_slot(&self) -> bool {
        (self.tasks.has_ready() && start::may_start(self)) || self.rollback.wants_slot()
    }

    /// The priority of the calls of a place: that of its node, or of the run.
    pub(crate) fn priority_at(&self, at: RunPlace) -> i32 {
        let node = self.tasks.graph().nodes.get(at.node).and_then(|compiled| compiled.node.priority);
        node.unwrap_or(self.head.priority)
    }

    /// Whether calls are in flight.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.tasks.calls().is_empty()
    }

    /// Whether a call or a cache lookup is in flight at a place.
    #[must_use]
    pub fn is_busy_at(&self, at: RunPlace) -> bool {
        self.tasks.calls().contains(&at)
    }

    /// The places with a call or lookup in flight.
    #[must_use]
    pub fn places_in_flight(&self) -> Vec<RunPlace> {
        self.tasks.calls().iter().copied().collect()
    }

    /// Its calls that are recorded as dispatched. `None` if there are others too, of a draft or a rollback.
    #[must_use]
    pub fn calls_in_flight(&self) -> Option<CallsInFlight> {
        CallsInFlight::of(&self.tasks, self.row.version())
    }

    /// Waits for calls that were in flight before it was loaded. False: the run was written meanwhile, and they no
    /// longer belong to it.
    pub fn adopt_calls(&mut self, before: CallsInFlight) -> bool {
        before.adopt(&mut self.tasks, self.row.version())
    }

    /// Whether an earlier send of the call in flight at a place may have taken effect.
    #[must_use]
    pub fn is_in_doubt(&self, at: RunPlace) -> bool {
        let call = || self.tasks.task(at).is_some_and(Task::is_in_doubt);
        self.rollback.is_in_doubt(at).unwrap_or_else(call)
    }

    /// What rules, level and people say at this moment about the call of a step. `None`: the step makes none.
    #[must_use]
    pub fn verdict_of_step(&self, step: Uuid, env: &Env<'_>) -> Option<PolicyVerdict> {
        let at = self.tasks.place_of_step(step)?;
        match start::work(self, at) {
            start::Work::Tool(spec) => Some(policy_verdict::evaluate(self, at, &spec, env)),
            _ => None,
        }
    }

    /// Whether the tool of a place has no external effect.
    #[must_use]
    pub fn is_pure_at(&self, at: RunPlace) -> bool {
        matches!(start::work(self, at), Work::Tool(spec) if spec.effect == EffectKind::Pure)
    }

    /// The approximate memory of its values.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.budget.memory_bytes().saturating_add(self.drafting.memory())
    }

    /// Whether its next turn may use much CPU time.
    #[must_use]
    pub fn may_take_long(&self) -> bool {
        self.tasks.graph().may_take_long || self.budget.is_spent() || self.tasks.has_judging()
    }

    /// The number of unsupervised calls known so far, including those reserved for child runs.
    #[must_use]
    pub fn calls_reserved(&self) -> usize {
        map_calls::calls_reserved(self)
    }

    /// Everything that may have been done after the backup.
    #[must_use]
    pub fn uncertain_steps(&self) -> Vec<UncertainStep> {
        restore::uncertain_steps(self)
    }

    /// Previews a patch without proposing it.
    pub fn preview_patch(&self, patch: &Patch, env: &Env<'_>) -> Result<PatchPreview, Vec<DocumentProblem>> {
        patches::apply::preview(self, patch, env)
    }

    /// Checks that the rules allow the patch's tool calls for the actor of the run and for the proposer, without
    /// more approval than the run needs. The inputs are evaluated again when they are known.
    pub fn check_patch_rules(&self, patch: &Patch, by: &str, env: &Env<'_>) -> Result<(), String> {
        patches::apply::check_rules(self, patch, by, env)
    }

    #[must_use]
    pub fn step_trace(&self, step: Uuid) -> Option<StepTrace<'_>> {
        StepTrace::at(&self.tasks, self.tasks.place_of_step(step)?)
    }

    /// The step that failed the run, if a step did.
    #[must_use]
    pub fn failed_step(&self) -> Option<StepTrace<'_>> {
        let node = self.failure()?.details.get("node")?.as_str()?;
        StepTrace::at(&self.tasks, RunPlace::node(self.tasks.graph().position(node)?))
    }

    /// Steps that were started and then cancelled with the run. The ledger has no entries for them.
    pub fn stopped_steps(&self) -> impl Iterator<Item = StepTrace<'_>> {
        let stopped = |traced: &StepTrace<'_>| traced.status == StepStatus::Cancelled;
        self.tasks.places().filter_map(|at| StepTrace::at(&self.tasks, at)).filter(stopped)
    }
}
