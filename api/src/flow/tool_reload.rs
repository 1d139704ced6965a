//! `POST /tools/reload`: reads the files that declare tools again.

use crate::caller::Caller;
use crate::error_responses::WriteErrors;
use crate::flow::wire::{ToolFileProblem, ToolReload};
use crate::problem::ApiError;
use axum::Json;
use chimera_engine::flow::request_reload;

/// Reloads declared tools.
///
/// Operators only. Changed files are noticed without this, a few seconds later. Runs that began with another definition
/// of a tool keep it.
#[utoipa::path(
    post,
    path = "/tools/reload",
    tag = "flow",
    responses((status = 200, body = ToolReload, description = "The declared tools are those of the files"), WriteErrors)
)]
pub(crate) async fn reload(caller: Caller) -> Result<Json<ToolReload>, ApiError> {
    let reloaded = request_reload(&caller.flow, &caller.permit).await?;
    Ok(Json(ToolReload {
        changed: reloaded.is_changed,
        declared: reloaded.declared,
        problems: reloaded.problems.into_iter().map(ToolFileProblem::from).collect(),
    }))
}
