//! A run as whoever traces it sees it: its steps by their ids, with what came of them.
//!
//! Nothing here is kept for tracing alone: it is read off the state when somebody asks.

use super::task::State;
use super::{At, Run, StepStatus};
use crate::error::ErrorBody;
use crate::time::Timestamp;
use uuid::Uuid;

/// A step and what came of it.
#[derive(Clone, Copy, Debug)]
pub struct Traced<'a> {
    /// The step.
    pub id: Uuid,
    /// The step of the map node that it is an item of.
    pub parent: Option<Uuid>,
    /// Its node.
    pub node: &'a str,
    /// What kind of node that is.
    pub kind: &'static str,
    /// Position of the item in its list.
    pub item: Option<u32>,
    /// The tool that it calls.
    pub tool: Option<&'a str>,
    /// Where it stands.
    pub status: StepStatus,
    /// Tries so far.
    pub attempt: u32,
    /// The run that it started.
    pub child: Option<Uuid>,
    /// Why it failed.
    pub error: Option<&'a ErrorBody>,
}

impl Run {
    /// When it ended.
    #[must_use]
    pub const fn completed_at(&self) -> Option<Timestamp> {
        self.completed_at
    }

    /// A step by its id.
    #[must_use]
    pub fn traced(&self, step: Uuid) -> Option<Traced<'_>> {
        self.trace_of(self.place_of(step)?)
    }

    /// The step because of which it failed, if it was one.
    #[must_use]
    pub fn failed_step(&self) -> Option<Traced<'_>> {
        let node = self.failure()?.details.get("node")?.as_str()?;
        self.trace_of(At::node(self.graph.position(node)?))
    }

    /// Steps that were begun and then stopped with the run. The ledger has no line for each of them.
    pub fn stopped_steps(&self) -> impl Iterator<Item = Traced<'_>> {
        let stopped = |traced: &Traced<'_>| traced.status == StepStatus::Cancelled;
        self.places().filter_map(|at| self.trace_of(at)).filter(stopped)
    }

    fn trace_of(&self, at: At) -> Option<Traced<'_>> {
        let (task, compiled) = (self.task(at)?, self.graph.nodes.get(at.node)?);
        let error = match &task.state {
            State::Failed { error, .. } => Some(&**error),
            _ => None,
        };
        Some(Traced {
            id: task.step?.id,
            parent: at.item.and_then(|_| self.step_id(At::node(at.node))),
            node: &compiled.node.id,
            kind: compiled.node.body.kind(),
            item: at.item,
            tool: compiled.tool.as_ref().map(|spec| spec.name.as_str()),
            status: task.status(),
            attempt: task.attempt,
            child: task.child,
            error,
        })
    }
}
