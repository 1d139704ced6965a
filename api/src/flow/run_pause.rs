//! `POST /runs/{id}/pause`: pauses a run. Steps in flight finish, and no new ones start.

use crate::caller::Caller;
use crate::error_responses::WriteErrors;
use crate::flow::wire::Accepted;
use crate::params;
use crate::problem::ApiError;
use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use chimera_engine::flow;

/// Pauses a run.
#[utoipa::path(
    post,
    path = "/runs/{id}/pause",
    tag = "flow",
    params(("id" = uuid::Uuid, Path, description = "Run id")),
    responses((status = 202, body = Accepted, description = "The signal was sent to the run"), WriteErrors)
)]
pub(crate) async fn pause(caller: Caller, Path(id): Path<String>) -> Result<(StatusCode, Json<Accepted>), ApiError> {
    let run = params::run(&id)?;
    flow::pause(&caller.flow, &caller.permit, run).await?;
    Ok((StatusCode::ACCEPTED, Json(params::accepted(&caller, run).await?)))
}
