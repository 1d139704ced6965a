//! A worker completed a call.

use super::lease::{Lease, leased_item};
use super::report::{Report, report};
use crate::access::Permit;
use crate::error::EngineError;
use crate::flow::{Flow, definitions};
use crate::rows;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::run::check_output;
use chimera_core::flow::tables::{StepBrief, WorkItemRow, steps};
use chimera_core::record::{Scope, StoredRow};
use chimera_core::tool::Spec;
use serde_json::Value;
use std::sync::Arc;

/// Records the output of a call. It must match the output schema of the tool.
pub async fn complete(flow: &Flow, permit: &Permit, lease: &Lease, output: Value) -> Result<(), EngineError> {
    let item = leased_item(flow, permit, lease).await?;
    check_output(&output).map_err(|reason| {
        EngineError::refused(Code::PayloadTooLarge, format!("the output can't be stored: {reason}"))
    })?;
    // A tool that is not configured here any more is checked by the run, which then knows more.
    if let Some(tool) = tool_of_item(flow, permit, &item).await? {
        tool.output.check(&output).map_err(|faults| {
            let message = format!("the output does not match the output schema of {}", item.tool);
            let faults = serde_json::to_value(faults).unwrap_or_default();
            EngineError::Refused(Box::new(ErrorBody::new(Code::ValidationFailed, message).with("faults", faults)))
        })?;
    }
    report(flow, permit, lease, &Report::Output(output)).await
}

/// The tool of an item, in the definition that its step began with.
async fn tool_of_item(flow: &Flow, permit: &Permit, item: &WorkItemRow) -> Result<Option<Arc<Spec>>, EngineError> {
    let scope = Scope::Tenant(permit.tenant().to_owned());
    let step = StepBrief::select(scope).with(steps::id, item.step_id);
    match rows::find::<StepBrief>(&*flow.inner.parts.records, step).await? {
        Some(step) => definitions::tool_of_step(flow, permit, &step).await,
        None => Ok(None),
    }
}
