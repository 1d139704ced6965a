//! Tells a caller early that a call would be beyond a limit.
//!
//! Nothing is counted here. The run decides when it makes the call, and may find less room than now.

use super::read::read_windows;
use crate::error::EngineError;
use crate::flow::Flow;
use chimera_core::flow::policy::Action;
use chimera_core::flow::reservation::{BeyondLimit, BeyondReason};
use uuid::Uuid;

/// Refuses a call that a limit denies now. What can't be read from its input yet is left to the run.
pub(crate) async fn check_limits(flow: &Flow, action: &Action<'_>) -> Result<(), EngineError> {
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
    for limit in limits.iter().filter(|limit| limit.beyond == BeyondLimit::Deny) {
        let Some(window) = facts.0.iter().find(|window| *window.key() == limit.key) else { continue };
        if let Err(why @ BeyondReason::Reached(_)) = limit.check(window, Uuid::nil(), now) {
            return Err(limit.error(&why).into());
        }
    }
    Ok(())
}
