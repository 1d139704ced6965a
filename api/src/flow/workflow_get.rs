//! `GET /workflows/{id}`: one version of a workflow; the latest by default.

use crate::caller::Caller;
use crate::error_responses::ReadErrors;
use crate::extract::ApiQuery;
use crate::flow::wire::WorkflowDocument;
use crate::params;
use crate::problem::ApiError;
use axum::extract::Path;
use axum::response::Response;
use chimera_engine::flow;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GetWorkflowQuery {
    version: Option<i64>,
}

/// Retrieves a workflow.
#[utoipa::path(
    get,
    path = "/workflows/{id}",
    tag = "flow",
    params(
        ("id" = String, Path, description = "Workflow id"),
        ("version" = Option<i64>, Query, description = "Version number; the latest if omitted"),
    ),
    responses((status = 200, body = WorkflowDocument, description = "The workflow version"), ReadErrors)
)]
pub(crate) async fn get(
    caller: Caller,
    Path(id): Path<String>,
    ApiQuery(which): ApiQuery<GetWorkflowQuery>,
) -> Result<Response, ApiError> {
    let found = flow::show_workflow(&caller.flow, &caller.permit, params::workflow(&id)?, which.version).await?;
    params::json(&WorkflowDocument::from(found))
}
