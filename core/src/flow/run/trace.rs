//! A view of a run's steps for tracing.
//!
//! Nothing is stored for tracing alone: the view is derived from the state on demand.

use super::task::TaskState;
use super::{Run, RunPlace, StepStatus};
use crate::error::ErrorBody;
use crate::time::Timestamp;
use uuid::Uuid;

/// A step, as tracing sees it.
#[derive(Clone, Copy, Debug)]
pub struct StepTrace<'a> {
    pub id: Uuid,
    /// The step of its map node, if it is an item.
    pub parent: Option<Uuid>,
    pub node: &'a str,
    /// The node type.
    pub kind: &'static str,
    /// The position of the item in its list.
    pub item: Option<u32>,
    pub tool: Option<&'a str>,
    pub status: StepStatus,
    pub attempt: u32,
    /// The child run that it started.
    pub child: Option<Uuid>,
    pub error: Option<&'a ErrorBody>,
}

impl Run {
    #[must_use]
    pub const fn completed_at(&self) -> Option<Timestamp> {
        self.completed_at
    }

    #[must_use]
    pub fn step_trace(&self, step: Uuid) -> Option<StepTrace<'_>> {
        self.trace_at(self.place_of_step(step)?)
    }

    /// The step that failed the run, if a step did.
    #[must_use]
    pub fn failed_step(&self) -> Option<StepTrace<'_>> {
        let node = self.failure()?.details.get("node")?.as_str()?;
        self.trace_at(RunPlace::node(self.graph.position(node)?))
    }

    /// Steps that were started and then cancelled with the run. The ledger has no entries for them.
    pub fn stopped_steps(&self) -> impl Iterator<Item = StepTrace<'_>> {
        let stopped = |traced: &StepTrace<'_>| traced.status == StepStatus::Cancelled;
        self.places().filter_map(|at| self.trace_at(at)).filter(stopped)
    }

    fn trace_at(&self, at: RunPlace) -> Option<StepTrace<'_>> {
        let (task, compiled) = (self.task(at)?, self.graph.nodes.get(at.node)?);
        let error = match &task.state {
            TaskState::Failed { error, .. } => Some(&**error),
            _ => None,
        };
        Some(StepTrace {
            id: task.step?.id,
            parent: at.item.and_then(|_| self.step_id(RunPlace::node(at.node))),
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
