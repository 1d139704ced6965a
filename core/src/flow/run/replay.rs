//! Replays: recorded outputs replace calls.
//!
//! | mode     | before `from`           | tools that read, or are pure | tools that write, people, children |
//! |----------|-------------------------|------------------------------|------------------------------------|
//! | `freeze` | recorded                | recorded                     | recorded                           |
//! | `shadow` | recorded                | run, reads if they were sent | recorded                           |
//! | `retry`  | recorded if completed   | run                          | run                                |
//!
//! A shadow repeats the reads that the original run made. A read that it never sent was perhaps never approved, so
//! it is not sent now. Where a recording is needed and there is none, the replay fails with `NOT_RECORDED`.

use super::tasks::task::TaskState;
use super::turn_builder::TurnContext;
use super::{ReplayMode, Run, RunPlace, StepRecording, answer};
use crate::error::{Code, ErrorBody};
use crate::record::Unstorable;
use crate::tool::{EffectKind, Spec};
use serde_json::{Value, json};

/// What the original run recorded of a place.
pub(crate) enum RecordedOutcome {
    /// Irrelevant: the place runs.
    NotUsed,
    /// Its output.
    Output(Value),
    /// Its error.
    Failed(ErrorBody),
    /// A recording is needed, and there is none.
    Missing,
}

/// The replay mode, if this run is a replay.
pub(crate) fn replay_mode(run: &Run) -> Option<ReplayMode> {
    run.head.replay.as_ref().map(|replay| replay.mode)
}

/// Whether a node is at or after the start of the replay.
pub(crate) fn is_rerun(run: &Run, node: usize) -> bool {
    run.recorded.as_ref().and_then(|recorded| recorded.fresh.as_ref()).is_none_or(|fresh| fresh.contains(&node))
}

/// Whether a place uses a recording, so that it skips its delay.
pub(crate) fn uses_recording(run: &Run, node: usize) -> bool {
    match replay_mode(run) {
        None => false,
        Some(ReplayMode::Retry) => !is_rerun(run, node),
        Some(ReplayMode::Freeze | ReplayMode::Shadow) => true,
    }
}

pub(crate) fn recording(run: &Run, at: RunPlace) -> Option<&StepRecording> {
    run.recorded.as_ref()?.outputs.get(&(run.tasks.name(at).to_owned(), at.item))
}

/// The recording that replaces the work of a place: of a tool, or (without `spec`) of a person or child run.
pub(crate) fn recorded_outcome(run: &Run, at: RunPlace, spec: Option<&Spec>) -> RecordedOutcome {
    let (Some(mode), recording) = (replay_mode(run), recording(run, at)) else { return RecordedOutcome::NotUsed };
    let fresh = is_rerun(run, at.node);
    let runs = match mode {
        ReplayMode::Retry => fresh || recording.is_none_or(|recording| recording.error.is_some()),
        ReplayMode::Shadow => {
            let sent = recording.is_some_and(|recording| recording.sent);
            fresh
                && spec.is_some_and(|spec| match run.tasks.reach(at, spec) {
                    EffectKind::Pure => true,
                    EffectKind::Read => sent,
                    EffectKind::Write => false,
                })
        }
        ReplayMode::Freeze => false,
    };
    match recording {
        _ if runs => RecordedOutcome::NotUsed,
        None => RecordedOutcome::Missing,
        Some(StepRecording { error: Some(error), .. }) => RecordedOutcome::Failed(error.clone()),
        Some(recording) => RecordedOutcome::Output((*recording.output).clone()),
    }
}

/// A place needs a recording and has none. The replay fails, since no edge is taken for this failure.
pub(crate) fn not_recorded(run: &mut Run, at: RunPlace, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let message = format!("{} has no recording in that run", run.tasks.name(at));
    let error = ErrorBody::new(Code::NotRecorded, message).with("node", run.tasks.name(at));
    answer::fail_step(run, at, error, cx)
}

/// The differences from the original run. Computed at the end from stored values, so the result does not
/// depend on which nodes drove the run.
pub(crate) fn differences(run: &Run) -> Vec<Value> {
    let mut found = Vec::new();
    for at in run.tasks.places() {
        let Some(task) = run.tasks.task(at) else { continue };
        let line = |what: &str, before: Value, after: Value| json!({"node": run.tasks.name(at), "item": at.item, "what": what, "before": before, "after": after});
        let output = match task.state() {
            TaskState::Completed { output, .. } => Some(output),
            TaskState::Failed { output, .. } => Some(output),
            _ => None,
        };
        match (recording(run, at), output) {
            (None, None) => {}
            (None, Some(output)) => found.push(line("not_recorded", Value::Null, (**output).clone())),
            (Some(recording), None) => found.push(line("not_reached", (*recording.output).clone(), Value::Null)),
            (Some(recording), Some(output)) => {
                if recording.input.is_some() && task.digest().is_some() && recording.input != task.digest() {
                    let (before, after) = (recording.input, task.digest());
                    found.push(line("input", json!(before), json!(after)));
                }
                if recording.output != *output {
                    found.push(line("output", (*recording.output).clone(), (**output).clone()));
                }
            }
        }
    }
    found
}
