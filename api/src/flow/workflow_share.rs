//! `PUT /workflows/{id}/share`: shares a workflow with all tenants.

use crate::caller::Caller;
use crate::error_responses::WriteErrors;
use crate::params;
use crate::problem::ApiError;
use axum::Json;
use axum::extract::Path;
use chimera_engine::flow;
use serde::Serialize;
use utoipa::ToSchema;

/// Whether a workflow is shared.
#[derive(Serialize, ToSchema)]
pub(crate) struct WorkflowShare {
    /// Workflow id.
    pub(super) workflow_id: String,
    /// Whether every tenant may start it.
    pub(super) shared: bool,
}

/// Shares a workflow with all tenants.
///
/// Operators only. Other tenants can read and start it by its name, unless they have a workflow of that name. Their
/// runs use their own tools, secrets and limits.
#[utoipa::path(
    put,
    path = "/workflows/{id}/share",
    tag = "flow",
    params(("id" = String, Path, description = "Workflow id")),
    responses((status = 200, body = WorkflowShare, description = "The workflow is shared"), WriteErrors)
)]
pub(crate) async fn share(caller: Caller, Path(id): Path<String>) -> Result<Json<WorkflowShare>, ApiError> {
    flow::share_workflow(&caller.flow, &caller.permit, params::workflow(&id)?, true).await?;
    Ok(Json(WorkflowShare { workflow_id: id, shared: true }))
}
