//! `GET /workflows`: lists the latest version of each workflow.

use crate::caller::Caller;
use crate::error_responses::ReadErrors;
use crate::extract::ApiQuery;
use crate::flow::wire::WorkflowPage;
use crate::params;
use crate::problem::ApiError;
use axum::response::Response;
use chimera_engine::flow;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListWorkflowsQuery {
    limit: Option<usize>,
    cursor: Option<String>,
}

/// Lists workflows.
#[utoipa::path(
    get,
    path = "/workflows",
    tag = "flow",
    params(
        ("limit" = Option<usize>, Query, description = "Maximum number of workflows"),
        ("cursor" = Option<String>, Query, description = "Cursor from the previous page"),
    ),
    responses((status = 200, body = WorkflowPage, description = "A page of workflows"), ReadErrors)
)]
pub(crate) async fn list(caller: Caller, ApiQuery(which): ApiQuery<ListWorkflowsQuery>) -> Result<Response, ApiError> {
    let limit = params::parse_limit(which.limit)?;
    let workflows = flow::list_workflows(&caller.flow, &caller.permit, limit, which.cursor.as_deref()).await?;
    params::page::<_, WorkflowPage>(&caller, workflows).await
}
