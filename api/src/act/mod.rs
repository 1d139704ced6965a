//! Endpoints that start, repeat and patch runs.

pub(crate) mod act_post;
pub(crate) mod acted;
pub(crate) mod idempotency;
pub(crate) mod run_call;
pub(crate) mod run_patch;
pub(crate) mod run_replay;
pub(crate) mod run_retry;
