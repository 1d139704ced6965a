//! Calls whose outcome is unknown, and how to resolve them.

use super::{RollbackView, decoded, text, title, word};
use chimera_core::error::ErrorBody;
use chimera_core::flow::run::{RunStatus, StepStatus};
use chimera_core::record::{DamagedRows, Row};
use chimera_core::time::Timestamp;
use serde::Serialize;
use uuid::Uuid;

/// The call that is in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DoubtfulCall {
    /// The call of the step, which waits until it is resolved.
    Execute,
    /// The undo of the step: a rollback could not finish.
    Undo,
}

#[derive(Clone, Debug, Serialize)]
pub struct DoubtView {
    pub run_id: Uuid,
    /// What a person calls the run.
    pub title: String,
    pub workflow_id: Option<String>,
    pub actor: String,
    pub run_status: RunStatus,
    pub step_id: Uuid,
    pub node_id: String,
    pub map_index: Option<i64>,
    pub tool: Option<String>,
    pub call: DoubtfulCall,
    pub attempt: i64,
    pub since: Option<Timestamp>,
    pub reason: Option<String>,
    /// `None` for an undo.
    pub resolve_url: Option<String>,
    pub settle_url: String,
    /// Commands, any of which resolves it.
    pub settle_with: Vec<String>,
}

impl DoubtView {
    pub(in crate::flow) fn of(run: &Row, step: &Row) -> Result<Self, DamagedRows> {
        let (run_id, step_id) = (run.uuid("id"), step.uuid("id"));
        let undo = step.text("status") != StepStatus::OutcomeUnknown.as_str();
        let call = if undo { DoubtfulCall::Undo } else { DoubtfulCall::Execute };
        Ok(Self {
            run_id,
            title: title(run),
            workflow_id: text(run, "workflow_id"),
            actor: run.text("actor").to_owned(),
            run_status: word(run, "status", RunStatus::parse)?,
            step_id,
            node_id: step.text("node_id").to_owned(),
            map_index: step.get("map_index").as_int(),
            tool: text(step, "tool"),
            call,
            attempt: step.int("attempt"),
            since: step.get("in_doubt_since").as_time(),
            reason: if undo { undo_reason(run, step_id)? } else { call_reason(step)? },
            resolve_url: (!undo).then(|| call.settle_url(run_id, step_id)),
            settle_url: call.settle_url(run_id, step_id),
            settle_with: call.resolve_commands(run_id, step_id).into(),
        })
    }
}

fn call_reason(step: &Row) -> Result<Option<String>, DamagedRows> {
    Ok(decoded::<ErrorBody>(step, "error")?.map(|error| error.message))
}

/// Why the outcome of an undo is unknown, according to the last rollback.
fn undo_reason(run: &Row, step: Uuid) -> Result<Option<String>, DamagedRows> {
    let rollback: Option<RollbackView> = decoded(run, "rollback")?;
    let mut left = rollback.into_iter().flat_map(|rollback| rollback.left);
    Ok(left.find(|line| line.step_id == Some(step)).and_then(|line| line.reason))
}

impl DoubtfulCall {
    pub(in crate::flow) const fn as_str(self) -> &'static str {
        match self {
            Self::Execute => "execute",
            Self::Undo => "undo",
        }
    }

    pub(in crate::flow) fn settle_url(self, run: Uuid, step: Uuid) -> String {
        match self {
            Self::Execute => format!("/runs/{run}/steps/{step}/resolve"),
            Self::Undo => format!("/runs/{run}/rollback"),
        }
    }

    /// The commands that resolve it; one of them suffices.
    pub(in crate::flow) fn resolve_commands(self, run: Uuid, step: Uuid) -> [String; 2] {
        match self {
            Self::Execute => {
                ["--happened", "--never"].map(|found| format!("chimera runs resolve {run} {step} {found}"))
            }
            Self::Undo => {
                [format!("chimera runs rollback {run} --step {step}"), format!("chimera runs rollback {run} --by-hand")]
            }
        }
    }
}
