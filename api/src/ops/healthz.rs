//! `GET /healthz`: the process is alive. It asks nothing and nobody.

use axum::Json;
use serde::Serialize;
use utoipa::ToSchema;

/// The process answers.
#[derive(Serialize, ToSchema)]
pub(crate) struct Health {
    /// Always `alive`.
    status: &'static str,
    /// The version of this build.
    version: &'static str,
}

/// Says that the process is alive.
#[utoipa::path(get, path = "/healthz", tag = "ops", responses((status = 200, body = Health, description = "Alive")))]
pub(crate) async fn healthz() -> Json<Health> {
    Json(Health { status: "alive", version: env!("CARGO_PKG_VERSION") })
}
