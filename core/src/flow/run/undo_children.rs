//! Rolling back child runs: the parent asks each child once per rollback and waits for its answer.
//!
//! The request is a recorded effect, written with the signal, so a parent that is loaded again knows which children it
//! asked and what they answered.

use super::env::Env;
use super::event::Effect;
use super::turn_builder::TurnBuilder;
use super::undo::{CHILD_LEFT, CurrentUndo};
use super::{EffectStatus, Run, RunPlace, SignalKind};
use crate::id;
use crate::record::Unstorable;
use serde_json::json;
use uuid::Uuid;

impl Run {
    /// Lets a child run undo what it did. The request is written down with the signal: a run that is read again
    /// knows which children were asked in this rollback and what they answered, and asks none of them twice.
    pub(super) fn undo_child(
        &mut self,
        at: RunPlace,
        child: Uuid,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        let asked = self.child_undo(at, child);
        let Some(undo) = &mut self.undo else { return Ok(()) };
        let (by, reason) = (undo.by.clone(), undo.reason.clone());
        undo.current = Some(asked);
        let told = SignalKind::Rollback { steps: None, by, reason, for_parent: true };
        book.send_signal(&self.head.tenant, child, &told, env)?;
        book.effects.push(Effect::Wake(child));
        self.write_compensation(EffectStatus::Dispatched, None, env.now, book)
    }

    pub(super) fn child_undo(&self, at: RunPlace, child: Uuid) -> CurrentUndo {
        CurrentUndo::new(at, id::effect(self.head.id, &self.undo_key(at, self.rollbacks)), Some(child))
    }

    /// A child run was rolled back as far as possible.
    pub(crate) fn child_undone(
        &mut self,
        step: Uuid,
        whole: bool,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        let Some(at) = self.place_of_step(step) else { return Ok(()) };
        let Some(child) = self.task(at).and_then(|task| task.child) else { return Ok(()) };
        let unasked = self.child_undo(at, child);
        let Some(undo) = &mut self.undo else { return Ok(()) };
        let asked = undo.current.take_if(|current| current.at == at && current.child.is_some());
        // Rollbacks that began before requests to children were written down know a child that was asked as one to come.
        let queued = undo.queue.iter().position(|queued| *queued == at);
        let Some(asked) = asked.or_else(|| queued.and_then(|at| undo.queue.remove(at)).map(|_| unasked)) else {
            return Ok(());
        };
        let other = undo.current.replace(asked);
        let status = if whole { EffectStatus::Succeeded } else { EffectStatus::Failed };
        self.write_compensation(status, None, env.now, book)?;
        if let Some(undo) = &mut self.undo {
            undo.current = other;
        }
        if whole {
            self.place_undone(at, json!({"node": self.name(at), "item": at.item, "child_run_id": child}), env, book);
        } else {
            self.report_not_undone(at, CHILD_LEFT);
        }
        self.continue_undo(env, book)
    }

    /// Signals the waiting parent whether the rollback was complete.
    pub(super) fn signal_parent(
        &self,
        for_parent: bool,
        whole: bool,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        let Some((parent, step)) = self.head.parent.filter(|_| for_parent) else { return Ok(()) };
        book.send_signal(&self.head.tenant, parent, &SignalKind::ChildUndone { step, whole }, env)?;
        book.effects.push(Effect::Wake(parent));
        Ok(())
    }
}
