//! `POST /runs/{id}/pause`: holds a run: what is under way ends, nothing new starts.

use crate::caller::Caller;
use crate::flow::schema::Accepted;
use crate::place;
use crate::problem::ApiError;
use crate::refusals::Changing;
use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use serde_json::Value;

/// Holds a run.
#[utoipa::path(
    post,
    path = "/runs/{id}/pause",
    tag = "flow",
    params(("id" = String, Path, description = "The run's id")),
    responses((status = 202, body = Accepted, description = "The run was told"), Changing)
)]
pub(crate) async fn pause(caller: Caller, Path(id): Path<String>) -> Result<(StatusCode, Json<Value>), ApiError> {
    let run = place::run(&id)?;
    caller.flow.pause(&caller.permit, run).await?;
    Ok((StatusCode::ACCEPTED, Json(place::told(&caller, run).await?)))
}
