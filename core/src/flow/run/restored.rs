//! A run that was under way in a store that was put back.
//!
//! What it did after that state was written is not known here: a step without an outcome may have
//! been sent, a child run may have been started, a step may have been undone. So whatever changes
//! something goes out only after somebody has found out that it did not happen: the tool, if it can
//! be asked, else a person. Steps that are pure or only read go on.

use super::env::Env;
use super::event::Mode;
use super::rows::Book;
use super::start::Work;
use super::task::Task;
use super::{At, EffectStatus, Run};
use crate::flow::tables::EFFECTS;
use crate::record::{Row, Unstorable, Update};
use crate::time::Timestamp;
use crate::tool::{Reach, Spec, is_dry};
use serde_json::Value;
use std::sync::Arc;

/// Why a step of a restored run is in doubt.
pub(crate) const MAY_BE_DONE: &str = "it may have been done after the backup was taken";
const MAY_BE_STARTED: &str = "its run may have been started after the backup was taken";
const MAY_BE_UNDONE: &str = "it may have been undone after the backup was taken";

/// A place of a restored run that may have done something since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsureStep {
    /// Its node.
    pub node: String,
    /// Its item, if it is one of a map.
    pub item: Option<u32>,
    /// What it calls; none for one that starts a run.
    pub tool: Option<String>,
    /// Where it stands in the store.
    pub status: &'static str,
}

/// Whether an effect's row was written in a run that was restored at this time, rather than before.
pub(crate) fn is_since(row: &Row, restored_at: Option<Timestamp>) -> bool {
    let written = ["created_at", "dispatched_at", "settled_at"].iter().filter_map(|column| row.get(column).as_time());
    restored_at.is_none_or(|at| written.max().is_some_and(|written| written >= at))
}

impl Run {
    /// When the state that it goes on from was put back.
    #[must_use]
    pub const fn restored_at(&self) -> Option<Timestamp> {
        self.restored_at
    }

    /// Everything that may have been done after the state in the store was written, if that state
    /// was put back.
    #[must_use]
    pub fn unsure(&self) -> Vec<UnsureStep> {
        let open = |at: &At| self.task(*at).is_some_and(|task| !task.is_settled());
        let unsure = |at: At| {
            let tool = match self.work(at) {
                Work::Tool(spec) if self.changes_something(at, &spec) => Some(spec.name.clone()),
                Work::Child { .. } if self.task(at).is_some_and(|task| task.child.is_none()) => None,
                // Items that have not come up yet stand for themselves in their map.
                Work::Map if self.task(at).is_some_and(|task| task.items().is_empty()) => {
                    let inside = At { node: at.node, item: Some(0) };
                    match self.work(inside) {
                        Work::Tool(spec) if self.may_write(inside, &spec) => Some(spec.name.clone()),
                        Work::Child { .. } => None,
                        _ => return None,
                    }
                }
                _ => return None,
            };
            let status = self.task(at).map_or("pending", |task| task.status().as_str());
            Some(UnsureStep { node: self.name(at).to_owned(), item: at.item, tool, status })
        };
        if self.status.is_final() {
            return Vec::new();
        }
        self.places().filter(open).filter_map(unsure).collect()
    }

    fn changes_something(&self, at: At, spec: &Spec) -> bool {
        match self.task(at).and_then(|task| task.input.as_deref()) {
            Some(input) => spec.reach(input) == Reach::Write && !is_dry(input),
            None => self.may_write(at, spec),
        }
    }

    /// Whether a call whose input is not known yet may change something. What its template says in plain
    /// words is what its input will say.
    fn may_write(&self, at: At, spec: &Spec) -> bool {
        let template = self.function(at).map(|function| Value::Object(function.inputs.clone()));
        template.map_or(spec.effect, |template| spec.reach(&template)) == Reach::Write
    }

    /// Whether a call that is about to be made may have been made already, and nobody has found out.
    pub(crate) fn may_be_done(&self, at: At, spec: &Spec) -> bool {
        let settled = |task: &Task| {
            task.effect.is_some_and(|effect| effect.since_restore && effect.status != EffectStatus::Unknown)
        };
        self.restored_at.is_some() && self.changes_something(at, spec) && !self.task(at).is_some_and(settled)
    }

    /// Finds out what became of a call instead of making it: the tool is asked, or a person. False: no
    /// slot is free, it stays ready.
    pub(crate) fn doubt(
        &mut self,
        at: At,
        spec: &Arc<Spec>,
        env: &mut Env<'_>,
        book: &mut Book,
    ) -> Result<bool, Unstorable> {
        let checks = spec.checkable && self.checks_left(at);
        if checks && !self.take_slot(at, spec, env) {
            return Ok(false);
        }
        self.ensure_step(at, env);
        let (head, now, key) = (Arc::clone(&self.head), env.now, self.effect_key(at, &Mode::Execute));
        if let Some(task) = self.task_mut(at) {
            task.in_doubt = true;
            book.effect(&head, task, &key, &spec.name, EffectStatus::Unknown, now, now)?;
        }
        if !checks {
            return self.outcome_unknown(at, MAY_BE_DONE, env, book).map(|()| true);
        }
        if let Some(task) = self.task_mut(at) {
            task.checks += 1;
        }
        self.keep(at, env, book);
        self.dispatch(at, spec, Mode::Check, env, book)?;
        Ok(true)
    }

    /// Whether a child run that is about to be started may have been started already, and nobody has
    /// found out since.
    pub(crate) fn may_be_started(&self, at: At) -> bool {
        self.restored_at.is_some_and(|restored| {
            let settled = self.task(at).and_then(|task| task.started_at);
            settled.is_none_or(|settled| settled < restored)
        })
    }

    pub(crate) fn doubt_child(&mut self, at: At, env: &mut Env<'_>, book: &mut Book) -> Result<(), Unstorable> {
        self.outcome_unknown(at, MAY_BE_STARTED, env, book)
    }

    /// A rollback that was under way is not gone on with: what is left of it is said.
    pub(crate) fn doubt_undo(&mut self, env: &mut Env<'_>, book: &mut Book) -> Result<(), Unstorable> {
        let Some(undo) = self.undo.as_mut().filter(|undo| undo.doubted) else { return Ok(()) };
        undo.doubted = false;
        let (current, queue) = (undo.current.take(), std::mem::take(&mut undo.queue));
        book.undoing.extend(current.iter().filter(|current| current.child.is_none()).map(|current| current.at));
        if let Some(current) = current.as_ref().filter(|current| current.child.is_none() && current.version > 0) {
            let set = vec![("status", EffectStatus::Unknown.as_str().into()), ("settled_at", env.now.into())];
            book.update(Update::versioned(&EFFECTS, vec![current.effect.into()], current.version, set)?);
        }
        let places: Vec<At> = current.iter().map(|current| current.at).chain(queue).collect();
        for at in places {
            self.leave(at, MAY_BE_UNDONE);
        }
        Ok(())
    }
}
