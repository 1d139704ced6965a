//! `GET /schemas/{name}`: a published schema, of the envelope or of the arguments of an intent.

use super::intent_post::router;
use crate::edge::Edge;
use crate::error_responses::ReadErrors;
use crate::problem::ApiError;
use crate::wire::JsonObject;
use axum::Json;
use axum::extract::{Path, State};
use chimera_core::error::Code;
use chimera_core::intent::schemas;
use serde_json::Value;

/// Returns a published JSON Schema.
#[utoipa::path(
    get,
    path = "/schemas/{name}",
    tag = "intent",
    params(("name" = String, Path, description = "`envelope.json`, or the type of an intent with `.json`")),
    responses(
        (status = 200, body = JsonObject, description = "The schema"),
        ReadErrors
    )
)]
pub(crate) async fn schema(State(edge): State<Edge>, Path(name): Path<String>) -> Result<Json<Value>, ApiError> {
    let router = router(&edge)?;
    let name = name.strip_suffix(".json").unwrap_or(&name);
    if name == schemas::ENVELOPE_NAME {
        return Ok(Json(router.envelope_schema().clone()));
    }
    match router.catalog().get(name) {
        Some(intent) => Ok(Json(intent.schema.document().clone())),
        None => Err(ApiError::new(Code::NotFound, format!("no schema `{name}`"))),
    }
}
