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
use super::rows::Book;
use super::scope::View;
use super::task::{State, Task};
use super::{At, Run};
use crate::error::{Code, ErrorBody};
use crate::flow::air::Join;
use crate::flow::expr::Template;
use crate::record::Unstorable;
use serde_json::{Value, json};

/// A node whose outgoing edges are being decided, possibly over several turns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    pub(crate) node: usize,
    /// The next edge to decide.
    edge: usize,
    /// One of its edges was taken, so a failure is handled.
    dealt_with: bool,
}

impl Settled {
    pub(crate) const fn new(node: usize) -> Self {
        Self { node, edge: 0, dealt_with: false }
    }
}

/// How an edge was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    Taken,
    Dead,
}

/// The state of a node's incoming edges. A run in memory and the same run loaded from its rows always
/// agree about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decided {
    Waits {
        /// The number of undecided edges.
        undecided: u32,
        /// At least one was taken.
        taken: bool,
    },
    /// The node may start, or has started.
    Begins,
    /// No edge was taken.
    Skipped,
}

impl Run {
    /// The state of every node's incoming edges, in graph order.
    #[must_use]
    pub fn decided_edges(&self) -> Vec<Decided> {
        let decided = |task: &Task| match task.state {
            State::Pending { undecided, taken } => Decided::Waits { undecided, taken },
            State::Skipped => Decided::Skipped,
            _ => Decided::Begins,
        };
        self.nodes.iter().map(decided).collect()
    }

    /// Starts the root nodes and decides the outgoing edges of every settled node.
    pub(crate) fn propagate(&mut self, env: &mut Env<'_>, book: &mut Book) -> Result<(), Unstorable> {
        while let Some(node) = self.coming.pop_front() {
            if self.is_turn_full(book) {
                self.coming.push_front(node);
                return Ok(());
            }
            self.come_up(node, Came::Taken, env, book)?;
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
                    Err(_) if late => Came::Dead,
                    Err(error) => {
                        self.fail_with(error);
                        Came::Dead
                    }
                };
                settled.edge += 1;
                let deals_with = came == Came::Taken && !late;
                if deals_with && matches!(self.nodes[node].state, State::Failed { .. }) {
                    self.goes_on_by(edge);
                }
                settled.dealt_with |= deals_with;
                let to = self.graph.edges[edge].to;
                self.come_up(to, came, env, book)?;
            }
            if let State::Failed { error, .. } = &self.nodes[node].state
                && !settled.dealt_with
            {
                let error = (**error).clone().with("node", self.name(At::node(node)));
                self.fail_with(error);
            }
        }
        Ok(())
    }

    /// The sequence number of the patch that added an edge, if one did.
    fn drawn_by(&self, edge: usize) -> Option<i64> {
        self.patch_of_edge(edge).map(|overlay| overlay.seq)
    }

    /// Whether an edge was added after its source had settled.
    fn is_late(&self, node: usize, edge: usize) -> bool {
        self.drawn_by(edge).zip(self.nodes[node].seq()).is_some_and(|(drawn, settled)| settled < drawn)
    }

    pub(crate) fn decide_edge(&self, node: usize, edge: usize) -> Result<Came, ErrorBody> {
        let condition = self.graph.edges[edge].condition.as_ref();
        let until = self.nodes[node].seq().max(self.drawn_by(edge)).unwrap_or(i64::MAX);
        let holds = match (&self.nodes[node].state, condition) {
            (State::Completed { .. }, None) => true,
            (State::Completed { .. }, Some(condition)) => self.holds(condition, until)?,
            // A condition that can't be evaluated without the source's outputs must not hide its failure.
            (State::Failed { error, .. }, Some(condition)) => {
                error.code != Code::NotRecorded.as_str() && self.holds(condition, until).unwrap_or(false)
            }
            _ => false,
        };
        Ok(if holds { Came::Taken } else { Came::Dead })
    }

    fn holds(&self, condition: &Template, until: i64) -> Result<bool, ErrorBody> {
        let value = condition.render(&View::until(self, until)).map_err(|error| {
            let message = format!("the condition of an edge can't be evaluated: {error}");
            ErrorBody::new(Code::ValidationFailed, message)
        })?;
        value
            .as_bool()
            .ok_or_else(|| ErrorBody::new(Code::ValidationFailed, "the condition of an edge must be a boolean"))
    }

    /// An incoming edge of `node` was decided.
    pub(crate) fn come_up(
        &mut self,
        node: usize,
        came: Came,
        env: &mut Env<'_>,
        book: &mut Book,
    ) -> Result<(), Unstorable> {
        let compiled = &self.graph.nodes[node];
        let (join, delay) = (compiled.node.join, compiled.node.delay_seconds);
        let State::Pending { undecided, taken } = &mut self.nodes[node].state else { return Ok(()) };
        *undecided = undecided.saturating_sub(1);
        *taken |= came == Came::Taken;
        let (undecided, taken) = (*undecided, *taken);
        let at = At::node(node);
        if taken && (undecided == 0 || join == Join::Any) {
            if delay > 0 && !self.repeats(node) {
                self.enter(at, State::Delayed { until: env.now.plus_seconds(i64::from(delay)) });
                self.keep(at, env, book);
                book.note("step.delayed", self.step_id(at), None, json!({"node": self.name(at), "seconds": delay}));
            } else {
                self.enter(at, State::Ready);
                self.ready.push_back(at);
            }
        } else if undecided == 0 {
            self.enter(at, State::Skipped);
            self.keep(at, env, book);
            book.note("step.skipped", self.step_id(at), None, json!({"node": self.name(at)}));
            self.ended(at, env, book)?;
        }
        Ok(())
    }

    pub(crate) fn ended(&mut self, at: At, env: &mut Env<'_>, book: &mut Book) -> Result<(), Unstorable> {
        if at.item.is_some() {
            return self.item_ended(at, env, book);
        }
        self.open = self.open.saturating_sub(1);
        self.settled.push_back(Settled::new(at.node));
        Ok(())
    }
}

/// The output of a failed node, as conditions see it.
pub(crate) fn failed_output(error: &ErrorBody) -> Value {
    json!({"success": false, "error": {
        "code": error.code,
        "message": error.message,
        "error_type": error.error_type,
        "retryable": error.retryable,
        "details": error.details,
    }})
}

/// The output of a completed node, as expressions see it: with `success`.
pub(crate) fn seen(mut output: Value) -> Value {
    if let Some(members) = output.as_object_mut()
        && !members.contains_key("success")
    {
        members.insert("success".to_owned(), Value::Bool(true));
    }
    output
}
