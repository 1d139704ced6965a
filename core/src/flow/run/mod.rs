//! A run of a workflow: a state machine that takes events and returns turns.
//!
//! A run has one owner, and at most one of its turns is being committed. The state in memory is ahead
//! of the store by that turn. If the commit fails, the run is discarded and loaded again. Effects are
//! performed only after their turn is durable, so nothing has happened too early (pure calls of a first turn
//! run before it is committed).
//! Rows are derived from the state at the end of a turn; `load` rebuilds a run from them.

mod answer;
mod approval_rows;
mod approve;
mod approvers;
mod cancel;
mod close;
mod create;
mod draft;
mod draft_scope;
mod edges;
mod end;
pub mod env;
pub mod event;
mod in_flight;
mod judge;
mod load;
mod load_undo;
mod map_calls;
mod merge;
mod nest;
mod patch;
mod pins;
mod plan;
mod refused_turn;
mod renew;
mod replay;
mod requesters;
mod restore;
pub mod retry;
mod scope;
mod signals;
mod start;
pub mod status;
mod step;
mod task;
mod trace;
mod turn_builder;
mod undo;
mod undo_children;
mod unknown_outcome;
mod value_size;

pub use approval_rows::{ApprovalRequested, INBOX, inbox_row, outbox_row};
pub use cancel::{may_change_pause, paused_by};
pub use close::affinity;
pub use create::{Replay, ReplayMode, RunHead, Source, WorkflowRef};
pub use edges::IncomingEdges;
pub use env::{Env, Gate, SlotRequest};
pub use event::{
    Call, CallMode, Effect, Event, GovernanceDecision, LedgerNote, ReceivedAnswer, RunPlace, Signal, SignalKind, Turn,
};
pub use in_flight::CallsInFlight;
pub use load::{RunRecording, StepRecording, StoredPatch, StoredRun, with_descendants};
pub use map_calls::too_many_with_patch;
pub use patch::PatchPreview;
pub use pins::request_of_row;
pub use restore::UncertainStep;
pub use status::{EffectStatus, RunStatus, StepStatus};
pub use trace::StepTrace;
pub use unknown_outcome::UnknownOutcome;

pub use crate::flow::approval::{ApprovalRequirement, SamePerson};

use crate::access::Actor;
use crate::error::ErrorBody;
use crate::flow::air::Graph;
use crate::flow::approval::ApprovalRequest;
use crate::flow::expr::WorkMeter;
use crate::time::Timestamp;
use draft::Draft;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use task::{Task, TaskState};
use undo::RollbackProgress;
use uuid::Uuid;

/// The in-memory state of a run.
pub struct Run {
    head: Arc<RunHead>,
    graph: Arc<Graph>,
    nodes: Vec<Task>,
    status: RunStatus,
    /// The version of its row. Zero until the row is first written.
    version: i64,
    run_seq: i64,
    /// The owner in its row. `None` while the run is parked.
    owner: Option<LaneOwner>,
    paused_by: Option<Actor>,
    cancelled_by: Option<(Actor, Option<String>)>,
    /// The first failure that the graph does not handle.
    failure: Option<Box<ErrorBody>>,
    /// The number of co-requesters in its row.
    co_requesters_stored: usize,
    /// Whether its row records a failure, and a cancellation.
    stop_reason_stored: (bool, bool),
    result: Option<Value>,
    completed_at: Option<Timestamp>,
    approvals: u32,
    /// The time of its newest approval request.
    last_request_at: Timestamp,
    patches: u32,
    /// The plan drafted at L1, pending or approved.
    plan: Option<plan::DraftedPlan>,
    /// Maps whose calls were approved in a request of their own.
    approved_maps: BTreeMap<usize, map_calls::ApprovedMapCalls>,
    /// Inputs that people edited in the plan. They replace those of the workflow.
    edits: BTreeMap<String, plan::PlanEdit>,
    /// The draft in progress.
    draft: Option<Draft>,
    /// The rollback in progress.
    undo: Option<RollbackProgress>,
    /// The number of rollbacks so far.
    rollbacks: u32,
    /// The number of recorded undos so far, in all rollbacks.
    undos: usize,
    /// When its state was restored from a backup. What it did between backup and restore is not known.
    restored_at: Option<Timestamp>,
    /// The outputs of the replayed run, by node and item.
    recorded: Option<RunRecording>,
    /// Places that are ready to start, in order.
    ready: VecDeque<RunPlace>,
    /// Root nodes that are not ready yet.
    pending_roots: VecDeque<usize>,
    /// Settled nodes whose outgoing edges are not decided yet.
    settled: VecDeque<edges::SettledNode>,
    /// Places with a timer.
    timers: BTreeSet<(Timestamp, RunPlace)>,
    /// Places with a call in flight.
    calls: BTreeSet<RunPlace>,
    /// The number of nodes that have not settled.
    open_nodes: usize,
    /// The number of places that await approval.
    approvals_pending: usize,
    /// Proposed and applied patches, by number.
    patches_by_number: BTreeMap<u32, patch::RunPatch>,
    /// Places by step id.
    places_by_step: BTreeMap<Uuid, RunPlace>,
    /// Child runs that were sent a cancel signal.
    stopped_children: BTreeSet<Uuid>,
    /// Places with a call of unknown outcome, and since when.
    unknown_outcomes: BTreeMap<RunPlace, Timestamp>,
    /// The oldest unknown outcome, as recorded in the row.
    in_doubt_since: Option<Timestamp>,
    /// Its next state could not be stored, twice. It can only end.
    can_only_end: bool,
    /// The expression work of this turn.
    meter: WorkMeter,
    /// The expression work of the previous turns since it was loaded.
    work_done: u64,
    /// The size of the inputs and outputs of its steps.
    value_size: value_size::ValueSize,
    /// Maps about to start: the next item to measure, and the size of the run with the items before it.
    map_measurements: BTreeMap<usize, (u32, value_size::ValueSize)>,
}

/// The lane that a run's owner writes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneOwner {
    pub lane: i64,
    pub epoch: i64,
}

impl Run {
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
        self.version
    }

    /// The result, once it is completed.
    #[must_use]
    pub const fn result(&self) -> Option<&Value> {
        self.result.as_ref()
    }

    /// The error, once it has failed.
    #[must_use]
    pub fn failure(&self) -> Option<&ErrorBody> {
        self.failure.as_deref()
    }

    /// The owner, once the last turn is committed.
    #[must_use]
    pub const fn owner(&self) -> Option<LaneOwner> {
        self.owner
    }

    /// Whether a place is ready and only needs a slot.
    #[must_use]
    pub fn wants_slot(&self) -> bool {
        (!self.ready.is_empty() && self.may_start()) || self.undo.as_ref().is_some_and(RollbackProgress::wants_slot)
    }

    /// The graph, with all applied patches.
    #[must_use]
    pub const fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    /// When it needs a `Tick` at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        if self.status.is_final() && self.undo.is_none() {
            return None;
        }
        let timer = self.next_timer();
        let plan = self.plan.as_ref().and_then(plan::DraftedPlan::deadline);
        let end = self.head.timeout_at.filter(|_| !self.status.is_final() && !self.is_stopping());
        let undo = self.undo.as_ref().and_then(|undo| undo.retry_at);
        let patch = self
            .patches_by_number
            .values()
            .filter_map(|overlay| overlay.asked.as_ref())
            .filter_map(ApprovalRequest::deadline);
        let patch = patch.min().filter(|_| !self.status.is_final());
        [timer, plan, end, undo, patch].into_iter().flatten().min()
    }

    /// When the next timer of a step is due.
    #[must_use]
    pub fn next_timer(&self) -> Option<Timestamp> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Whether it starts nothing new and only waits for what is in flight.
    pub(crate) const fn is_stopping(&self) -> bool {
        self.cancelled_by.is_some() || self.failure.is_some()
    }

    /// Whether calls are in flight.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Whether a call or a cache lookup is in flight at a place.
    #[must_use]
    pub fn is_busy_at(&self, at: RunPlace) -> bool {
        self.calls.contains(&at)
    }

    fn task(&self, at: RunPlace) -> Option<&Task> {
        let node = self.nodes.get(at.node)?;
        match at.item {
            None => Some(node),
            Some(item) => node.items().get(usize::try_from(item).ok()?),
        }
    }

    fn task_mut(&mut self, at: RunPlace) -> Option<&mut Task> {
        let node = self.nodes.get_mut(at.node)?;
        match at.item {
            None => Some(node),
            Some(item) => node.items_mut()?.get_mut(usize::try_from(item).ok()?),
        }
    }

    fn place_of_step(&self, step: Uuid) -> Option<RunPlace> {
        self.places_by_step.get(&step).copied()
    }

    /// The node id of a place.
    fn name(&self, at: RunPlace) -> &str {
        self.graph.nodes.get(at.node).map_or("", |compiled| compiled.node.id.as_str())
    }

    /// Moves a place to another state and updates its timers.
    fn enter(&mut self, at: RunPlace, state: TaskState) {
        if matches!(state, TaskState::Completed { .. } | TaskState::Failed { .. }) {
            self.add_requesters_of_place(at);
        }
        let Some(task) = self.task_mut(at) else { return };
        let before = task.deadline();
        let asked = usize::from(matches!(task.state, TaskState::AwaitingApproval(_)));
        task.state = state;
        let after = task.deadline();
        let asks = usize::from(matches!(task.state, TaskState::AwaitingApproval(_)));
        self.approvals_pending = (self.approvals_pending + asks).saturating_sub(asked);
        if let Some(due) = before {
            self.timers.remove(&(due, at));
        }
        if let Some(due) = after {
            self.timers.insert((due, at));
        }
    }
}
