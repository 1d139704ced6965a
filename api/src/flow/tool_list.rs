//! `GET /tools`: what can be called, with schemas and what policies decide by.

use crate::caller::Caller;
use crate::problem::ApiError;
use crate::refusals::Asking;
use axum::Json;
use serde_json::Value;
use utoipa::ToSchema;

/// Every tool.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct ToolPage {
    /// By name.
    items: Vec<ToolDocument>,
    /// Always null: the list is whole.
    next_cursor: Option<String>,
}

/// A tool.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct ToolDocument {
    /// Its name, as workflows write it in `fn`.
    name: String,
    /// Changes whenever the same input may mean something else.
    version: String,
    /// What it does.
    description: String,
    /// What policies decide by.
    #[schema(value_type = Object)]
    metadata: Value,
    /// How far its work reaches: `pure`, `read` or `write`.
    effect: String,
    /// The input's member, and its values, with which a call only reads.
    #[schema(value_type = Option<Object>)]
    reads_when: Option<Value>,
    /// It can tell whether an effect happened.
    checkable: bool,
    /// It can undo what it did.
    reversible: bool,
    /// Undoing the same call twice does no harm, so an undo that a crash cut is sent again.
    undo_repeatable: bool,
    /// How long one call may take when the workflow doesn't say.
    timeout_ms: u64,
    /// JSON Schema of what it takes.
    #[schema(value_type = Object)]
    input_schema: Value,
    /// JSON Schema of what it gives.
    #[schema(value_type = Object)]
    output_schema: Value,
}

/// Lists the tools.
#[utoipa::path(
    get,
    path = "/tools",
    tag = "flow",
    responses((status = 200, body = ToolPage, description = "Every tool"), Asking)
)]
pub(crate) async fn list(caller: Caller) -> Result<Json<Value>, ApiError> {
    Ok(Json(caller.flow.list_tools(&caller.permit)))
}
