//! Refuses a proposal because of one of its calls, before anything is written: a rule denies it, or a limit over time.
//!
//! The run decides again when it makes a call. Here the caller learns at once what would fail anyway.

use super::Actions;
use super::propose::Proposal;
use crate::access::Permit;
use crate::error::EngineError;
use crate::flow::{self, CallTime, Flow};
use chimera_core::access::Level;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::policy::{Action, PolicyVerdict};

/// Refuses what the rules deny.
pub(super) fn check_policy(
    actions: &Actions,
    permit: &Permit,
    proposal: &Proposal,
    level: Level,
) -> Result<(), EngineError> {
    for (at, action) in proposal.actions(permit, level) {
        if let PolicyVerdict::Deny { rule, reason } = actions.flow.evaluate(&action) {
            let body = ErrorBody::new(Code::PolicyDenied, reason).with("rule", rule);
            return Err(located(body, at, &action).into());
        }
    }
    Ok(())
}

/// Refuses what is beyond a limit now. A run that waits for approval makes its calls later, when there may be room
/// again: it is refused only what a limit denies at any time.
pub(super) async fn check_limits(
    flow: &Flow,
    permit: &Permit,
    proposal: &Proposal,
    level: Level,
) -> Result<(), EngineError> {
    let time = if level.needs_approval() { CallTime::Later } else { CallTime::Now };
    for (at, action) in proposal.actions(permit, level) {
        flow::check_limits(flow, &action, time).await.map_err(|error| match error {
            EngineError::Refused(body) => located(*body, at, &action).into(),
            error => error,
        })?;
    }
    Ok(())
}

/// The refusal with the step that it is about.
fn located(body: ErrorBody, at: usize, action: &Action<'_>) -> ErrorBody {
    body.with("pointer", format!("/steps/{at}")).with("tool", action.tool.name.as_str())
}
