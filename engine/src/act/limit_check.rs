//! Refuses a request whose calls are beyond a limit now, so that its caller learns it at once.
//!
//! A run that waits for approval makes its calls later, when there may be room again. It is refused only what a limit
//! denies at any time.

use super::propose::Proposal;
use crate::access::Permit;
use crate::error::EngineError;
use crate::flow::{self, CallTime, Flow};
use chimera_core::access::Level;
use chimera_core::flow::policy::Action;

pub(super) async fn check_limits(
    flow: &Flow,
    permit: &Permit,
    proposal: &Proposal,
    level: Level,
) -> Result<(), EngineError> {
    let time = if level.needs_approval() { CallTime::Later } else { CallTime::Now };
    for (at, step) in proposal.plan.steps.iter().enumerate() {
        let Some(tool) = proposal.tools.iter().find(|tool| tool.name == step.tool) else { continue };
        let (tenant, actor) = (permit.tenant(), permit.actor());
        let action = Action { tenant, actor, level, node: &step.id, tool, input: &step.input };
        flow::check_limits(flow, &action, time).await.map_err(|error| match error {
            EngineError::Refused(body) => {
                body.with("pointer", format!("/steps/{at}")).with("tool", step.tool.as_str()).into()
            }
            error => error,
        })?;
    }
    Ok(())
}
