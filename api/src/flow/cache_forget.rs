//! `DELETE /workflows/{id}/cache`: deletes cached outputs of a workflow.

use crate::caller::Caller;
use crate::error_responses::WriteErrors;
use crate::extract::ApiQuery;
use crate::params;
use crate::problem::ApiError;
use axum::extract::Path;
use axum::http::StatusCode;
use chimera_engine::flow;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeleteCacheQuery {
    key: Option<String>,
}

/// Deletes cached outputs of a workflow.
#[utoipa::path(
    delete,
    path = "/workflows/{id}/cache",
    tag = "flow",
    params(
        ("id" = String, Path, description = "Workflow id"),
        ("key" = Option<String>, Query, description = "Cache key; all keys if omitted"),
    ),
    responses((status = 204, description = "Deleted"), WriteErrors)
)]
pub(crate) async fn forget(
    caller: Caller,
    Path(id): Path<String>,
    ApiQuery(which): ApiQuery<DeleteCacheQuery>,
) -> Result<StatusCode, ApiError> {
    flow::invalidate_outputs(&caller.flow, &caller.permit, params::workflow(&id)?, which.key.as_deref()).await?;
    Ok(StatusCode::NO_CONTENT)
}
