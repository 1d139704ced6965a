//! `POST /workflows/{id}/check`: validates a document without applying it.

use crate::caller::Caller;
use crate::error_responses::WriteErrors;
use crate::extract::JsonText;
use crate::params;
use crate::problem::ApiError;
use crate::wire::JsonObject;
use axum::Json;
use axum::extract::Path;
use chimera_core::error::Code;
use serde::Serialize;
use utoipa::ToSchema;

/// A valid workflow document.
#[derive(Serialize, ToSchema)]
pub(crate) struct CheckedDocument {
    /// Workflow id.
    workflow_id: String,
    /// SHA-256 of its canonical JSON.
    digest: String,
    /// Number of nodes.
    nodes: usize,
    /// Number of edges.
    edges: usize,
    /// Why the workflow can be applied but not started.
    #[schema(required)]
    not_startable: Option<String>,
}

/// Validates a workflow document.
#[utoipa::path(
    post,
    path = "/workflows/{id}/check",
    tag = "flow",
    params(("id" = String, Path, description = "Workflow id; must match the document")),
    request_body(content = JsonObject, description = "An AIR document"),
    responses((status = 200, body = CheckedDocument, description = "The document is valid"), WriteErrors)
)]
pub(crate) async fn check(
    caller: Caller,
    Path(id): Path<String>,
    JsonText(text): JsonText,
) -> Result<Json<CheckedDocument>, ApiError> {
    let graph = caller.flow.workflows().check(&caller.permit, &text).await?;
    let found = graph.document.workflow_id.clone();
    if found != params::check_new_workflow_id(&id)? {
        return Err(ApiError::new(Code::MalformedArgs, format!("the document belongs to {found}, not to {id}")));
    }
    Ok(Json(CheckedDocument {
        workflow_id: found,
        digest: graph.digest.to_string(),
        nodes: graph.nodes.len(),
        edges: graph.edges.len(),
        not_startable: graph.unsupported_problem().map(|problem| problem.reason),
    }))
}
