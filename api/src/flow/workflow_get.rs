//! `GET /workflows/{id}`: a version of a workflow, the newest unless another is asked for.

use super::place;
use super::refusals::Asking;
use super::schema::WorkflowDocument;
use crate::access::Caller;
use crate::extract::ApiQuery;
use crate::problem::ApiError;
use axum::Json;
use axum::extract::Path;
use serde::Deserialize;
use serde_json::Value;

/// Which version.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    version: Option<i64>,
}

/// Shows a workflow.
#[utoipa::path(
    get,
    path = "/workflows/{id}",
    tag = "flow",
    params(
        ("id" = String, Path, description = "The workflow's id"),
        ("version" = Option<i64>, Query, description = "Its version; the newest without it"),
    ),
    responses((status = 200, body = WorkflowDocument, description = "The version"), Asking)
)]
pub(crate) async fn get(
    caller: Caller,
    Path(id): Path<String>,
    ApiQuery(which): ApiQuery<Which>,
) -> Result<Json<Value>, ApiError> {
    Ok(Json(caller.flow.show_workflow(&caller.permit, place::workflow(&id)?, which.version).await?))
}
