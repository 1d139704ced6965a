//! Tells a caller early that a call would be beyond a limit.
//!
//! Nothing is counted here. The run decides when it makes the call, and may find less room than now.

use super::read::read_windows;
use crate::error::EngineError;
use crate::flow::Flow;
use chimera_core::flow::plan::is_known;
use chimera_core::flow::policy::Action;
use chimera_core::flow::reservation::{BeyondLimit, BeyondReason, Limit, Measure};
use chimera_core::limits::CALL_LIMITS_MAX;
use uuid::Uuid;

/// When a call is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallTime {
    Now,
    /// After somebody has approved it: there may be room again by then.
    Later,
}

/// Refuses a call that a limit denies now, or at any time. What is not known of its input yet is left to the run.
pub(crate) async fn check_limits(flow: &Flow, action: &Action<'_>, time: CallTime) -> Result<(), EngineError> {
    let inner = &flow.inner;
    if !inner.parts.policy.has_limits() {
        return Ok(());
    }
    let limits = inner.parts.policy.limits(action);
    if limits.is_empty() {
        return Ok(());
    }
    let facts = read_windows(inner, action.tenant, &limits).await?;
    let now = inner.parts.clock.steady();
    for (position, limit) in limits.iter().enumerate().filter(|(_, limit)| is_amount_known(limit, action)) {
        let checked = match facts.0.iter().find(|window| *window.key() == limit.key) {
            Some(window) if position < CALL_LIMITS_MAX => limit.check(window, Uuid::nil(), now),
            _ => Err(BeyondReason::too_many_limits()),
        };
        let Err(why) = checked else { continue };
        let is_denied = match why {
            BeyondReason::Unreadable(_) => true,
            BeyondReason::Reached(_) => {
                limit.beyond == BeyondLimit::Deny && (time == CallTime::Now || why.is_lasting())
            }
        };
        if is_denied {
            return Err(limit.error(&why).into());
        }
    }
    Ok(())
}

fn is_amount_known(limit: &Limit, action: &Action<'_>) -> bool {
    match &limit.measure {
        Measure::Count => true,
        Measure::Sum { of } => is_known(action.input, of),
    }
}
