//! A run in a store that was restored from a backup.
//!
//! What the run did after the backup is not known: a step may have been sent, a child run started, or a
//! step undone. So a write is dispatched only after the tool, if it can be checked, or a person has
//! confirmed that it did not happen. Pure and reading steps continue.

use super::env::Env;
use super::event::CallMode;
use super::start::Work;
use super::task::Task;
use super::turn_builder::TurnBuilder;
use super::{EffectStatus, Run, RunPlace};
use crate::flow::tables::EFFECTS;
use crate::record::{Row, Unstorable, Update};
use crate::time::Timestamp;
use crate::tool::{EffectKind, Spec, is_dry_run};
use serde_json::Value;
use std::sync::Arc;

/// Why the outcome of a step of a restored run is unknown.
pub(crate) const MAY_BE_DONE: &str = "it may have been done after the backup was taken";
const MAY_BE_STARTED: &str = "its run may have been started after the backup was taken";
const MAY_BE_UNDONE: &str = "it may have been undone after the backup was taken";

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
pub(crate) fn is_written_since_restore(row: &Row, restored_at: Option<Timestamp>) -> bool {
    let written = ["created_at", "dispatched_at", "settled_at"].iter().filter_map(|column| row.get(column).as_time());
    restored_at.is_none_or(|at| written.max().is_some_and(|written| written >= at))
}

impl Run {
    /// When its state was restored from a backup.
    #[must_use]
    pub const fn restored_at(&self) -> Option<Timestamp> {
        self.restored_at
    }

    /// Everything that may have been done after the backup.
    #[must_use]
    pub fn uncertain_steps(&self) -> Vec<UncertainStep> {
        let open = |at: &RunPlace| self.task(*at).is_some_and(|task| !task.is_settled());
        let unsure = |at: RunPlace| {
            let tool = match self.work(at) {
                Work::Tool(spec) if self.changes_something(at, &spec) => Some(spec.name.clone()),
                Work::Child { .. } if self.task(at).is_some_and(|task| task.child.is_none()) => None,
                // A map without started items stands for all of them.
                Work::Map if self.task(at).is_some_and(|task| task.items().is_empty()) => {
                    let inside = RunPlace { node: at.node, item: Some(0) };
                    match self.work(inside) {
                        Work::Tool(spec) if self.may_write(inside, &spec) => Some(spec.name.clone()),
                        Work::Child { .. } => None,
                        _ => return None,
                    }
                }
                _ => return None,
            };
            let status = self.task(at).map_or("pending", |task| task.status().as_str());
            Some(UncertainStep { node: self.name(at).to_owned(), item: at.item, tool, status })
        };
        if self.status.is_final() {
            return Vec::new();
        }
        self.places().filter(open).filter_map(unsure).collect()
    }

    fn changes_something(&self, at: RunPlace, spec: &Spec) -> bool {
        match self.task(at).and_then(|task| task.input.as_deref()) {
            Some(input) => spec.effect_of(input) == EffectKind::Write && !is_dry_run(input),
            None => self.may_write(at, spec),
        }
    }

    /// Whether a call whose input is not known yet may be a write. Constants of the template are constants of the
    /// input.
    fn may_write(&self, at: RunPlace, spec: &Spec) -> bool {
        let template = self.function(at).map(|function| Value::Object(function.inputs.clone()));
        template.map_or(spec.effect, |template| spec.effect_of(&template)) == EffectKind::Write
    }

    /// Whether a call that is about to be made may have been made after the backup, and this is not resolved yet.
    pub(crate) fn may_be_already_done(&self, at: RunPlace, spec: &Spec) -> bool {
        let settled = |task: &Task| {
            task.effect.is_some_and(|effect| effect.since_restore && effect.status != EffectStatus::Unknown)
        };
        self.restored_at.is_some() && self.changes_something(at, spec) && !self.task(at).is_some_and(settled)
    }

    /// Checks the outcome with the tool, or leaves it to a person, instead of making the call. False: no slot is
    /// free, it stays ready.
    pub(crate) fn resolve_before_dispatch(
        &mut self,
        at: RunPlace,
        spec: &Arc<Spec>,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<bool, Unstorable> {
        let checks = spec.checkable && self.has_checks_left(at);
        if checks && !self.take_slot(at, spec, env) {
            return Ok(false);
        }
        self.ensure_step(at, env);
        let (head, now, key) = (Arc::clone(&self.head), env.now, self.effect_key(at, &CallMode::Execute));
        if let Some(task) = self.task_mut(at) {
            task.in_doubt = true;
            book.write_effect(&head, task, &key, &spec.name, EffectStatus::Unknown, now, now)?;
        }
        if !checks {
            return self.outcome_unknown(at, MAY_BE_DONE, env, book).map(|()| true);
        }
        if let Some(task) = self.task_mut(at) {
            task.checks += 1;
        }
        self.mark_dirty(at, env, book);
        self.dispatch(at, spec, CallMode::Check, env, book)?;
        Ok(true)
    }

    /// Whether a child run that is about to be started may have been started after the backup, and this is not
    /// resolved yet.
    pub(crate) fn may_be_already_started(&self, at: RunPlace) -> bool {
        self.restored_at.is_some_and(|restored| {
            let settled = self.task(at).and_then(|task| task.started_at);
            settled.is_none_or(|settled| settled < restored)
        })
    }

    pub(crate) fn mark_child_unknown(
        &mut self,
        at: RunPlace,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        self.outcome_unknown(at, MAY_BE_STARTED, env, book)
    }

    /// Ends a rollback that was in progress in the backup. Its remaining steps are reported as not undone.
    pub(crate) fn abandon_restored_rollback(
        &mut self,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        let Some(undo) = self.undo.as_mut().filter(|undo| undo.from_backup) else { return Ok(()) };
        undo.from_backup = false;
        let (current, queue) = (undo.current.take(), std::mem::take(&mut undo.queue));
        book.undoing.extend(current.iter().filter(|current| current.child.is_none()).map(|current| current.at));
        if let Some(current) = current.as_ref().filter(|current| current.version > 0) {
            let set = vec![("status", EffectStatus::Unknown.as_str().into()), ("settled_at", env.now.into())];
            book.update(Update::versioned(&EFFECTS, vec![current.effect.into()], current.version, set)?);
        }
        let places: Vec<RunPlace> = current.iter().map(|current| current.at).chain(queue).collect();
        for at in places {
            self.report_not_undone(at, MAY_BE_UNDONE);
        }
        Ok(())
    }
}
