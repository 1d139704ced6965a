//! `GET /workflows`: lists the latest version of each workflow.

use crate::caller::Caller;
use crate::error_responses::ReadErrors;
use crate::extract::ApiQuery;
use crate::params;
use crate::problem::ApiError;
use axum::response::Response;
use serde::Deserialize;
use utoipa::ToSchema;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListWorkflowsQuery {
    limit: Option<usize>,
    cursor: Option<String>,
}

/// A page of workflows.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct WorkflowPage {
    /// Ordered by id.
    items: Vec<WorkflowEntry>,
    /// Cursor of the next page; null on the last one.
    next_cursor: Option<String>,
}

/// A workflow in a list.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct WorkflowEntry {
    /// Workflow id.
    workflow_id: String,
    /// Latest version number.
    version: i64,
    /// SHA-256 of its canonical JSON.
    digest: String,
    /// Description from the document.
    description: Option<String>,
    /// Actor who applied it; null if another tenant shares it.
    created_by: Option<String>,
    /// When it was applied.
    created_at: Option<String>,
    /// Whether every tenant may start it.
    shared: bool,
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
    let shown = caller.flow.list_workflows(&caller.permit, limit, which.cursor.as_deref()).await?;
    params::document(&caller, shown).await
}
