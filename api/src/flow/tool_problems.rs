//! `GET /tools/problems`: lists the files that declare tools and can't be used as they are.

use crate::caller::Caller;
use crate::error_responses::ReadErrors;
use crate::flow::wire::ToolProblemPage;
use crate::problem::ApiError;
use axum::Json;
use chimera_engine::flow::tool_problems;

/// Lists broken tool files.
///
/// Empty for anybody but an operator.
#[utoipa::path(
    get,
    path = "/tools/problems",
    tag = "flow",
    responses((status = 200, body = ToolProblemPage, description = "All broken tool files of this node"), ReadErrors)
)]
pub(crate) async fn list(caller: Caller) -> Result<Json<ToolProblemPage>, ApiError> {
    Ok(Json(tool_problems(&caller.flow, &caller.permit).into()))
}
