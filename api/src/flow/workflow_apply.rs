//! `PUT /workflows/{id}`: applies a document as the next version of a workflow.

use crate::caller::Caller;
use crate::error_responses::WriteErrors;
use crate::extract::JsonText;
use crate::params;
use crate::problem::ApiError;
use crate::wire::JsonObject;
use axum::Json;
use axum::extract::Path;
use serde::Serialize;
use utoipa::ToSchema;

/// The current version of a workflow.
#[derive(Serialize, ToSchema)]
pub(crate) struct AppliedDocument {
    /// Workflow id.
    workflow_id: String,
    /// Version number.
    version: i64,
    /// SHA-256 of its canonical JSON.
    digest: String,
    /// Whether this request created the version; an unchanged document creates none.
    created: bool,
}

/// Applies a workflow.
#[utoipa::path(
    put,
    path = "/workflows/{id}",
    tag = "flow",
    params(("id" = String, Path, description = "Workflow id; must match the document")),
    request_body(content = JsonObject, description = "An AIR document"),
    responses((status = 200, body = AppliedDocument, description = "The current version"), WriteErrors)
)]
pub(crate) async fn apply(
    caller: Caller,
    Path(id): Path<String>,
    JsonText(text): JsonText,
) -> Result<Json<AppliedDocument>, ApiError> {
    let applied = caller.flow.workflows().apply(&caller.permit, params::check_new_workflow_id(&id)?, &text).await?;
    Ok(Json(AppliedDocument {
        workflow_id: applied.workflow_id,
        version: applied.version,
        digest: applied.digest.to_string(),
        created: applied.is_new,
    }))
}
