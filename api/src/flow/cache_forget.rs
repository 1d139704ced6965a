//! `DELETE /workflows/{id}/cache`: forgets recorded outputs of a workflow, one or all.

use crate::caller::Caller;
use crate::extract::ApiQuery;
use crate::place;
use crate::problem::ApiError;
use crate::refusals::Changing;
use axum::extract::Path;
use axum::http::StatusCode;
use serde::Deserialize;

/// Which.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    key: Option<String>,
}

/// Forgets recorded outputs.
#[utoipa::path(
    delete,
    path = "/workflows/{id}/cache",
    tag = "flow",
    params(
        ("id" = String, Path, description = "The workflow's id"),
        ("key" = Option<String>, Query, description = "One key; all without it"),
    ),
    responses((status = 204, description = "They are forgotten"), Changing)
)]
pub(crate) async fn forget(
    caller: Caller,
    Path(id): Path<String>,
    ApiQuery(which): ApiQuery<Which>,
) -> Result<StatusCode, ApiError> {
    caller.flow.invalidate(&caller.permit, place::workflow(&id)?, which.key.as_deref()).await?;
    Ok(StatusCode::NO_CONTENT)
}
