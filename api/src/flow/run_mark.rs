//! `PATCH /runs/{id}`: a failed run is to be rolled back. Nothing else of a run can be set.

use super::place;
use super::refusals::Changing;
use super::schema::Accepted;
use crate::access::Caller;
use crate::extract::ApiJson;
use crate::problem::ApiError;
use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use chimera_core::error::Code;
use chimera_core::flow::run::RunStatus;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

/// The status that is wanted.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MarkBody {
    /// `rolled_back`.
    #[schema(example = "rolled_back")]
    status: String,
}

/// Undoes a failed run; its status changes when everything is undone.
#[utoipa::path(
    patch,
    path = "/runs/{id}",
    tag = "flow",
    params(("id" = String, Path, description = "The run's id")),
    request_body = MarkBody,
    responses((status = 202, body = Accepted, description = "The run was told"), Changing)
)]
pub(crate) async fn mark(
    caller: Caller,
    Path(id): Path<String>,
    ApiJson(body): ApiJson<MarkBody>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let run = place::run(&id)?;
    let status = caller.flow.status(&caller.permit, run).await?;
    if body.status != RunStatus::RolledBack.as_str() {
        return Err(
            ApiError::new(Code::ValidationFailed, "a run can only be set to rolled_back").with("pointer", "/status")
        );
    }
    if status != RunStatus::Failed {
        let what = format!("only a failed run can be set to rolled_back; this one is {}", status.as_str());
        return Err(ApiError::new(Code::InvalidTransition, what));
    }
    caller.flow.rollback(&caller.permit, run, None, None).await?;
    Ok((StatusCode::ACCEPTED, Json(place::told(&caller, run).await?)))
}
