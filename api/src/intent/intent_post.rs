//! `POST /intents`: an envelope is checked and does what it asks for.
//!
//! The signature inside the envelope proves who issued it, so the request itself is not signed. The Router records
//! every verdict, so the gate does not record its refusals again.

use crate::caller::Caller;
use crate::edge::Edge;
use crate::error_responses::WriteErrors;
use crate::extract;
use crate::gate::RecordedRefusal;
use crate::gate::received::ReceivedRequest;
use crate::problem::ApiError;
use crate::trace::RunSeed;
use crate::wire::JsonObject;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use chimera_core::error::Code;
use chimera_engine::EngineError;
use chimera_engine::intent::{self, AcceptedIntent, IntentContext, IntentRouter};
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;
use utoipa::ToSchema;

/// An accepted intent.
#[derive(Serialize, ToSchema)]
pub(crate) struct AcceptedDocument {
    /// Always `accepted`.
    status: &'static str,
    /// What the intent did. The members depend on its type.
    #[schema(value_type = JsonObject)]
    result: Value,
    /// `trace_id` of the envelope; the trace of the request if it has none.
    trace_id: String,
}

impl From<AcceptedIntent> for AcceptedDocument {
    fn from(accepted: AcceptedIntent) -> Self {
        let AcceptedIntent { result, trace_id } = accepted;
        Self { status: "accepted", result, trace_id }
    }
}

/// Submits a signed intent.
#[utoipa::path(
    post,
    path = "/intents",
    tag = "intent",
    request_body(content = JsonObject, description = "A signed envelope; `GET /schemas/envelope.json` has its schema"),
    responses((status = 200, body = AcceptedDocument, description = "The intent was accepted"), WriteErrors)
)]
pub(crate) async fn submit(
    State(edge): State<Edge>,
    caller: Caller,
    Extension(shown): Extension<Arc<ReceivedRequest>>,
    seed: RunSeed,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    extract::require_json(&headers)?;
    let context = IntentContext { run_id: seed.run_id, parent_span: seed.span };
    let submitted = Box::pin(intent::submit(router(&edge)?, &caller.permit, &shown.body, context)).await;
    Ok(match submitted {
        Ok(accepted) => Json(AcceptedDocument::from(accepted)).into_response(),
        Err(error @ EngineError::Refused(_)) => (Extension(RecordedRefusal), ApiError::from(error)).into_response(),
        // The Router has recorded nothing, so the gate does.
        Err(error) => ApiError::from(error).into_response(),
    })
}

pub(super) fn router(edge: &Edge) -> Result<&IntentRouter, ApiError> {
    edge.entry_points
        .intents
        .as_deref()
        .ok_or_else(|| ApiError::new(Code::NotFound, "intents are not configured on this server"))
}
