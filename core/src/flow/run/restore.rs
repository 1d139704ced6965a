//! A run in a store that was restored from a backup.
//!
//! What the run did after the backup is not known: a step may have been sent, a child run started, or a
//! step undone. So a write is dispatched only after the tool, if it can be checked, or a person has
//! confirmed that it did not happen. Pure and reading steps continue.

use super::event::CallMode;
use super::start::Work;
use super::tasks::task::Task;
use super::turn_builder::EffectRecord;
use super::turn_builder::TurnContext;
use super::{EffectStatus, Run, RunPlace, answer, start};
use crate::flow::tables::EffectRow;
use crate::record::Unstorable;
use crate::time::Timestamp;
use crate::tool::{EffectKind, Spec, is_dry_run};
use serde_json::Value;
use std::sync::Arc;

/// Why the outcome of a step of a restored run is unknown.
pub(crate) const MAY_BE_DONE: &str = "it may have been done after the backup was taken";
const MAY_BE_STARTED: &str = "its run may have been started after the backup was taken";

/// A place of a restored run that may have taken effect after the backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UncertainStep {
    pub node: String,
    pub item: Option<u32>,
    /// `None` for a place that starts a child run.
    pub tool: Option<String>,
    /// The status in the store.
    pub status: &'static str,
}

/// Whether an effect's row was written after the restore.
pub(crate) fn is_written_since_restore(row: &EffectRow, restored_at: Option<Timestamp>) -> bool {
    let written = [Some(row.created_at), row.dispatched_at, row.settled_at].into_iter().flatten();
    restored_at.is_none_or(|at| written.max().is_some_and(|written| written >= at))
}

/// Everything that may have been done after the backup.
#[must_use]
pub(crate) fn uncertain_steps(run: &Run) -> Vec<UncertainStep> {
    let open = |at: &RunPlace| run.tasks.task(*at).is_some_and(|task| !task.is_settled());
    let unsure = |at: RunPlace| {
        let tool = match start::work(run, at) {
            Work::Tool(spec) if changes_something(run, at, &spec) => Some(spec.name.clone()),
            Work::Child { .. } if run.tasks.task(at).is_some_and(|task| task.child().is_none()) => None,
            // A map without started items stands for all of them.
            Work::Map if run.tasks.task(at).is_some_and(|task| task.items().is_empty()) => {
                let inside = RunPlace { node: at.node, item: Some(0) };
                match start::work(run, inside) {
                    Work::Tool(spec) if may_write(run, inside, &spec) => Some(spec.name.clone()),
                    Work::Child { .. } => None,
                    _ => return None,
                }
            }
            _ => return None,
        };
        let status = run.tasks.task(at).map_or("pending", |task| task.status().as_str());
        Some(UncertainStep { node: run.tasks.name(at).to_owned(), item: at.item, tool, status })
    };
    if run.status.is_final() {
        return Vec::new();
    }
    run.tasks.places().filter(open).filter_map(unsure).collect()
}

fn changes_something(run: &Run, at: RunPlace, spec: &Spec) -> bool {
    match run.tasks.input(at) {
        Some(input) => spec.effect_of(input) == EffectKind::Write && !is_dry_run(input),
        None => may_write(run, at, spec),
    }
}

/// Whether a call whose input is not known yet may be a write. Constants of the template are constants of the
/// input.
fn may_write(run: &Run, at: RunPlace, spec: &Spec) -> bool {
    let template = run.tasks.function(at).map(|function| Value::Object(function.inputs.clone()));
    template.map_or(spec.effect, |template| spec.effect_of(&template)) == EffectKind::Write
}

/// Whether a call that is about to be made may have been made after the backup, and this is not resolved yet.
pub(crate) fn may_be_already_done(run: &Run, at: RunPlace, spec: &Spec) -> bool {
    let settled = |task: &Task| {
        task.effect().is_some_and(|effect| effect.since_restore && effect.status != EffectStatus::Unknown)
    };
    run.row.restored_at().is_some() && changes_something(run, at, spec) && !run.tasks.task(at).is_some_and(settled)
}

/// Checks the outcome with the tool, or leaves it to a person, instead of making the call. False: no slot is
/// free, it stays ready.
pub(crate) fn resolve_before_dispatch(
    run: &mut Run,
    at: RunPlace,
    spec: &Arc<Spec>,
    cx: &mut TurnContext<'_>,
) -> Result<bool, Unstorable> {
    let checks = spec.checkable && answer::has_checks_left(run, at);
    if checks && !start::take_slot(run, at, spec, &mut cx.env) {
        return Ok(false);
    }
    run.tasks.ensure_step(at, &mut cx.env);
    let (head, now, key) = (Arc::clone(&run.head), cx.env.now, start::effect_key(run, at, &CallMode::Execute));
    if let Some(task) = run.tasks.task_mut(at) {
        task.set_in_doubt(true);
        let (key, tool, status) = (key.as_str(), spec.name.as_str(), EffectStatus::Unknown);
        cx.turn.write_effect(&head, task, EffectRecord { key, tool, status, deadline: now, at: now })?;
    }
    if !checks {
        return answer::outcome_unknown(run, at, MAY_BE_DONE, cx).map(|()| true);
    }
    if let Some(task) = run.tasks.task_mut(at) {
        task.count_check();
    }
    run.tasks.mark_dirty(at, cx);
    start::dispatch(run, at, spec, CallMode::Check, cx)?;
    Ok(true)
}

/// Whether a child run that is about to be started may have been started after the backup, and this is not
/// resolved yet.
pub(crate) fn may_be_already_started(run: &Run, at: RunPlace) -> bool {
    run.row.restored_at().is_some_and(|restored| {
        let settled = run.tasks.task(at).and_then(Task::started_at);
        settled.is_none_or(|settled| settled < restored)
    })
}

pub(crate) fn mark_child_unknown(run: &mut Run, at: RunPlace, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    answer::outcome_unknown(run, at, MAY_BE_STARTED, cx)
}
