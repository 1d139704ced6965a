//! A run of a workflow: one state machine, told events, answering with turns.
//!
//! A run has one owner, and at most one turn of it is being committed. The state in memory is ahead
//! of the store by that turn; when the turn can't be committed, the run is thrown away and loaded
//! anew, and since nothing is done before its turn is durable, nothing was done too early.
//! Rows are derived from the state at the end of a turn; how a run is rebuilt from them stands in
//! `load`.

mod answer;
mod approve;
mod cancel;
mod close;
mod create;
mod demand;
mod doubt;
mod draft;
mod draft_view;
mod edges;
mod end;
pub mod env;
pub mod event;
mod judge;
mod kept;
mod listed;
mod load;
mod merge;
mod nest;
mod past;
mod patch;
mod pinned;
mod plan;
mod renew;
mod requesters;
mod restored;
pub mod retry;
mod rows;
mod rows_people;
mod scope;
mod start;
pub mod status;
mod step;
mod still;
mod task;
mod told;
mod trail;
mod under_way;
mod undo;
mod unwritten;

pub use cancel::{may_hold, paused_by};
pub use close::affinity;
pub use create::{Head, Replay, ReplayMode, Source, WorkflowRef};
pub use demand::{Demand, SamePerson};
pub use doubt::Doubt;
pub use edges::Decided;
pub use env::{Env, Gate, Slot};
pub use event::{At, Call, Effect, Event, Kept, Mode, Note, Signal, Told, Turn, Verdict};
pub use listed::too_many_with_patch;
pub use load::{Recorded, Recording, Stored, StoredPatch, approving, behind};
pub use patch::Overlaid;
pub use pinned::request_of_row;
pub use restored::UnsureStep;
pub use rows_people::{INBOX, Requested, inbox_row, outbox_row};
pub use status::{EffectStatus, RunStatus, StepStatus};
pub use trail::Traced;
pub use under_way::UnderWay;

use crate::access::Actor;
use crate::error::ErrorBody;
use crate::flow::air::Graph;
use crate::flow::expr::WorkMeter;
use crate::time::Timestamp;
use draft::Draft;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use task::{State, Task};
use undo::Undo;
use uuid::Uuid;

/// A run in memory.
pub struct Run {
    head: Arc<Head>,
    graph: Arc<Graph>,
    nodes: Vec<Task>,
    status: RunStatus,
    /// Zero until the row was written first.
    version: i64,
    run_seq: i64,
    /// Who drives it, as the row says; none while it is parked.
    owner: Option<Owner>,
    /// Who holds it, while somebody does.
    paused_by: Option<Actor>,
    cancelled_by: Option<(Actor, Option<String>)>,
    /// The first failure that nothing in the graph dealt with.
    failure: Option<Box<ErrorBody>>,
    /// How many the row names as having asked for it besides its actor.
    co_requesters_kept: usize,
    /// Whether the row says that it failed, and that it was cancelled.
    stopping_kept: (bool, bool),
    result: Option<Value>,
    completed_at: Option<Timestamp>,
    approvals: u32,
    /// The date of its newest request for a decision.
    asked_at: Timestamp,
    patches: u32,
    /// What was drafted and approved at L1.
    plan: Option<plan::Plan>,
    /// Maps whose calls people approved by themselves.
    listed: BTreeMap<usize, listed::Listed>,
    /// Inputs that people wrote into the plan in place of those that the workflow gives.
    edits: BTreeMap<String, plan::Edit>,
    /// The draft under way.
    draft: Option<Draft>,
    /// The rollback under way.
    undo: Option<Undo>,
    /// Rollbacks so far.
    rollbacks: u32,
    /// Undos of steps that were recorded so far, in all rollbacks.
    undos: usize,
    /// When the state that it goes on from was put back: what it did before that is not known.
    restored_at: Option<Timestamp>,
    /// Outputs of the run that is replayed, by node and item.
    recorded: Option<Recorded>,
    /// Places whose turn it is, in the order in which they came up.
    ready: VecDeque<At>,
    /// Nodes that nothing leads to and that have not come up yet.
    coming: VecDeque<usize>,
    /// Nodes that have settled but whose edges were not decided yet.
    settled: VecDeque<edges::Settled>,
    /// Places that wait for a time.
    timers: BTreeSet<(Timestamp, At)>,
    /// Places with a call under way.
    calls: BTreeSet<At>,
    /// Nodes that have not settled.
    open: usize,
    /// Places that wait for people.
    asking: usize,
    /// Compiled graphs that were proposed as patches, until they are decided about.
    overlays: BTreeMap<u32, patch::Overlay>,
    /// Places by their steps.
    steps: BTreeMap<Uuid, At>,
    /// Children that were told to stop.
    stopped_children: BTreeSet<Uuid>,
    /// Places with a call in doubt, and since when.
    doubts: BTreeMap<At, Timestamp>,
    /// The oldest doubt, as the row says.
    in_doubt_since: Option<Timestamp>,
    /// What came next could not be written, twice: it only ends.
    gives_up: bool,
    /// The work of its expressions in this turn.
    meter: WorkMeter,
    /// The work of its expressions in the turns before, since it was read.
    worked: u64,
    /// How much the inputs and outputs of its steps are.
    kept: kept::Kept,
    /// Maps about to begin: the next item to be looked at, and how much the run would keep with those before.
    measured: BTreeMap<usize, (u32, kept::Kept)>,
}

/// The lane that a run's owner writes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The lane.
    pub lane: i64,
    /// Its epoch.
    pub epoch: i64,
}

impl Run {
    /// What it is made of.
    #[must_use]
    pub const fn head(&self) -> &Arc<Head> {
        &self.head
    }

    /// Where it stands.
    #[must_use]
    pub const fn status(&self) -> RunStatus {
        self.status
    }

    /// The version of its row after the last turn.
    #[must_use]
    pub const fn version(&self) -> i64 {
        self.version
    }

    /// What it gave, once it is completed.
    #[must_use]
    pub const fn result(&self) -> Option<&Value> {
        self.result.as_ref()
    }

    /// Why it failed, once it has.
    #[must_use]
    pub fn failure(&self) -> Option<&ErrorBody> {
        self.failure.as_deref()
    }

    /// Who drives it, once the last turn is committed.
    #[must_use]
    pub const fn owner(&self) -> Option<Owner> {
        self.owner
    }

    /// Whether something of it is ready and could start if there were a slot.
    #[must_use]
    pub fn wants_slot(&self) -> bool {
        (!self.ready.is_empty() && self.may_start()) || self.undo.as_ref().is_some_and(Undo::wants_slot)
    }

    /// The graph that it follows, with every patch that was applied.
    #[must_use]
    pub const fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    /// When it wants a `Tick` at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        if self.status.is_final() && self.undo.is_none() {
            return None;
        }
        let timer = self.next_timer();
        let plan = self.plan.as_ref().and_then(plan::Plan::deadline);
        let end = self.head.timeout_at.filter(|_| !self.status.is_final() && !self.is_stopping());
        let undo = self.undo.as_ref().and_then(|undo| undo.retry_at);
        let patch = self.overlays.values().filter_map(|overlay| overlay.asked.as_ref()).filter(|asked| asked.open);
        let patch = patch.map(|asked| asked.expires_at).min().filter(|_| !self.status.is_final());
        [timer, plan, end, undo, patch].into_iter().flatten().min()
    }

    /// When the next of its steps is due that waits for a time.
    #[must_use]
    pub fn next_timer(&self) -> Option<Timestamp> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Whether it only waits for what is under way to end.
    pub(crate) const fn is_stopping(&self) -> bool {
        self.cancelled_by.is_some() || self.failure.is_some()
    }

    /// Whether calls of it are under way.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Whether something is under way at a place: a call, or a look for a recorded output.
    #[must_use]
    pub fn is_busy_at(&self, at: At) -> bool {
        self.calls.contains(&at)
    }

    fn task(&self, at: At) -> Option<&Task> {
        let node = self.nodes.get(at.node)?;
        match at.item {
            None => Some(node),
            Some(item) => node.items().get(usize::try_from(item).ok()?),
        }
    }

    fn task_mut(&mut self, at: At) -> Option<&mut Task> {
        let node = self.nodes.get_mut(at.node)?;
        match at.item {
            None => Some(node),
            Some(item) => node.items_mut()?.get_mut(usize::try_from(item).ok()?),
        }
    }

    /// The place whose step has this id.
    fn place_of(&self, step: Uuid) -> Option<At> {
        self.steps.get(&step).copied()
    }

    /// The id of a node.
    fn name(&self, at: At) -> &str {
        self.graph.nodes.get(at.node).map_or("", |compiled| compiled.node.id.as_str())
    }

    /// Moves a place to another state and keeps the timers right.
    fn enter(&mut self, at: At, state: State) {
        if matches!(state, State::Completed { .. } | State::Failed { .. }) {
            self.goes_on_behind(at);
        }
        let Some(task) = self.task_mut(at) else { return };
        let before = task.deadline();
        let asked = usize::from(matches!(task.state, State::Asking(_)));
        task.state = state;
        let after = task.deadline();
        let asks = usize::from(matches!(task.state, State::Asking(_)));
        self.asking = (self.asking + asks).saturating_sub(asked);
        if let Some(due) = before {
            self.timers.remove(&(due, at));
        }
        if let Some(due) = after {
            self.timers.insert((due, at));
        }
    }
}
