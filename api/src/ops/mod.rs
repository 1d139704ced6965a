//! Operational endpoints: health, readiness, metrics, documentation.

pub(crate) mod docs;
pub(crate) mod errors;
pub(crate) mod healthz;
pub(crate) mod metrics;
pub(crate) mod openapi;
pub(crate) mod readyz;
pub(crate) mod schema;
pub(crate) mod webhooks;
