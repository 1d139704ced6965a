//! How far a run got, for waiters in this process.

use chimera_core::error::ErrorBody;
use chimera_core::flow::run::{Run, RunStatus};
use serde_json::Value;
use std::sync::Arc;

/// A run's status, for waiters in this process.
#[derive(Clone, Debug, PartialEq)]
pub struct RunProgress {
    pub status: RunStatus,
    /// Nothing more happens without outside action or a timer.
    pub is_resting: bool,
    /// Set once the run has ended.
    pub ended: Option<Arc<RunOutcome>>,
}

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOutcome {
    pub result: Option<Arc<Value>>,
    pub error: Option<ErrorBody>,
}

impl RunProgress {
    pub(super) fn of(run: &Run, is_resting: bool) -> Self {
        let status = run.status();
        let ended = || Arc::new(RunOutcome { result: run.result().cloned(), error: run.failure().cloned() });
        Self { status, is_resting, ended: status.is_final().then(ended) }
    }
}
