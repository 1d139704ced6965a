//! Decides the edges of settled nodes.
//!
//! An edge without a condition is taken when its source completes. A condition is evaluated for a
//! failed source too: its outputs are `{"success": false, "error": …}`, so a graph can handle a
//! failure. A failure that no edge is taken for fails the run. A node with `join: all` waits until every
//! incoming edge is decided and runs if one was taken; with `join: any` it runs when the first is taken.
//!
//! A condition sees only what had settled when its source did. So an edge is decided the same way in
//! the turn that settled its source, in a later turn, and when the run is rebuilt from its rows. An edge
//! that a patch added to a settled source is *late*: it sees what had settled when the patch was
//! applied, and does not change how its source ended.

use crate::error::{Code, ErrorBody};
use crate::flow::air::Join;
use crate::flow::expr::Template;
use crate::flow::run::patches::apply::RunPatch;
use crate::flow::run::scope::RunScope;
use crate::flow::run::tasks::task::TaskState;
use crate::flow::run::turn_builder::TurnContext;
use crate::flow::run::{Run, RunPlace, maps, replay, requesters, step};
use crate::record::Unstorable;
use serde_json::json;

/// A node whose outgoing edges are being decided, possibly over several turns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SettledNode {
    pub(crate) node: usize,
    /// The next edge to decide.
    edge: usize,
    /// One of its edges was taken, so a failure is handled.
    handled: bool,
}

impl SettledNode {
    pub(crate) const fn new(node: usize) -> Self {
        Self { node, edge: 0, handled: false }
    }
}

/// How an edge was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EdgeDecision {
    Taken,
    NotTaken,
}

/// The state of a node's incoming edges. A run in memory and the same run loaded from its rows always
/// agree about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncomingEdges {
    Undecided {
        /// The number of undecided edges.
        undecided: u32,
        /// At least one was taken.
        taken: bool,
    },
    /// The node may start, or has started.
    Started,
    /// No edge was taken.
    Skipped,
}

/// Starts the root nodes and decides the outgoing edges of every settled node.
pub(crate) fn propagate(run: &mut Run, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    while let Some(node) = run.tasks.next_root() {
        if step::is_turn_full(run, &cx.turn) {
            run.tasks.put_back_root(node);
            return Ok(());
        }
        edge_decided(run, node, EdgeDecision::Taken, cx)?;
    }
    while let Some(mut settled) = run.tasks.next_settled() {
        let node = settled.node;
        while let Some(edge) = run.tasks.graph().nodes[node].outgoing.get(settled.edge).copied() {
            if step::is_turn_full(run, &cx.turn) {
                run.tasks.put_back_settled(settled);
                return Ok(());
            }
            let late = is_late(run, node, edge);
            let came = match decide_edge(run, node, edge) {
                Ok(came) => came,
                Err(_) if late => EdgeDecision::NotTaken,
                Err(error) => {
                    run.stopping.fail_with(error);
                    EdgeDecision::NotTaken
                }
            };
            settled.edge += 1;
            let deals_with = came == EdgeDecision::Taken && !late;
            if deals_with && matches!(run.tasks.node(node).state, TaskState::Failed { .. }) {
                requesters::add_edge_writers(run, edge);
            }
            settled.handled |= deals_with;
            let to = run.tasks.graph().edges[edge].to;
            edge_decided(run, to, came, cx)?;
        }
        if let TaskState::Failed { error, .. } = &run.tasks.node(node).state
            && !settled.handled
        {
            let error = (**error).clone().with("node", run.tasks.name(RunPlace::node(node)));
            run.stopping.fail_with(error);
        }
    }
    Ok(())
}

/// The sequence number of the patch that added an edge, if one did.
fn patch_seq_of_edge(run: &Run, edge: usize) -> Option<i64> {
    run.patches.of_edge(edge).map(RunPatch::applied_seq)
}

/// Whether an edge was added after its source had settled.
fn is_late(run: &Run, node: usize, edge: usize) -> bool {
    patch_seq_of_edge(run, edge).zip(run.tasks.node(node).seq()).is_some_and(|(drawn, settled)| settled < drawn)
}

pub(crate) fn decide_edge(run: &Run, node: usize, edge: usize) -> Result<EdgeDecision, ErrorBody> {
    let condition = run.tasks.graph().edges[edge].condition.as_ref();
    let until = run.tasks.node(node).seq().max(patch_seq_of_edge(run, edge)).unwrap_or(i64::MAX);
    let holds = match (&run.tasks.node(node).state, condition) {
        (TaskState::Completed { .. }, None) => true,
        (TaskState::Completed { .. }, Some(condition)) => is_condition_true(run, condition, until)?,
        // A condition that can't be evaluated without the source's outputs must not hide its failure.
        (TaskState::Failed { error, .. }, Some(condition)) => {
            error.code != Code::NotRecorded.as_str() && is_condition_true(run, condition, until).unwrap_or(false)
        }
        _ => false,
    };
    Ok(if holds { EdgeDecision::Taken } else { EdgeDecision::NotTaken })
}

fn is_condition_true(run: &Run, condition: &Template, until: i64) -> Result<bool, ErrorBody> {
    let value = condition.render(&RunScope::as_of(run, until)).map_err(|error| {
        let message = format!("the condition of an edge can't be evaluated: {error}");
        ErrorBody::new(Code::ValidationFailed, message)
    })?;
    value.as_bool().ok_or_else(|| ErrorBody::new(Code::ValidationFailed, "the condition of an edge must be a boolean"))
}

/// An incoming edge of `node` was decided.
pub(crate) fn edge_decided(
    run: &mut Run,
    node: usize,
    came: EdgeDecision,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    let compiled = &run.tasks.graph().nodes[node];
    let (join, delay) = (compiled.node.join, compiled.node.delay_seconds);
    let TaskState::Pending { undecided, taken } = &mut run.tasks.node_mut(node).state else { return Ok(()) };
    *undecided = undecided.saturating_sub(1);
    *taken |= came == EdgeDecision::Taken;
    let (undecided, taken) = (*undecided, *taken);
    let at = RunPlace::node(node);
    if taken && (undecided == 0 || join == Join::Any) {
        if delay > 0 && !replay::uses_recording(run, node) {
            run.tasks.enter(at, TaskState::Delayed { until: cx.env.now.plus_seconds(i64::from(delay)) });
            run.tasks.mark_dirty(at, cx);
            cx.turn.add_note(
                "step.delayed",
                run.tasks.step_id(at),
                None,
                json!({"node": run.tasks.name(at), "seconds": delay}),
            );
        } else {
            run.tasks.enter(at, TaskState::Ready);
            run.tasks.push_ready(at);
        }
    } else if undecided == 0 {
        run.tasks.enter(at, TaskState::Skipped);
        run.tasks.mark_dirty(at, cx);
        cx.turn.add_note("step.skipped", run.tasks.step_id(at), None, json!({"node": run.tasks.name(at)}));
        place_ended(run, at, cx)?;
    }
    Ok(())
}

pub(crate) fn place_ended(run: &mut Run, at: RunPlace, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    if at.item.is_some() {
        return maps::item_ended(run, at, cx);
    }
    run.tasks.node_settled(at.node);
    Ok(())
}
