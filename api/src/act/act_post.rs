//! `POST /act`: starts a run for a goal in words, a workflow with inputs, or a list of steps.
//!
//! The response depends on the autonomy level: at L0 and L1 the plan that waits for approval, at L2 the
//! result if it is ready in time, at L3 the run as it is after its first commit. The gate records every refusal in the
//! ledger.

use super::acted::{ActedDocument, DuplicateDocument};
use super::idempotency::{self, DuplicateWord};
use crate::access::notify::Notify;
use crate::access::wire::AutonomyLevel;
use crate::caller::Caller;
use crate::edge::Edge;
use crate::error_responses::WriteErrors;
use crate::flow::start_response::{answer, wait_until_settled};
use crate::flow::wire::RunDocument;
use crate::gate::received::ReceivedRequest;
use crate::problem::ApiError;
use crate::trace::RunSeed;
use crate::wire::JsonObject;
use crate::{json, params};
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use chimera_core::access::Level;
use chimera_core::error::Code;
use chimera_core::flow::run::{Replay, RunStatus};
use chimera_core::limits::{ACT_WAIT_DEFAULT, DRAFT_WAIT_MIN, IDEMPOTENCY_KEY_CHARS_MAX, REDACT_INLINE_BYTES_MAX};
use chimera_engine::act::{
    self, ActOutcome, ActRequest, Actions, Objective, ReplayOutcome, RequestKey, Schedules, StartedAction,
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use utoipa::ToSchema;
use uuid::Uuid;

/// A request to act. Exactly one of `goal`, `workflow_id` and `steps` is required.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ActBody {
    /// Must be the token's actor; may be omitted.
    actor: Option<String>,
    /// The goal in natural language.
    #[schema(example = "Summarize \"…\" and mail it to ada@example.com")]
    goal: Option<String>,
    /// Id of the workflow to run.
    workflow_id: Option<String>,
    /// Workflow version; the latest if omitted.
    version: Option<i64>,
    /// Inputs of the workflow, or values that the goal leaves open.
    #[schema(value_type = Option<JsonObject>)]
    inputs: Option<Value>,
    /// Tool calls to run in sequence. `${nodes.s1.outputs.…}` refers to the output of the first one.
    steps: Option<Vec<StepBody>>,
    /// Idempotency key: a second request with this key starts no run.
    #[schema(max_length = 256, min_length = 1)]
    idempotency_key: Option<String>,
    /// Only plan: nothing is executed, whatever the level.
    #[serde(default)]
    dry_run: bool,
    /// Overrides the autonomy level; a higher one requires the scope `autonomy.override`.
    autonomy_level: Option<AutonomyLevel>,
    /// How long to wait for the result, in seconds.
    wait: Option<f64>,
    /// Where notifications about the run are sent.
    notify: Option<Notify>,
    /// What to return for a used idempotency key: `conflict` (409), or `return` (200 with the run).
    #[serde(default)]
    on_duplicate: DuplicateWord,
    /// When the request was made, at most one minute from now: Unix seconds or RFC 3339.
    #[schema(schema_with = crate::access::token::time_schema, required = false)]
    #[expect(dead_code, reason = "checked before the handler runs")]
    issued_at: Option<Value>,
    /// Unique string; makes the request single-use.
    #[expect(dead_code, reason = "checked before the handler runs")]
    nonce: Option<String>,
    /// Priority from 1 (highest) to 10 (lowest).
    #[schema(minimum = 1, maximum = 10)]
    priority: Option<i32>,
    /// The caller's own id for the request.
    correlation_id: Option<String>,
}

/// A tool call.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StepBody {
    /// Name of the tool.
    #[schema(example = "local.summarize")]
    tool: String,
    /// Input of the tool.
    #[serde(default = "empty_object")]
    #[schema(value_type = JsonObject)]
    input: Value,
}

fn empty_object() -> Value {
    json!({})
}

/// Starts a run for a goal, a workflow or a list of steps.
#[utoipa::path(
    post,
    path = "/act",
    tag = "act",
    request_body = ActBody,
    responses(
        (
            status = 200,
            body = ActedDocument,
            description = "The result, or the whole run if it awaits approval, is a dry run or a duplicate"
        ),
        (status = 202, body = ActedDocument, description = "The run started"),
        WriteErrors
    )
)]
pub(crate) async fn act(
    State(edge): State<Edge>,
    caller: Caller,
    Extension(received): Extension<Arc<ReceivedRequest>>,
    seed: RunSeed,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let actions = actions(&edge)?;
    let is_large = received.body.len() > REDACT_INLINE_BYTES_MAX;
    let (ask, wait) = actions.work(&caller.permit, is_large, || parse_request(&received, &headers, seed)).await??;
    let acted = Box::pin(act::act(actions, &caller.permit, ask)).await?;
    caller.release_memory();
    match acted {
        ActOutcome::Started(begun) => act_response(&edge, &caller, begun, wait).await,
        ActOutcome::Duplicate { run, differs } => duplicate_response(&caller, run, differs).await,
    }
}

pub(crate) fn actions(edge: &Edge) -> Result<&Actions, ApiError> {
    edge.entry_points.schedules.as_deref().map(Schedules::actions).ok_or_else(ApiError::internal)
}

/// A request with default options. `request` is the document that is stored with the run.
pub(crate) fn default_act(what: Objective, request: Value, seed: RunSeed) -> ActRequest {
    ActRequest { run_id: seed.run_id, parent_span: seed.span, ..ActRequest::of(what, request) }
}

/// Parses and validates the body.
fn parse_request(
    received: &ReceivedRequest,
    headers: &HeaderMap,
    seed: RunSeed,
) -> Result<(ActRequest, Option<Duration>), ApiError> {
    let request = received.document(headers)?;
    let body: ActBody = json::decode(&request)?;
    let wait = params::parse_wait(body.wait)?;
    let invalid = |pointer: &str, what: &str| ApiError::new(Code::ValidationFailed, what).with("pointer", pointer);
    if body.correlation_id.as_ref().is_some_and(|id| id.chars().count() > IDEMPOTENCY_KEY_CHARS_MAX) {
        return Err(invalid("/correlation_id", "the correlation id is too long"));
    }
    idempotency::check_header(headers, body.idempotency_key.as_deref())?;
    let request = idempotency::stored_request(request);
    let key =
        body.idempotency_key.map(|key| idempotency::request_key(key, body.on_duplicate, &request, (received, headers)));
    let what = parse_subject(body.goal, body.workflow_id, body.version, body.steps, body.inputs)?;
    let act = ActRequest {
        actor: body.actor,
        level: body.autonomy_level.map(Into::into),
        dry_run: body.dry_run,
        key: key.transpose()?,
        notify: body.notify.map(Notify::validate).transpose()?,
        priority: body.priority,
        correlation_id: body.correlation_id,
        ..default_act(what, request, seed)
    };
    Ok((act, wait))
}

fn parse_subject(
    goal: Option<String>,
    workflow: Option<String>,
    version: Option<i64>,
    steps: Option<Vec<StepBody>>,
    inputs: Option<Value>,
) -> Result<Objective, ApiError> {
    let invalid = |what: &str| ApiError::new(Code::SchemaInvalid, what).with("pointer", "");
    if inputs.as_ref().is_some_and(|inputs| !inputs.is_object()) {
        let error = ApiError::new(Code::SchemaInvalid, "inputs must be a JSON object");
        return Err(error.with("pointer", "/inputs"));
    }
    let given = inputs.is_some();
    let inputs = inputs.unwrap_or_else(empty_object);
    match (goal, workflow, steps) {
        (Some(goal), None, None) if version.is_none() => Ok(Objective::Goal { goal, inputs }),
        (None, Some(id), None) => Ok(Objective::Workflow { id: params::workflow(&id)?.to_owned(), version, inputs }),
        (None, None, Some(_)) if given || version.is_some() => {
            Err(invalid("steps cannot be combined with inputs or version"))
        }
        (None, None, Some(steps)) => {
            Ok(Objective::Steps(steps.into_iter().map(|step| (step.tool, step.input)).collect()))
        }
        _ => Err(invalid("exactly one of goal, workflow_id and steps is required; version goes with workflow_id only")),
    }
}

/// Waits for the run and builds the response; both depend on the level.
async fn act_response(
    edge: &Edge,
    caller: &Caller,
    begun: Box<StartedAction>,
    wait: Option<Duration>,
) -> Result<Response, ApiError> {
    let (run, level) = (begun.started.run_id, begun.started.level);
    if level == Level::ExecuteSilent && !begun.dry_run {
        return summary_response(StatusCode::ACCEPTED, run, &begun);
    }
    let drafts = begun.dry_run || level.needs_approval();
    let wait = if drafts { wait.unwrap_or_default().max(DRAFT_WAIT_MIN) } else { wait.unwrap_or(ACT_WAIT_DEFAULT) };
    // The response must begin before the request times out.
    let until = Instant::now() + wait.min(edge.wait_max());
    let status =
        if wait.is_zero() { RunStatus::Running } else { wait_until_settled(caller, &begun.started, until).await? };
    match status {
        // The end of a run that continued on another node, or later, is only in the store.
        status if !drafts && status.is_final() && begun.started.progress.borrow().ended.is_some() => {
            summary_response(StatusCode::OK, run, &begun)
        }
        status if status.is_final() || status == RunStatus::AwaitingApproval => {
            // It waits for memory, and holds nothing meanwhile.
            drop(begun);
            full_response(caller, run, StatusCode::OK).await
        }
        _ => summary_response(StatusCode::ACCEPTED, run, &begun),
    }
}

/// A summary of the run from memory, without reading the store.
fn summary_response(status: StatusCode, run: Uuid, begun: &StartedAction) -> Result<Response, ApiError> {
    Ok((status, location_header(run), params::json(&ActedDocument::try_from(begun)?)?).into_response())
}

/// The earlier run with this idempotency key, and whether the request differs.
async fn duplicate_response(caller: &Caller, run: Uuid, differs: bool) -> Result<Response, ApiError> {
    let written = |run| params::json(&DuplicateDocument { run: RunDocument::from(run), request_differs: differs });
    let document = caller.show_run(run, written).await??;
    Ok((location_header(run), document).into_response())
}

/// Repeats a run, once if there is a key.
pub(super) async fn repeat(
    edge: &Edge,
    caller: &Caller,
    replay: Replay,
    key: Option<RequestKey>,
) -> Result<ReplayOutcome, ApiError> {
    let actions = actions(edge)?;
    Ok(match key {
        Some(key) => act::replay_once(actions, &caller.permit, replay, key).await?,
        None => ReplayOutcome::Started(act::replay(actions, &caller.permit, replay, None).await?),
    })
}

/// The response about a run that was repeated, now or by an earlier request with the same key.
pub(super) async fn repeat_response(
    edge: &Edge,
    caller: &Caller,
    repeated: ReplayOutcome,
    wait: Option<Duration>,
) -> Result<Response, ApiError> {
    match repeated {
        ReplayOutcome::Started(started) => answer(edge, caller, started, wait).await,
        ReplayOutcome::Duplicate { run, differs } => duplicate_response(caller, run, differs).await,
    }
}

async fn full_response(caller: &Caller, run: Uuid, status: StatusCode) -> Result<Response, ApiError> {
    let document = caller.show_run(run, |run| params::json(&RunDocument::from(run))).await??;
    Ok((status, location_header(run), document).into_response())
}

fn location_header(run: Uuid) -> [(HeaderName, String); 1] {
    [(header::LOCATION, format!("/runs/{run}"))]
}
