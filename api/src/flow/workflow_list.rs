//! `GET /workflows`: the newest version of each workflow.

use crate::caller::Caller;
use crate::extract::ApiQuery;
use crate::place;
use crate::problem::ApiError;
use crate::refusals::Asking;
use axum::response::Response;
use serde::Deserialize;
use utoipa::ToSchema;

/// Which page.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    limit: Option<usize>,
    cursor: Option<String>,
}

/// A page of workflows.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct WorkflowPage {
    /// By id.
    items: Vec<WorkflowEntry>,
    /// Where the next page begins.
    next_cursor: Option<String>,
}

/// A workflow in a listing.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct WorkflowEntry {
    /// Its id.
    workflow_id: String,
    /// Its newest version.
    version: i64,
    /// SHA-256 of its canonical JSON.
    digest: String,
    /// What it does, as its document says.
    description: Option<String>,
    /// Who applied it; null for one that another tenant shares.
    created_by: Option<String>,
    /// When.
    created_at: Option<String>,
    /// Every tenant may start it.
    shared: bool,
}

/// Lists workflows.
#[utoipa::path(
    get,
    path = "/workflows",
    tag = "flow",
    params(
        ("limit" = Option<usize>, Query, description = "Workflows of the page"),
        ("cursor" = Option<String>, Query, description = "Where the page before ended"),
    ),
    responses((status = 200, body = WorkflowPage, description = "A page"), Asking)
)]
pub(crate) async fn list(caller: Caller, ApiQuery(which): ApiQuery<Which>) -> Result<Response, ApiError> {
    let limit = place::page_rows(which.limit)?;
    let shown = caller.flow.list_workflows(&caller.permit, limit, which.cursor.as_deref()).await?;
    place::document(&caller, shown).await
}
