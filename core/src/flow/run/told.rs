//! Applies signals to a run.
//!
//! The turn that applies a signal deletes its row in the same commit, even if the signal no longer has
//! any effect. So a duplicate or late signal is harmless.

use super::env::Env;
use super::event::{Signal, Told};
use super::rows::Book;
use super::start::Work;
use super::task::{Approvers, State};
use super::undo::Wanted;
use super::unwritten::UNWRITABLE;
use super::{At, EffectStatus, Run};
use crate::access::Actor;
use crate::record::Unstorable;
use serde_json::{Value, json};
use uuid::Uuid;

impl Run {
    pub(crate) fn told(&mut self, signal: Signal, env: &mut Env<'_>, book: &mut Book) -> Result<(), Unstorable> {
        if !book.consume(self.head.id, signal.id) {
            return Ok(());
        }
        self.taken_back(&signal.taken_back);
        match signal.told {
            Told::Rollback { steps, by, reason, for_parent } => {
                self.begin_undo(Wanted { steps, by, reason, for_parent }, env, book)
            }
            Told::ChildUndone { step, whole } => self.child_undone(step, whole, env, book),
            Told::MarkRolledBack { by, reason } => {
                self.mark_rolled_back(by, reason, book);
                Ok(())
            }
            Told::Unreadable { kind } => {
                book.note("run.signal_unreadable", None, None, json!({"kind": kind, "signal": signal.id}));
                Ok(())
            }
            Told::Patch { number, by, .. } if self.status.is_final() => {
                self.refuse_patch(number, 1, &by, "the run has ended", book)
            }
            _ if self.status.is_final() => Ok(()),
            Told::Patch { number, by, .. } if self.gives_up => self.refuse_patch(number, 1, &by, UNWRITABLE, book),
            // A run that can only end ignores signals that would let it continue.
            Told::Approved { .. }
            | Told::Denied { .. }
            | Told::Edited { .. }
            | Told::PlanEdited { .. }
            | Told::Unpatch { .. }
                if self.gives_up =>
            {
                Ok(())
            }
            Told::Approved { approval, by, at, notes } => {
                let by = Approvers { names: by, at: at.and_then(|at| at.parse().ok()) };
                self.approved(approval, by, notes, env, book)
            }
            Told::Denied { approval, by, notes, changes } => self.denied(approval, by, notes, changes, env, book),
            Told::Edited { step, input, by, approval } => self.edited(step, input, by, approval, env, book),
            Told::PlanEdited { node, input, by, approval } => self.plan_edited(node, input, by, approval, env, book),
            Told::ChildEnded { step, status, result, error, changed_by } => {
                self.goes_on_from(changed_by.iter().map(String::as_str));
                self.child_ended(step, &status, result, error, env, book)
            }
            Told::Cancel { by, reason } => self.stop(by, reason, env, book),
            Told::Pause { by } => {
                self.hold(true, by, book);
                Ok(())
            }
            Told::Resume { by } => {
                self.hold(false, by, book);
                Ok(())
            }
            // It is about another attempt: two people have resolved it, and the first one counted.
            Told::Resolve { step, attempt, .. } if !self.is_at_try(step, attempt) => Ok(()),
            Told::Resolve { step, happened, output, by, notes, .. } => {
                self.resolved(step, happened.then(|| output.unwrap_or_else(|| json!({}))), by, notes, env, book)
            }
            Told::Patch { number, patch, by, risk } => self.patch_proposed(number, patch, by, risk, env, book),
            Told::Unpatch { number, by } => self.unpatch(number, by, env, book),
        }
    }

    fn is_at_try(&self, step: Uuid, attempt: u32) -> bool {
        self.place_of(step).and_then(|at| self.task(at)).is_some_and(|task| task.attempt == attempt)
    }

    /// A person resolved an unknown outcome: the call took effect with this output, or it never did and
    /// may be sent again.
    fn resolved(
        &mut self,
        step: Uuid,
        output: Option<Value>,
        by: Actor,
        notes: Option<String>,
        env: &mut Env<'_>,
        book: &mut Book,
    ) -> Result<(), Unstorable> {
        let Some(at) = self.place_of(step) else { return Ok(()) };
        let Some(State::Unknown { .. }) = self.task(at).map(|task| &task.state) else { return Ok(()) };
        let work = self.work(at);
        if !matches!(work, Work::Tool(_) | Work::Child { .. }) {
            return Ok(());
        }
        let data = json!({"node": self.name(at), "happened": output.is_some(), "notes": notes});
        // They count as requesters: they chose the output that later steps use, or that the call is made.
        self.goes_on_from([by.id.as_str()]);
        book.note("step.resolved", Some(step), Some(by), data);
        self.end_doubt(at, book);
        let Work::Tool(spec) = work else { return self.child_resolved(at, output, env, book) };
        let now = env.now;
        let Some(task) = self.task_mut(at) else { return Ok(()) };
        match output {
            Some(output) => {
                task.in_doubt = false;
                book.settle_effect(task, EffectStatus::Succeeded, now)?;
                self.complete_from(at, &spec, output, "resolved", env, book)
            }
            None => {
                book.settle_effect(task, EffectStatus::Failed, now)?;
                (task.in_doubt, task.resends, task.checks) = (false, 0, 0);
                self.enter(at, State::Ready);
                self.keep(at, env, book);
                self.ready.push_back(at);
                Ok(())
            }
        }
    }

    /// A person resolved whether a child run was started: its output is used, or it is started now.
    fn child_resolved(
        &mut self,
        at: At,
        output: Option<Value>,
        env: &mut Env<'_>,
        book: &mut Book,
    ) -> Result<(), Unstorable> {
        if let Some(output) = output {
            return self.nested_completed(at, output, "resolved", env, book);
        }
        let now = env.now;
        if let Some(task) = self.task_mut(at) {
            task.attempt += 1;
            task.started_at = Some(now);
        }
        self.enter(at, State::Ready);
        self.keep(at, env, book);
        self.ready.push_back(at);
        Ok(())
    }
}
