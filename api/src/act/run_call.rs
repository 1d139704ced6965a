//! `POST /workflows/{id}/call`: calls a workflow like a function.
//!
//! The body is the inputs, the response is the result. `Location` names the run. If it does not end in
//! time, the response is its current status, and the run continues.

use super::act_post;
use super::idempotency::{DuplicateWord, plain_key};
use crate::caller::Caller;
use crate::edge::Edge;
use crate::error_responses::WriteErrors;
use crate::extract::{ApiJson, ApiQuery};
use crate::flow::start_response::started_document;
use crate::flow::wire::StartedDocument;
use crate::params;
use crate::problem::ApiError;
use crate::trace::RunSeed;
use crate::wire::{AnyJson, JsonObject};
use axum::Json;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use chimera_core::access::Level;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::run::RunStatus;
use chimera_core::limits;
use chimera_engine::act::{self, ActOutcome, ActRequest, Objective};
use chimera_engine::flow::RunProgress;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;
use utoipa::IntoParams;
use uuid::Uuid;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallWorkflowQuery {
    /// How long to wait for the result, in seconds; 30 if omitted.
    wait: Option<f64>,
    /// A call with a key that was used starts no second run and is refused with `CONFLICT_IDEMPOTENCY`, which names the run.
    idempotency_key: Option<String>,
}

/// The head of the request: which workflow, how long to wait, and the run that it starts.
pub(crate) struct WorkflowCall {
    id: String,
    query: CallWorkflowQuery,
    seed: RunSeed,
}

impl FromRequestParts<Edge> for WorkflowCall {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, edge: &Edge) -> Result<Self, Response> {
        let Path(id) = Path::from_request_parts(parts, edge).await.map_err(IntoResponse::into_response)?;
        let ApiQuery(query) = ApiQuery::from_request_parts(parts, edge).await.map_err(IntoResponse::into_response)?;
        let seed = RunSeed::from_request_parts(parts, edge).await.map_err(IntoResponse::into_response)?;
        Ok(Self { id, query, seed })
    }
}

/// Runs a workflow and returns its result.
#[utoipa::path(
    post,
    path = "/workflows/{id}/call",
    tag = "flow",
    params(("id" = String, Path, description = "Workflow id"), CallWorkflowQuery),
    request_body(content = JsonObject, description = "The inputs"),
    responses(
        (status = 200, body = AnyJson, description = "The result"),
        (status = 202, body = StartedDocument, description = "The run has not ended yet; it continues"),
        WriteErrors
    )
)]
pub(crate) async fn call(
    State(edge): State<Edge>,
    caller: Caller,
    WorkflowCall { id, query, seed }: WorkflowCall,
    ApiJson(inputs): ApiJson<Value>,
) -> Result<Response, ApiError> {
    let wait = params::parse_wait(query.wait)?.unwrap_or(limits::RUN_CALL_WAIT_DEFAULT);
    let id = params::workflow(&id)?;
    let request = json!({"workflow_id": id, "inputs": inputs});
    let what = Objective::Workflow { id: id.to_owned(), version: None, inputs };
    let key = query.idempotency_key.map(|key| plain_key(key, DuplicateWord::Conflict));
    let ask = ActRequest { key, ..act_post::default_act(what, request, seed) };
    let acted = act::act(act_post::actions(&edge)?, &caller.permit, ask).await?;
    caller.release_memory();
    let ActOutcome::Started(begun) = acted else { return Err(ApiError::internal()) };
    let mut started = begun.started;
    let wait = wait.min(edge.wait_max());
    // Idle or timed out: either way the response is the current status.
    drop(timeout(wait, started.progress.wait_for(|progress| progress.is_resting)).await);
    let progress = started.progress.borrow().clone();
    call_response(started.run_id, started.level, &progress)
}

fn call_response(run: Uuid, level: Level, progress: &RunProgress) -> Result<Response, ApiError> {
    let place = [(header::LOCATION, format!("/runs/{run}"))];
    let Some(ended) = &progress.ended else {
        let started = started_document(run, progress.status, level);
        return Ok((StatusCode::ACCEPTED, place, Json(started)).into_response());
    };
    if progress.status == RunStatus::Completed {
        return Ok((place, Json(ended.result.as_deref())).into_response());
    }
    let error = ended.error.clone().unwrap_or_else(|| ErrorBody::new(Code::Internal, "the run failed"));
    Err(ApiError::from(error).with("run_id", run.to_string()))
}
