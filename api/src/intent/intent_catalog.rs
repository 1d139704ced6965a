//! `GET /intents/catalog`: the intents that this server accepts.

use super::intent_post::router;
use crate::caller::Caller;
use crate::edge::Edge;
use crate::error_responses::ReadErrors;
use crate::problem::ApiError;
use crate::wire::JsonObject;
use axum::Json;
use axum::extract::State;
use chimera_core::intent::{Dispatch, IntentDefinition};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// An intent.
#[derive(Serialize, ToSchema)]
pub(crate) struct IntentDocument {
    /// Type, as in `intent.type`.
    r#type: String,
    /// Short title; null if its schema has none.
    #[schema(required)]
    title: Option<String>,
    /// Path of the schema of its arguments.
    schema_path: String,
    /// JSON Schema of its arguments.
    #[schema(value_type = JsonObject)]
    schema: Value,
    /// The action that its actor needs. `kind/{id}` after `@` names the resource.
    capability: String,
    /// What it starts: `built_in`, `workflow` or `tool`.
    dispatch: &'static str,
    /// Example of its arguments; null if there is none.
    #[schema(value_type = Option<JsonObject>, required)]
    example: Option<Value>,
}

impl From<&IntentDefinition> for IntentDocument {
    fn from(intent: &IntentDefinition) -> Self {
        let resource = intent.requires.resource.as_ref().map(|(kind, _)| format!("@{kind}/{{id}}"));
        Self {
            r#type: intent.name.clone(),
            title: intent.title().map(str::to_owned),
            schema_path: format!("/schemas/{}.json", intent.name),
            schema: intent.schema.document().clone(),
            capability: format!("{}{}", intent.requires.action, resource.unwrap_or_default()),
            dispatch: match intent.dispatch {
                Dispatch::BuiltIn(_) => "built_in",
                Dispatch::Workflow(_) => "workflow",
                Dispatch::Tool(_) => "tool",
            },
            example: intent.example().cloned(),
        }
    }
}

/// The intents that this server accepts.
#[derive(Serialize, ToSchema)]
pub(crate) struct IntentPage {
    /// Ordered by type.
    items: Vec<IntentDocument>,
    /// Always null: the list is complete.
    #[schema(required)]
    next_cursor: Option<String>,
}

/// Lists the intents that the server accepts.
#[utoipa::path(
    get,
    path = "/intents/catalog",
    tag = "intent",
    responses((status = 200, body = IntentPage, description = "All intents"), ReadErrors)
)]
pub(crate) async fn list(State(edge): State<Edge>, _caller: Caller) -> Result<Json<IntentPage>, ApiError> {
    let items = router(&edge)?.catalog().iter().map(|intent| IntentDocument::from(&**intent)).collect();
    Ok(Json(IntentPage { items, next_cursor: None }))
}
