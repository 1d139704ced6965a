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

use super::env::Env;
use super::scope::RunScope;
use super::task::{Task, TaskState};
use super::turn_builder::TurnBuilder;
use super::{Run, RunPlace};
use crate::error::{Code, ErrorBody};
use crate::flow::air::Join;
use crate::flow::expr::Template;
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

impl Run {
    /// The state of every node's incoming edges, in graph order.
    #[must_use]
    pub fn decided_edges(&self) -> Vec<IncomingEdges> {
        let decided = |task: &Task| match task.state {
            TaskState::Pending { undecided, taken } => IncomingEdges::Undecided { undecided, taken },
            TaskState::Skipped => IncomingEdges::Skipped,
            _ => IncomingEdges::Started,
        };
        self.nodes.iter().map(decided).collect()
    }

    /// Starts the root nodes and decides the outgoing edges of every settled node.
    pub(crate) fn propagate(&mut self, env: &mut Env<'_>, book: &mut TurnBuilder) -> Result<(), Unstorable> {
        while let Some(node) = self.pending_roots.pop_front() {
            if self.is_turn_full(book) {
                self.pending_roots.push_front(node);
                return Ok(());
            }
            self.edge_decided(node, EdgeDecision::Taken, env, book)?;
        }
        while let Some(mut settled) = self.settled.pop_front() {
            let node = settled.node;
            while let Some(edge) = self.graph.nodes[node].outgoing.get(settled.edge).copied() {
                if self.is_turn_full(book) {
                    self.settled.push_front(settled);
                    return Ok(());
                }
                let late = self.is_late(node, edge);
                let came = match self.decide_edge(node, edge) {
                    Ok(came) => came,
                    Err(_) if late => EdgeDecision::NotTaken,
                    Err(error) => {
                        self.fail_with(error);
                        EdgeDecision::NotTaken
                    }
                };
                settled.edge += 1;
                let deals_with = came == EdgeDecision::Taken && !late;
                if deals_with && matches!(self.nodes[node].state, TaskState::Failed { .. }) {
                    self.add_edge_writers(edge);
                }
                settled.handled |= deals_with;
                let to = self.graph.edges[edge].to;
                self.edge_decided(to, came, env, book)?;
            }
            if let TaskState::Failed { error, .. } = &self.nodes[node].state
                && !settled.handled
            {
                let error = (**error).clone().with("node", self.name(RunPlace::node(node)));
                self.fail_with(error);
            }
        }
        Ok(())
    }

    /// The sequence number of the patch that added an edge, if one did.
    fn patch_seq_of_edge(&self, edge: usize) -> Option<i64> {
        self.patch_of_edge(edge).map(|overlay| overlay.seq)
    }

    /// Whether an edge was added after its source had settled.
    fn is_late(&self, node: usize, edge: usize) -> bool {
        self.patch_seq_of_edge(edge).zip(self.nodes[node].seq()).is_some_and(|(drawn, settled)| settled < drawn)
    }

    pub(crate) fn decide_edge(&self, node: usize, edge: usize) -> Result<EdgeDecision, ErrorBody> {
        let condition = self.graph.edges[edge].condition.as_ref();
        let until = self.nodes[node].seq().max(self.patch_seq_of_edge(edge)).unwrap_or(i64::MAX);
        let holds = match (&self.nodes[node].state, condition) {
            (TaskState::Completed { .. }, None) => true,
            (TaskState::Completed { .. }, Some(condition)) => self.is_condition_true(condition, until)?,
            // A condition that can't be evaluated without the source's outputs must not hide its failure.
            (TaskState::Failed { error, .. }, Some(condition)) => {
                error.code != Code::NotRecorded.as_str() && self.is_condition_true(condition, until).unwrap_or(false)
            }
            _ => false,
        };
        Ok(if holds { EdgeDecision::Taken } else { EdgeDecision::NotTaken })
    }

    fn is_condition_true(&self, condition: &Template, until: i64) -> Result<bool, ErrorBody> {
        let value = condition.render(&RunScope::as_of(self, until)).map_err(|error| {
            let message = format!("the condition of an edge can't be evaluated: {error}");
            ErrorBody::new(Code::ValidationFailed, message)
        })?;
        value
            .as_bool()
            .ok_or_else(|| ErrorBody::new(Code::ValidationFailed, "the condition of an edge must be a boolean"))
    }

    /// An incoming edge of `node` was decided.
    pub(crate) fn edge_decided(
        &mut self,
        node: usize,
        came: EdgeDecision,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        let compiled = &self.graph.nodes[node];
        let (join, delay) = (compiled.node.join, compiled.node.delay_seconds);
        let TaskState::Pending { undecided, taken } = &mut self.nodes[node].state else { return Ok(()) };
        *undecided = undecided.saturating_sub(1);
        *taken |= came == EdgeDecision::Taken;
        let (undecided, taken) = (*undecided, *taken);
        let at = RunPlace::node(node);
        if taken && (undecided == 0 || join == Join::Any) {
            if delay > 0 && !self.uses_recording(node) {
                self.enter(at, TaskState::Delayed { until: env.now.plus_seconds(i64::from(delay)) });
                self.mark_dirty(at, env, book);
                book.add_note("step.delayed", self.step_id(at), None, json!({"node": self.name(at), "seconds": delay}));
            } else {
                self.enter(at, TaskState::Ready);
                self.ready.push_back(at);
            }
        } else if undecided == 0 {
            self.enter(at, TaskState::Skipped);
            self.mark_dirty(at, env, book);
            book.add_note("step.skipped", self.step_id(at), None, json!({"node": self.name(at)}));
            self.place_ended(at, env, book)?;
        }
        Ok(())
    }

    pub(crate) fn place_ended(
        &mut self,
        at: RunPlace,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        if at.item.is_some() {
            return self.item_ended(at, env, book);
        }
        self.open_nodes = self.open_nodes.saturating_sub(1);
        self.settled.push_back(SettledNode::new(at.node));
        Ok(())
    }
}
