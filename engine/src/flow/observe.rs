//! What operators see of runs as they go on: a log line for what went wrong.
//!
//! Everything is read off a turn that is durable, so nothing is told that did not happen.

use chimera_core::flow::run::{Run, Turn};

/// Logs failures and doubts.
pub(super) fn turn(run: &Run, turn: &Turn) {
    if turn.notes.iter().any(|note| note.event_type == "run.failed") {
        failed(run);
    }
    let head = run.head();
    for doubt in &turn.doubted {
        tracing::warn!(
            run_id = %head.id,
            workflow_id = head.workflow.id,
            step_id = %doubt.step,
            node_id = doubt.node,
            map_index = doubt.item,
            tool = doubt.tool,
            undo = doubt.undo,
            "nobody knows whether a call happened: {}",
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
        failure.map_or("nobody said why", |error| error.message.as_str())
    );
}
