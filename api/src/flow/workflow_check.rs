//! `POST /workflows/{id}/check`: whether a document could be applied, without applying it.

use crate::caller::Caller;
use crate::extract::JsonText;
use crate::place;
use crate::problem::ApiError;
use crate::refusals::Changing;
use axum::Json;
use axum::extract::Path;
use chimera_core::error::Code;
use serde::Serialize;
use utoipa::ToSchema;

/// A document without faults.
#[derive(Serialize, ToSchema)]
pub(crate) struct CheckedDocument {
    /// Its id.
    workflow_id: String,
    /// SHA-256 of its canonical JSON.
    digest: String,
    /// How many nodes it has.
    nodes: usize,
    /// How many edges it has.
    edges: usize,
    /// Why it can't be started yet although it can be applied.
    not_startable: Option<String>,
}

/// Checks a workflow.
#[utoipa::path(
    post,
    path = "/workflows/{id}/check",
    tag = "flow",
    params(("id" = String, Path, description = "The workflow's id, as the document says it")),
    request_body(content = Object, description = "An AIR document"),
    responses((status = 200, body = CheckedDocument, description = "Nothing is wrong with it"), Changing)
)]
pub(crate) async fn check(
    caller: Caller,
    Path(id): Path<String>,
    JsonText(text): JsonText,
) -> Result<Json<CheckedDocument>, ApiError> {
    let graph = caller.flow.workflows().check(&caller.permit, &text).await?;
    let found = graph.document.workflow_id.clone();
    if found != place::new_workflow(&id)? {
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
