//! Calls whose outcome is unknown, and how to resolve them.

use super::{RollbackView, title};
use chimera_core::error::ErrorBody;
use chimera_core::flow::run::{RunStatus, StepStatus};
use chimera_core::flow::tables::{DoubtfulRun, DoubtfulStep};
use chimera_core::record::{DamagedRows, Json};
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
    #[serde(flatten)]
    pub run: DoubtRun,
    pub step_id: Uuid,
    pub node_id: String,
    pub map_index: Option<i64>,
    pub tool: Option<String>,
    pub call: DoubtfulCall,
    pub attempt: i64,
    pub since: Option<Timestamp>,
    pub reason: Option<String>,
    #[serde(flatten)]
    pub resolution: DoubtResolution,
}

/// The run of a call in doubt.
#[derive(Clone, Debug, Serialize)]
pub struct DoubtRun {
    pub run_id: Uuid,
    /// What a person calls the run.
    pub title: String,
    pub workflow_id: Option<String>,
    pub actor: String,
    pub run_status: RunStatus,
}

/// How a person resolves a call in doubt.
#[derive(Clone, Debug, Serialize)]
pub struct DoubtResolution {
    pub resolve_url: String,
    /// Commands, any of which resolves it.
    pub resolve_commands: Vec<String>,
}

impl DoubtView {
    pub(in crate::flow) fn of(run: &DoubtfulRun, step: DoubtfulStep) -> Result<Self, DamagedRows> {
        let undo = step.status != StepStatus::OutcomeUnknown;
        let call = if undo { DoubtfulCall::Undo } else { DoubtfulCall::Execute };
        Ok(Self {
            run: DoubtRun {
                run_id: run.id,
                title: title(&run.request_payload, run.workflow_id.as_deref()),
                workflow_id: run.workflow_id.clone(),
                actor: run.actor.clone(),
                run_status: run.status,
            },
            step_id: step.id,
            call,
            reason: if undo { undo_reason(run, step.id)? } else { call_reason(step.error.as_ref())? },
            node_id: step.node_id,
            map_index: step.map_index.map(i64::from),
            tool: step.tool,
            attempt: step.attempt.into(),
            since: step.in_doubt_since,
            resolution: DoubtResolution {
                resolve_url: call.resolve_url(run.id, step.id),
                resolve_commands: call.resolve_commands(run.id, step.id).into(),
            },
        })
    }
}

fn call_reason(error: Option<&Json>) -> Result<Option<String>, DamagedRows> {
    Ok(error.map(Json::decode::<ErrorBody>).transpose()?.map(|error| error.message))
}

/// Why the outcome of an undo is unknown, according to the last rollback.
fn undo_reason(run: &DoubtfulRun, step: Uuid) -> Result<Option<String>, DamagedRows> {
    let rollback: Option<RollbackView> = run.rollback.as_ref().map(Json::decode).transpose()?;
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

    pub(in crate::flow) fn resolve_url(self, run: Uuid, step: Uuid) -> String {
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
