//! A view of a run's steps for tracing.
//!
//! Nothing is stored for tracing alone: the view is derived from the state on demand.

use super::Tasks;
use super::task::TaskState;
use crate::error::ErrorBody;
use crate::flow::run::{RunPlace, StepStatus};
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

impl<'a> StepTrace<'a> {
    pub(crate) fn at(tasks: &'a Tasks, at: RunPlace) -> Option<Self> {
        let (task, compiled) = (tasks.task(at)?, tasks.graph().nodes.get(at.node)?);
        let error = match &task.state {
            TaskState::Failed { error, .. } => Some(&**error),
            _ => None,
        };
        Some(Self {
            id: task.step?.id,
            parent: at.item.and_then(|_| tasks.step_id(RunPlace::node(at.node))),
            node: &compiled.node.id,
            kind: compiled.node.body.kind(),
            item: at.item,
            tool: compiled.tool.as_ref().map(|spec| spec.name.as_str()),
            status: task.status(),
            attempt: task.attempt,
            child: task.child(),
            error,
        })
    }
}
