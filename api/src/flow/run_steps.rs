//! `GET /runs/{id}/steps`: the steps of a run and every call they made.

use super::place;
use super::refusals::Asking;
use super::schema::StepList;
use crate::access::Caller;
use crate::problem::ApiError;
use axum::Json;
use axum::extract::Path;
use serde_json::Value;

/// Lists the steps of a run.
#[utoipa::path(
    get,
    path = "/runs/{id}/steps",
    tag = "flow",
    params(("id" = String, Path, description = "The run's id")),
    responses((status = 200, body = StepList, description = "The steps"), Asking)
)]
pub(crate) async fn steps(caller: Caller, Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    Ok(Json(caller.flow.steps(&caller.permit, place::run(&id)?).await?))
}
