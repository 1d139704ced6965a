//! `DELETE /workflows/{id}/share`: stops sharing a workflow with other tenants.

use super::workflow_share::WorkflowShare;
use crate::caller::Caller;
use crate::error_responses::WriteErrors;
use crate::params;
use crate::problem::ApiError;
use axum::Json;
use axum::extract::Path;
use chimera_engine::flow;

/// Stops sharing a workflow.
///
/// Operators only. Runs that other tenants have started keep their version.
#[utoipa::path(
    delete,
    path = "/workflows/{id}/share",
    tag = "flow",
    params(("id" = String, Path, description = "Workflow id")),
    responses((status = 200, body = WorkflowShare, description = "The workflow is not shared"), WriteErrors)
)]
pub(crate) async fn unshare(caller: Caller, Path(id): Path<String>) -> Result<Json<WorkflowShare>, ApiError> {
    flow::share_workflow(&caller.flow, &caller.permit, params::workflow(&id)?, false).await?;
    Ok(Json(WorkflowShare { workflow_id: id, shared: false }))
}
