//! The graph of a run, and how far each of its places has come.
//!
//! This machine owns the state of every place and the queues derived from it: what is ready, which edges are to be
//! decided, which timers run, which calls are in flight. `enter` is the only way to another state, so that queues and
//! states can't disagree.

pub(crate) mod edges;
pub(crate) mod in_flight;
pub(crate) mod loading;
pub(crate) mod task;
pub(crate) mod trace;
pub(crate) mod work;

use super::env::Env;
use super::event::RunPlace;
use super::turn_builder::{TurnBuilder, TurnContext};
use crate::flow::air::{Body, Function, Graph, MapItem};
use crate::flow::work::Elsewhere;
use crate::json::{CanonicalJson, Digest32};
use crate::limits;
use crate::time::Timestamp;
use crate::tool::{EffectKind, Spec};
use edges::{IncomingEdges, SettledNode};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use task::{StoredStep, Task, TaskState};
use uuid::Uuid;

/// The tasks of a run.
pub(crate) struct Tasks {
    /// The graph, with all applied patches.
    graph: Arc<Graph>,
    nodes: Vec<Task>,
    /// Places that are ready to start, in order.
    ready: VecDeque<RunPlace>,
    /// Root nodes that are not ready yet.
    pending_roots: VecDeque<usize>,
    /// Settled nodes whose outgoing edges are not decided yet.
    settled: VecDeque<SettledNode>,
    /// Places whose judge decides in the next turn.
    judging: VecDeque<RunPlace>,
    /// Places with a timer.
    timers: BTreeSet<(Timestamp, RunPlace)>,
    /// Places with a call in flight.
    calls: BTreeSet<RunPlace>,
    /// Places that are to look for their event, and whether for the last time.
    lookups: VecDeque<(RunPlace, bool)>,
    /// The number of nodes that have not settled.
    open_nodes: usize,
    /// The number of places that await approval.
    awaiting_approval: usize,
    /// The number of places whose call is executed elsewhere.
    calls_elsewhere: usize,
    places_by_step: BTreeMap<Uuid, RunPlace>,
}

impl Tasks {
    /// No node has started.
    pub(crate) fn new(graph: Arc<Graph>) -> Self {
        let nodes: Vec<Task> = graph.nodes.iter().map(|compiled| Task::waiting_for(compiled.incoming.len())).collect();
        Self {
            open_nodes: nodes.len(),
            graph,
            nodes,
            ready: VecDeque::new(),
            pending_roots: VecDeque::new(),
            settled: VecDeque::new(),
            judging: VecDeque::new(),
            timers: BTreeSet::new(),
            calls: BTreeSet::new(),
            lookups: VecDeque::new(),
            awaiting_approval: 0,
            calls_elsewhere: 0,
            places_by_step: BTreeMap::new(),
        }
    }

    pub(crate) const fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    pub(crate) fn nodes(&self) -> &[Task] {
        &self.nodes
    }

    pub(crate) fn node(&self, node: usize) -> &Task {
        &self.nodes[node]
    }

    pub(crate) fn node_mut(&mut self, node: usize) -> &mut Task {
        &mut self.nodes[node]
    }

    pub(crate) fn task(&self, at: RunPlace) -> Option<&Task> {
        let node = self.nodes.get(at.node)?;
        match at.item {
            None => Some(node),
            Some(item) => node.items().get(usize::try_from(item).ok()?),
        }
    }

    pub(crate) fn task_mut(&mut self, at: RunPlace) -> Option<&mut Task> {
        let node = self.nodes.get_mut(at.node)?;
        match at.item {
            None => Some(node),
            Some(item) => node.items_mut()?.get_mut(usize::try_from(item).ok()?),
        }
    }

    /// All places: every node and every item of a map.
    pub(crate) fn places(&self) -> impl Iterator<Item = RunPlace> {
        self.nodes.iter().enumerate().flat_map(|(node, task)| {
            let items = 0..u32::try_from(task.items().len()).unwrap_or(u32::MAX);
            std::iter::once(RunPlace::node(node)).chain(items.map(move |item| RunPlace { node, item: Some(item) }))
        })
    }

    pub(crate) fn place_of_step(&self, step: Uuid) -> Option<RunPlace> {
        self.places_by_step.get(&step).copied()
    }

    /// The node id of a place.
    pub(crate) fn name(&self, at: RunPlace) -> &str {
        self.graph.nodes.get(at.node).map_or("", |compiled| compiled.node.id.as_str())
    }

    /// The function of a node or of its items.
    pub(crate) fn function(&self, at: RunPlace) -> Option<&Function> {
        match &self.graph.nodes.get(at.node)?.node.body {
            Body::Function(function) => Some(function),
            Body::Map(each) => match &each.item {
                MapItem::Function(function) => Some(function),
                MapItem::Workflow(_) => None,
            },
            _ => None,
        }
    }

    /// The tool that a place calls, if it calls one.
    pub(crate) fn tool(&self, at: RunPlace) -> Option<&Arc<Spec>> {
        let compiled = self.graph.nodes.get(at.node)?;
        let is_call = !matches!(compiled.node.body, Body::Map(_)) || at.item.is_some();
        compiled.tool.as_ref().filter(|_| is_call && self.function(at).is_some())
    }

    /// The list of a map node.
    pub(crate) fn map_list(&self, node: usize) -> Option<&[Value]> {
        match &self.nodes.get(node)?.state {
            TaskState::Mapping(mapping) => Some(&mapping.over),
            _ => self.nodes[node].input.as_ref()?.get("over")?.as_array().map(Vec::as_slice),
        }
    }

    /// Whether the call of a place is pure, reads or writes.
    pub(crate) fn reach(&self, at: RunPlace, spec: &Spec) -> EffectKind {
        let input = self.task(at).and_then(|task| task.input.as_deref());
        input.map_or(spec.effect, |input| spec.effect_of(input))
    }

    /// Whether the call of a place can be sent again without a second effect.
    pub(crate) fn is_resendable(&self, at: RunPlace, spec: &Spec) -> bool {
        self.reach(at, spec) != EffectKind::Write || spec.metadata.idempotent
    }

    /// Fixes the input of a place.
    pub(crate) fn fix_input(&mut self, at: RunPlace, input: CanonicalJson) -> Arc<Value> {
        if let Some(task) = self.task_mut(at) {
            task.fix_input(Arc::clone(input.value()), input.digest());
        }
        Arc::clone(input.value())
    }

    /// Moves a place to another state and updates its timers.
    pub(crate) fn enter(&mut self, at: RunPlace, state: TaskState) {
        let Some(task) = self.task_mut(at) else { return };
        let before = task.deadline();
        let (asked, was_elsewhere) = (is_asking(&task.state), is_call_elsewhere(&task.state));
        if !matches!(state, TaskState::Judging | TaskState::AwaitingApproval(_)) {
            task.judging.held = None;
        }
        task.state = state;
        let after = task.deadline();
        let (asks, is_elsewhere) = (is_asking(&task.state), is_call_elsewhere(&task.state));
        self.awaiting_approval = (self.awaiting_approval + asks).saturating_sub(asked);
        self.calls_elsewhere = (self.calls_elsewhere + is_elsewhere).saturating_sub(was_elsewhere);
        if let Some(due) = before {
            self.timers.remove(&(due, at));
        }
        if let Some(due) = after {
            self.timers.insert((due, at));
        }
    }

    /// Marks a place as changed: its row is written at the end of the turn.
    pub(crate) fn mark_dirty(&mut self, at: RunPlace, cx: &mut TurnContext<'_>) {
        self.ensure_step(at, &mut cx.env);
        cx.turn.dirty.insert(at);
    }

    /// The id of a place's step, created if it has none.
    pub(crate) fn ensure_step(&mut self, at: RunPlace, env: &mut Env<'_>) -> Uuid {
        if let Some(step) = self.step_id(at) {
            return step;
        }
        let Some(task) = self.task_mut(at) else { return Uuid::nil() };
        let id = (env.ids)();
        task.step = Some(StoredStep { id, version: 0 });
        self.places_by_step.insert(id, at);
        id
    }

    /// The id of a place's step, if it has one.
    pub(crate) fn state(&self, at: RunPlace) -> Option<&TaskState> {
        self.task(at).map(Task::state)
    }

    pub(crate) fn input(&self, at: RunPlace) -> Option<&Value> {
        self.task(at).and_then(Task::input)
    }

    pub(crate) fn input_digest(&self, at: RunPlace) -> Option<Digest32> {
        self.task(at).and_then(Task::digest)
    }

    /// The child run that a place started.
    pub(crate) fn child(&self, at: RunPlace) -> Option<Uuid> {
        self.task(at).and_then(Task::child)
    }

    pub(crate) fn step_id(&self, at: RunPlace) -> Option<Uuid> {
        self.task(at).and_then(|task| task.step).map(|step| step.id)
    }

    pub(crate) fn is_lost(&self, at: RunPlace) -> bool {
        self.task(at).is_some_and(|task| matches!(task.state, TaskState::Lost { .. }))
    }

    /// The number of places that await approval.
    pub(crate) const fn awaiting_approval(&self) -> usize {
        self.awaiting_approval
    }

    /// The number of places whose call is executed elsewhere.
    pub(crate) const fn calls_elsewhere(&self) -> usize {
        self.calls_elsewhere
    }

    /// Queues a place that has become ready.
    pub(crate) fn push_ready(&mut self, at: RunPlace) {
        self.ready.push_back(at);
    }

    /// Queues a ready place before all others.
    pub(crate) fn push_ready_first(&mut self, at: RunPlace) {
        self.ready.push_front(at);
    }

    pub(crate) fn next_ready(&mut self) -> Option<RunPlace> {
        self.ready.pop_front()
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(crate) fn clear_ready(&mut self) {
        self.ready.clear();
    }

    /// Its judge decides in the next turn.
    pub(crate) fn push_judging(&mut self, at: RunPlace) {
        self.judging.push_back(at);
    }

    /// The places whose judge decides in this turn.
    pub(crate) fn take_judging(&mut self) -> VecDeque<RunPlace> {
        std::mem::take(&mut self.judging)
    }

    pub(crate) fn has_judging(&self) -> bool {
        !self.judging.is_empty()
    }

    /// Queues the root nodes; each turn starts as many as fit.
    pub(crate) fn queue_roots(&mut self) {
        self.pending_roots = self.graph.roots().collect();
    }

    pub(crate) fn next_root(&mut self) -> Option<usize> {
        self.pending_roots.pop_front()
    }

    /// The root did not fit into the turn.
    pub(crate) fn put_back_root(&mut self, node: usize) {
        self.pending_roots.push_front(node);
    }

    /// A node has settled: its outgoing edges are to be decided.
    pub(crate) fn node_settled(&mut self, node: usize) {
        self.node_closed();
        self.settled.push_back(SettledNode::new(node));
    }

    /// A node was cancelled: it decides no edges.
    pub(crate) const fn node_closed(&mut self) {
        self.open_nodes = self.open_nodes.saturating_sub(1);
    }

    pub(crate) fn next_settled(&mut self) -> Option<SettledNode> {
        self.settled.pop_front()
    }

    /// Not all of its edges fitted into the turn.
    pub(crate) fn put_back_settled(&mut self, settled: SettledNode) {
        self.settled.push_front(settled);
    }

    /// Whether the edges of a settled node are still to be decided.
    pub(crate) fn is_settled_queued(&self, node: usize) -> bool {
        self.settled.iter().any(|settled| settled.node == node)
    }

    /// Whether edges are to be decided.
    pub(crate) fn has_undecided(&self) -> bool {
        !self.settled.is_empty() || !self.pending_roots.is_empty()
    }

    /// Whether every node has settled and decided its edges.
    pub(crate) fn are_done(&self) -> bool {
        self.open_nodes == 0 && self.settled.is_empty()
    }

    /// Whether nothing is in flight, no edge is to be decided and nothing is to be judged.
    pub(crate) fn are_idle(&self) -> bool {
        self.calls.is_empty() && self.lookups.is_empty() && !self.has_undecided() && !self.has_judging()
    }

    /// When the next timer is due.
    pub(crate) fn next_timer(&self) -> Option<Timestamp> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Removes the first timer that is due.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> Option<(Timestamp, RunPlace)> {
        let first = self.timers.first().copied().filter(|(due, _)| *due <= now)?;
        self.timers.remove(&first);
        Some(first)
    }

    /// The timer did not fit into the turn.
    pub(crate) fn put_back_timer(&mut self, timer: (Timestamp, RunPlace)) {
        self.timers.insert(timer);
    }

    /// Whether a place waits for the deadline of a lost call.
    pub(crate) fn has_lost_call(&self) -> bool {
        self.timers.iter().any(|(_, at)| self.is_lost(*at))
    }

    /// A call or a cache lookup is in flight at a place.
    pub(crate) fn call_started(&mut self, at: RunPlace) {
        self.calls.insert(at);
    }

    pub(crate) fn call_ended(&mut self, at: RunPlace) {
        self.calls.remove(&at);
    }

    /// A place is to look for its event once fewer calls are in flight.
    pub(crate) fn queue_lookup(&mut self, at: RunPlace, last: bool) {
        self.lookups.push_back((at, last));
    }

    /// The next place that is to look for its event, if another call may be in flight.
    pub(crate) fn next_lookup(&mut self) -> Option<(RunPlace, bool)> {
        if self.calls.len() < limits::RUN_CALLS_MAX { self.lookups.pop_front() } else { None }
    }

    /// The places with a call or lookup in flight.
    pub(crate) const fn calls(&self) -> &BTreeSet<RunPlace> {
        &self.calls
    }

    /// Makes as many items of a map ready as its node allows.
    pub(crate) fn start_items(&mut self, node: usize) {
        let Body::Map(each) = &self.graph.nodes[node].node.body else { return };
        let parallel = usize::try_from(each.max_parallel).unwrap_or(1).max(1);
        let TaskState::Mapping(mapping) = &mut self.nodes[node].state else { return };
        while mapping.busy < parallel && mapping.items.len() < mapping.over.len() {
            let item = u32::try_from(mapping.items.len()).unwrap_or(u32::MAX);
            mapping.items.push(Task { state: TaskState::Ready, ..Task::pending(0) });
            self.ready.push_back(RunPlace { node, item: Some(item) });
            mapping.busy += 1;
        }
    }

    /// The number of steps that the run has or will have: one per node and per item of a started map.
    pub(crate) fn steps_planned(&self) -> usize {
        let items = (0..self.nodes.len()).filter_map(|node| self.map_list(node)).map(<[Value]>::len);
        items.fold(self.nodes.len(), usize::saturating_add)
    }

    /// Closes steps that have a row from the dry run but never started, as many as a turn takes. Returns whether all are
    /// closed; otherwise the next turn goes on.
    pub(crate) fn close_drafted(&mut self, is_completed: bool, turn: &mut TurnBuilder) -> bool {
        for (node, task) in self.nodes.iter_mut().enumerate() {
            if matches!(task.state, TaskState::Pending { .. }) && task.step.is_some() {
                if turn.row_count() >= limits::TURN_ROWS_MAX {
                    turn.more = true;
                    return false;
                }
                task.state = if is_completed { TaskState::Skipped } else { TaskState::Cancelled { items: Vec::new() } };
                turn.dirty.insert(RunPlace::node(node));
            }
        }
        true
    }

    /// All inputs and outputs.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Value> {
        let tasks = self.nodes.iter().flat_map(|task| std::iter::once(task).chain(task.items()));
        tasks.flat_map(|task| {
            let outputs = task.output().into_iter().chain(task.held().map(|held| &held.output));
            task.input.as_deref().into_iter().chain(outputs.map(|output| &**output))
        })
    }

    /// Replaces the graph by one with more nodes. Returns the graph before.
    pub(crate) fn extend_graph(&mut self, graph: Graph) -> Arc<Graph> {
        let added = graph.nodes.get(self.nodes.len()..).unwrap_or_default();
        self.open_nodes += added.len();
        self.nodes.extend(added.iter().map(|compiled| Task::waiting_for(compiled.incoming.len())));
        std::mem::replace(&mut self.graph, Arc::new(graph))
    }

    /// Replaces the graph by an earlier one with fewer nodes.
    pub(crate) fn truncate_graph(&mut self, before: Arc<Graph>) {
        self.open_nodes = self.open_nodes.saturating_sub(self.nodes.len() - before.nodes.len());
        self.nodes.truncate(before.nodes.len());
        self.graph = before;
    }

    /// The state of every node's incoming edges, in graph order.
    pub(crate) fn decided_edges(&self) -> Vec<IncomingEdges> {
        let decided = |task: &Task| match task.state {
            TaskState::Pending { undecided, taken } => IncomingEdges::Undecided { undecided, taken },
            TaskState::Skipped => IncomingEdges::Skipped,
            _ => IncomingEdges::Started,
        };
        self.nodes.iter().map(decided).collect()
    }

    /// Puts a loaded step in its place. Nodes come before their items, which are part of their state.
    pub(crate) fn load_step(&mut self, at: RunPlace, step: Uuid, task: Task) {
        match at.item.and_then(|item| usize::try_from(item).ok()) {
            None => self.nodes[at.node] = task,
            Some(item) => {
                let Some(items) = self.nodes[at.node].items_mut() else { return };
                while items.len() <= item {
                    items.push(Task { state: TaskState::Ready, ..Task::pending(0) });
                }
                items[item] = task;
            }
        }
        self.places_by_step.insert(step, at);
    }

    /// Derives the queues of a loaded run: what was settled decides its edges again, what was ready is ready.
    pub(crate) fn rebuild_queues(&mut self, has_ended: bool) {
        let mut settled = Vec::new();
        self.open_nodes = self.nodes.iter().filter(|task| !task.is_settled()).count();
        if has_ended {
            return;
        }
        let places: Vec<RunPlace> = self.places().collect();
        for at in places {
            let Some(task) = self.task(at) else { continue };
            let (due, ready) = (task.deadline(), matches!(task.state, TaskState::Ready));
            if task.is_settled() && at.item.is_none() {
                settled.push((task.seq(), at.node));
            }
            let (asks, is_elsewhere) = (is_asking(&task.state), is_call_elsewhere(&task.state));
            let judged = matches!(task.state, TaskState::Judging);
            if let Some(due) = due {
                self.timers.insert((due, at));
            }
            if ready {
                self.ready.push_back(at);
            }
            if judged {
                self.judging.push_back(at);
            }
            self.awaiting_approval += asks;
            self.calls_elsewhere += is_elsewhere;
        }
        // In the order in which they settled: the first unhandled failure counts.
        settled.sort_unstable();
        self.settled.extend(settled.into_iter().map(|(_, node)| SettledNode::new(node)));
        for node in 0..self.nodes.len() {
            let TaskState::Mapping(mapping) = &mut self.nodes[node].state else { continue };
            mapping.count_items();
            if mapping.failed.is_none() {
                self.start_items(node);
            }
        }
    }
}

fn is_asking(state: &TaskState) -> usize {
    usize::from(matches!(state, TaskState::AwaitingApproval(_)))
}

fn is_call_elsewhere(state: &TaskState) -> usize {
    usize::from(matches!(state, TaskState::Elsewhere { work: Elsewhere::Job(_) | Elsewhere::Worker(_), .. }))
}
