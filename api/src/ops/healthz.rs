//! `GET /healthz`: liveness. It checks no dependencies.

use axum::Json;
use serde::Serialize;
use utoipa::ToSchema;

/// Liveness of the process.
#[derive(Serialize, ToSchema)]
pub(crate) struct Health {
    /// Always `alive`.
    status: &'static str,
    /// Version of this build.
    version: &'static str,
}

/// Reports that the process is alive.
#[utoipa::path(get, path = "/healthz", tag = "ops", responses((status = 200, body = Health, description = "Alive")))]
pub(crate) async fn healthz() -> Json<Health> {
    Json(Health { status: "alive", version: env!("CARGO_PKG_VERSION") })
}
