//! `POST /workflows/{id}/runs`: starts a run.
//!
//! The run is durable before the answer. Whoever waits gets the whole run when it has ended, and
//! where it stands when it can't go on without a person or the time is over.

use super::place;
use super::refusals::Changing;
use super::schema::{RunDocument, StartedDocument};
use crate::access::Caller;
use crate::edge::Edge;
use crate::extract::OptionalJson;
use crate::problem::ApiError;
use crate::trace::RunSeed;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use chimera_core::access::Level;
use chimera_core::error::Code;
use chimera_core::flow::run::RunStatus;
use chimera_core::limits::{IDEMPOTENCY_KEY_CHARS_MAX, TARGET_BYTES_MAX};
use chimera_engine::flow::{StartRun, Started};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};
use utoipa::ToSchema;

/// How often a run that goes on elsewhere is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What is asked for.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartBody {
    /// What the workflow works on.
    #[schema(value_type = Option<Object>)]
    inputs: Option<Value>,
    /// The workflow's version; the newest when absent.
    version: Option<i64>,
    /// How freely it may act: `L0_Ask`, `L1_Draft`, `L2_ExecuteNotify` or `L3_ExecuteSilent`.
    #[schema(value_type = Option<String>, example = "L2_ExecuteNotify")]
    autonomy_level: Option<Level>,
    /// One is most urgent, ten least.
    priority: Option<i32>,
    /// Only what it would do is wanted.
    #[serde(default)]
    dry_run: bool,
    /// A second request under this key is refused.
    idempotency_key: Option<String>,
    /// The caller's own id for it.
    correlation_id: Option<String>,
    /// Who is told when it ends.
    notify: Option<Notify>,
    /// Seconds to wait for its end.
    wait: Option<f64>,
}

/// Who is told when a run ends.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Notify {
    /// Gets a signed request.
    #[serde(skip_serializing_if = "Option::is_none")]
    webhook: Option<String>,
    /// Gets a mail.
    #[serde(skip_serializing_if = "Option::is_none")]
    email: Option<String>,
}

/// Starts a run.
#[utoipa::path(
    post,
    path = "/workflows/{id}/runs",
    tag = "flow",
    params(("id" = String, Path, description = "The workflow's id")),
    request_body(content = Option<StartBody>, description = "May be left out"),
    responses(
        (status = 200, body = RunDocument, description = "It ended in time"),
        (status = 202, body = StartedDocument, description = "It was started; whoever waited gets the whole run"),
        Changing
    )
)]
pub(crate) async fn start(
    State(edge): State<Edge>,
    caller: Caller,
    Path(id): Path<String>,
    seed: RunSeed,
    OptionalJson(body): OptionalJson<StartBody>,
) -> Result<Response, ApiError> {
    let wait = place::patience(body.wait)?;
    let ask = seed.plant(ask(place::workflow(&id)?, body)?);
    let started = caller.flow.start(&caller.permit, ask).await?;
    answer(&edge, &caller, started, wait).await
}

fn ask(workflow: &str, body: StartBody) -> Result<StartRun, ApiError> {
    let invalid = |pointer: &str, what: &str| ApiError::new(Code::ValidationFailed, what).with("pointer", pointer);
    if body.correlation_id.as_ref().is_some_and(|id| id.chars().count() > IDEMPOTENCY_KEY_CHARS_MAX) {
        return Err(invalid("/correlation_id", "a correlation id is shorter"));
    }
    let (webhook, email) = body.notify.as_ref().map_or((None, None), |n| (n.webhook.as_deref(), n.email.as_deref()));
    let is_url = |url: &str| {
        let rest = url.strip_prefix("https://").or(url.strip_prefix("http://"));
        url.len() <= TARGET_BYTES_MAX && rest.is_some_and(|rest| !rest.is_empty())
    };
    if webhook.is_some_and(|url| !is_url(url)) {
        return Err(invalid("/notify/webhook", "a webhook is an http or https address"));
    }
    if email.is_some_and(|email| email.len() > 320 || !email.contains('@') || email.contains(char::is_control)) {
        return Err(invalid("/notify/email", "that is no mail address"));
    }
    let plain = StartRun::of(workflow, body.inputs.unwrap_or_else(|| json!({})));
    Ok(StartRun {
        version: body.version,
        level: body.autonomy_level.unwrap_or(plain.level),
        priority: body.priority.unwrap_or(plain.priority),
        dry_run: body.dry_run,
        idempotency_key: body.idempotency_key,
        correlation_id: body.correlation_id,
        notify: body.notify.and_then(|notify| serde_json::to_value(notify).ok()),
        ..plain
    })
}

/// The answer to whoever started a run: at once, or when it has ended or needs somebody.
pub(super) async fn answer(
    edge: &Edge,
    caller: &Caller,
    started: Started,
    wait: Option<Duration>,
) -> Result<Response, ApiError> {
    let run = started.run_id;
    let place = [(header::LOCATION, format!("/runs/{run}"))];
    let Some(wait) = wait.filter(|wait| !wait.is_zero()) else {
        let status = started.standing.borrow().status;
        let told = json!({
            "run_id": run, "status": status.as_str(), "autonomy_level": started.level.as_str(),
            "trace_id": chimera_core::id::trace_id(run),
        });
        return Ok((StatusCode::ACCEPTED, place, Json(told)).into_response());
    };
    // The answer must begin before the request as a whole is given up.
    let patience = wait.min(edge.request_timeout.mul_f64(0.9));
    let ended = wait_for(caller, started, Instant::now() + patience).await?;
    let code = if ended { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((code, place, Json(caller.flow.show(&caller.permit, run).await?)).into_response())
}

/// Waits until the run has ended or needs somebody; says whether it has ended.
pub(super) async fn wait_for(caller: &Caller, started: Started, until: Instant) -> Result<bool, ApiError> {
    let stands = |status: RunStatus| status.is_final() || status == RunStatus::AwaitingApproval;
    let mut standing = started.standing;
    let in_time = timeout_at(until, standing.wait_for(|standing| standing.rests)).await.is_ok();
    let mut status = standing.borrow().status;
    // A run that rests while a child runs or a timer waits goes on later, perhaps elsewhere.
    while in_time && !stands(status) && Instant::now() < until {
        sleep(LOOK_EVERY).await;
        status = caller.flow.status(&caller.permit, started.run_id).await?;
    }
    Ok(status.is_final())
}
