//! `POST /runs/{id}/resume`: lets a paused run go on.

use crate::caller::Caller;
use crate::flow::schema::Accepted;
use crate::place;
use crate::problem::ApiError;
use crate::refusals::Changing;
use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use serde_json::Value;

/// Lets a paused run go on.
#[utoipa::path(
    post,
    path = "/runs/{id}/resume",
    tag = "flow",
    params(("id" = String, Path, description = "The run's id")),
    responses((status = 202, body = Accepted, description = "The run was told"), Changing)
)]
pub(crate) async fn resume(caller: Caller, Path(id): Path<String>) -> Result<(StatusCode, Json<Value>), ApiError> {
    let run = place::run(&id)?;
    caller.flow.resume(&caller.permit, run).await?;
    Ok((StatusCode::ACCEPTED, Json(place::told(&caller, run).await?)))
}
