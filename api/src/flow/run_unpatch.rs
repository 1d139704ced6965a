//! `DELETE /runs/{id}/patches/{number}`: removes the last patch, while none of its nodes has started.

use crate::caller::Caller;
use crate::error_responses::WriteErrors;
use crate::flow::wire::Accepted;
use crate::params;
use crate::problem::ApiError;
use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use chimera_engine::flow;

/// Removes a patch.
#[utoipa::path(
    delete,
    path = "/runs/{id}/patches/{number}",
    tag = "flow",
    params(
        ("id" = uuid::Uuid, Path, description = "Run id"),
        ("number" = String, Path, description = "Patch number"),
    ),
    responses((status = 202, body = Accepted, description = "The signal was sent to the run"), WriteErrors)
)]
pub(crate) async fn unpatch(
    caller: Caller,
    Path((id, number)): Path<(String, String)>,
) -> Result<(StatusCode, Json<Accepted>), ApiError> {
    let run = params::run(&id)?;
    let number = number.parse().map_err(|_| params::malformed(&number, "a patch number"))?;
    flow::withdraw_patch(&caller.flow, &caller.permit, run, number).await?;
    Ok((StatusCode::ACCEPTED, Json(params::accepted(&caller, run).await?)))
}
