//! What requests to act share: who may do what, the engine that runs it, the planner of goals, and known keys.

use super::idempotency::KeyState;
use crate::access::{Access, Permit};
use crate::act::port::Planner;
use crate::error::EngineError;
use crate::flow::Flow;
use std::sync::Arc;

/// Starts and changes runs for authenticated callers.
pub struct Actions {
    pub(super) access: Arc<Access>,
    pub(super) flow: Flow,
    pub(super) planner: Arc<dyn Planner>,
    pub(super) keys: KeyState,
}

impl Actions {
    #[must_use]
    pub fn new(access: Arc<Access>, flow: Flow, planner: Arc<dyn Planner>) -> Self {
        Self { access, flow, planner, keys: KeyState::default() }
    }

    #[must_use]
    pub const fn access(&self) -> &Arc<Access> {
        &self.access
    }

    #[must_use]
    pub(crate) const fn flow(&self) -> &Flow {
        &self.flow
    }

    /// Runs a piece of a request's work. CPU-heavy work does not block other requests.
    pub async fn work<T>(
        &self,
        permit: &Permit,
        may_take_long: bool,
        work: impl FnOnce() -> T,
    ) -> Result<T, EngineError> {
        Ok(self.flow.acquire_work_slot(&permit.claimant(), may_take_long).await?.run(work))
    }
}
