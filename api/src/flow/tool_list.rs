//! `GET /tools`: lists tools with their schemas and policy metadata.

use crate::caller::Caller;
use crate::error_responses::ReadErrors;
use crate::flow::wire::ToolPage;
use crate::problem::ApiError;
use axum::Json;
use chimera_engine::flow;

/// Lists tools.
#[utoipa::path(
    get,
    path = "/tools",
    tag = "flow",
    responses((status = 200, body = ToolPage, description = "All tools"), ReadErrors)
)]
pub(crate) async fn list(caller: Caller) -> Result<Json<ToolPage>, ApiError> {
    Ok(Json(flow::list_tools(&caller.flow, &caller.permit).into()))
}
