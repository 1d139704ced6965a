//! The response after starting a run: at once, or when the run has ended or awaits approval.

use crate::caller::Caller;
use crate::edge::Edge;
use crate::flow::wire::{RunDocument, StartedDocument};
use crate::params::json;
use crate::problem::ApiError;
use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use chimera_core::access::Level;
use chimera_core::flow::run::RunStatus;
use chimera_core::limits;
use chimera_engine::flow::{self, RunHandle};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};
use uuid::Uuid;

/// Responds at once, or waits until the run has ended or awaits approval.
pub(crate) async fn answer(
    edge: &Edge,
    caller: &Caller,
    started: RunHandle,
    wait: Option<Duration>,
) -> Result<Response, ApiError> {
    let run = started.run_id;
    let place = [(header::LOCATION, format!("/runs/{run}"))];
    let Some(wait) = wait.filter(|wait| !wait.is_zero()) else {
        let status = started.progress.borrow().status;
        return Ok((StatusCode::ACCEPTED, place, Json(started_document(run, status, started.level))).into_response());
    };
    // The response must begin before the request times out.
    let patience = wait.min(edge.wait_max());
    let ended = wait_until_settled(caller, &started, Instant::now() + patience).await?.is_final();
    let code = if ended { StatusCode::OK } else { StatusCode::ACCEPTED };
    let shown = caller.show_run(run, |run| json(&RunDocument::from(run))).await??;
    Ok((code, place, shown).into_response())
}

pub(crate) fn started_document(run: Uuid, status: RunStatus, level: Level) -> StartedDocument {
    let trace_id = chimera_core::id::trace_id(run);
    StartedDocument { run_id: run, status: status.into(), autonomy_level: level.into(), trace_id }
}

/// Waits until the run has ended or awaits approval, and returns its status.
pub(crate) async fn wait_until_settled(
    caller: &Caller,
    started: &RunHandle,
    until: Instant,
) -> Result<RunStatus, ApiError> {
    caller.release_memory();
    let stands = |status: RunStatus| status.is_final() || status == RunStatus::AwaitingApproval;
    let mut progress = started.progress.clone();
    let in_time = timeout_at(until, progress.wait_for(|progress| progress.is_resting)).await.is_ok();
    let mut status = progress.borrow().status;
    // A run that is idle while a child runs or a timer is pending continues later, perhaps on another node.
    while in_time && !stands(status) && Instant::now() < until {
        sleep(limits::RUN_POLL_INTERVAL).await;
        status = flow::run_status(&caller.flow, &caller.permit, started.run_id).await?;
    }
    Ok(status)
}
