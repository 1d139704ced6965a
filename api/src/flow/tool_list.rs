//! `GET /tools`: lists tools with their schemas and policy metadata.

use crate::caller::Caller;
use crate::error_responses::ReadErrors;
use crate::problem::ApiError;
use axum::Json;
use serde_json::Value;
use utoipa::ToSchema;

/// All tools.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct ToolPage {
    /// Ordered by name.
    items: Vec<ToolDocument>,
    /// Always null: the list is complete.
    next_cursor: Option<String>,
}

/// A tool.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct ToolDocument {
    /// Name, as used in `fn` of a workflow node.
    name: String,
    /// Changes whenever the same input may have a different effect.
    version: String,
    /// What it does.
    description: String,
    /// Metadata that policies use.
    #[schema(value_type = Object)]
    metadata: Value,
    /// Kind of effect: `pure`, `read` or `write`.
    effect: String,
    /// Input member, and its values, for which a call only reads.
    #[schema(value_type = Option<Object>)]
    reads_when: Option<Value>,
    /// Whether the tool can check if an earlier call took effect.
    checkable: bool,
    /// Whether the tool can undo a call.
    reversible: bool,
    /// Whether undo is idempotent, so that one interrupted by a crash is sent again.
    undo_repeatable: bool,
    /// Default timeout of a call.
    timeout_ms: u64,
    /// JSON Schema of the input.
    #[schema(value_type = Object)]
    input_schema: Value,
    /// JSON Schema of the output.
    #[schema(value_type = Object)]
    output_schema: Value,
}

/// Lists tools.
#[utoipa::path(
    get,
    path = "/tools",
    tag = "flow",
    responses((status = 200, body = ToolPage, description = "All tools"), ReadErrors)
)]
pub(crate) async fn list(caller: Caller) -> Result<Json<Value>, ApiError> {
    Ok(Json(caller.flow.list_tools(&caller.permit)))
}
