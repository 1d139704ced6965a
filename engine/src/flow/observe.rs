//! Metrics and log lines of runs.
//!
//! Everything is derived from a committed turn, so nothing is counted that did not happen. Labels are fixed words and
//! the names of this process's tools.

use chimera_core::flow::call::{CallOutcome, Sent};
use chimera_core::flow::run::{Call, CallMode, Run, Turn};
use chimera_core::tool::{EffectKind, is_dry_run};
use std::time::Duration;

// Labels that are literals make the key of the metric a constant.
macro_rules! ended {
    ($status:literal) => {
        metrics::counter!("chimera_runs_ended_total", "status" => $status).increment(1)
    };
}

macro_rules! step {
    ($outcome:literal) => {
        metrics::counter!("chimera_steps_total", "outcome" => $outcome).increment(1)
    };
}

/// Counts the events of a turn; logs failures and doubts.
pub(super) fn turn(run: &Run, turn: &Turn) {
    for note in &turn.notes {
        match note.event_type {
            "run.started" => metrics::counter!("chimera_runs_started_total").increment(1),
            "run.completed" => ended!("completed"),
            "run.cancelled" => ended!("cancelled"),
            "run.rolled_back" => ended!("rolled_back"),
            "run.failed" => {
                ended!("failed");
                failed(run);
            }
            "step.completed" => step!("completed"),
            "step.failed" => step!("failed"),
            "step.skipped" => step!("skipped"),
            "step.retry_scheduled" => step!("retrying"),
            "step.outcome_unknown" => step!("outcome_unknown"),
            "step.rolled_back" => step!("rolled_back"),
            "step.rollback_failed" => step!("rollback_failed"),
            "run.signal_discarded" => {
                metrics::counter!("chimera_signals_unreadable_total").increment(1);
                tracing::warn!(run_id = %run.head().id, "a signal could not be read and was dropped");
            }
            "step.refused" => metrics::counter!("chimera_steps_refused_total").increment(1),
            "approval.requested" => metrics::counter!("chimera_approvals_requested_total").increment(1),
            _ => {}
        }
    }
    let head = run.head();
    for doubt in &turn.unknown_outcomes {
        tracing::warn!(
            run_id = %head.id,
            workflow_id = head.workflow.id,
            step_id = %doubt.step,
            node_id = doubt.node,
            map_index = doubt.item,
            tool = doubt.tool,
            undo = doubt.undo,
            "the outcome of a call is unknown: {}",
            doubt.reason
        );
    }
}

fn failed(run: &Run) {
    let (head, step) = (run.head(), run.failed_step());
    let failure = run.failure();
    tracing::warn!(
        run_id = %head.id,
        workflow_id = head.workflow.id,
        step_id = step.map(|step| tracing::field::display(step.id)),
        node_id = step.map(|step| step.node),
        tool = step.and_then(|step| step.tool),
        error_code = failure.map(|error| error.code.as_str()),
        "a run failed: {}",
        failure.map_or("no reason given", |error| error.message.as_str())
    );
}

/// Counts a call with outside effects.
pub(super) fn call(call: &Call, answer: &CallOutcome, took_ms: i64) {
    let tool = &call.tool;
    if tool.effect == EffectKind::Pure {
        return;
    }
    let word = match call.mode {
        CallMode::DryRun => "dry",
        CallMode::Execute if is_dry_run(&call.input) => "dry",
        CallMode::Execute => "execute",
        CallMode::Check => "check",
        CallMode::Undo { .. } => "undo",
    };
    let outcome = match answer {
        CallOutcome::Output(_) | CallOutcome::Checked(_) => "succeeded",
        CallOutcome::Failed(error) if error.sent == Sent::Maybe => "unknown",
        CallOutcome::Failed(_) => "failed",
    };
    metrics::counter!("chimera_tool_calls_total", "tool" => tool.name.clone(), "call" => word, "outcome" => outcome)
        .increment(1);
    let took = Duration::from_millis(took_ms.unsigned_abs());
    metrics::histogram!("chimera_tool_call_duration_seconds", "tool" => tool.name.clone()).record(took.as_secs_f64());
}
