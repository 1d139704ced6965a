//! `DELETE /workflows/{id}/share`: lets only its own tenant start a workflow.

use super::workflow_share::WorkflowShare;
use crate::caller::Caller;
use crate::place;
use crate::problem::ApiError;
use crate::refusals::Changing;
use axum::Json;
use axum::extract::Path;

/// Shares a workflow no more.
///
/// For an operator. Runs that other tenants have started keep the version that they follow.
#[utoipa::path(
    delete,
    path = "/workflows/{id}/share",
    tag = "flow",
    params(("id" = String, Path, description = "The workflow's id")),
    responses((status = 200, body = WorkflowShare, description = "It is not shared"), Changing)
)]
pub(crate) async fn unshare(caller: Caller, Path(id): Path<String>) -> Result<Json<WorkflowShare>, ApiError> {
    caller.flow.share_workflow(&caller.permit, place::workflow(&id)?, false).await?;
    Ok(Json(WorkflowShare { workflow_id: id, shared: false }))
}
