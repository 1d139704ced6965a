//! Applies signals to a run.
//!
//! The turn that applies a signal deletes its row in the same commit, even if the signal no longer has
//! any effect. So a duplicate or late signal is harmless.

use super::env::Env;
use super::event::{Signal, SignalKind};
use super::refused_turn::TURN_REFUSED;
use super::start::Work;
use super::task::TaskState;
use super::turn_builder::TurnBuilder;
use super::undo::RollbackRequest;
use super::{EffectStatus, Run, RunPlace};
use crate::access::Actor;
use crate::flow::approval::ApprovalRequirement;
use crate::flow::policy::PolicyVerdict;
use crate::record::Unstorable;
use serde_json::{Value, json};
use uuid::Uuid;

impl Run {
    pub(crate) fn apply_signal(
        &mut self,
        signal: Signal,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        if !book.consume_signal(self.head.id, signal.id) {
            return Ok(());
        }
        self.mark_withdrawn(&signal.withdrawn);
        match signal.told {
            SignalKind::Rollback { steps, by, reason, for_parent } => {
                self.begin_undo(RollbackRequest { steps, by, reason, for_parent }, env, book)
            }
            SignalKind::ChildUndone { step, whole } => self.child_undone(step, whole, env, book),
            SignalKind::MarkRolledBack { by, reason } => {
                self.mark_rolled_back(by, reason, book);
                Ok(())
            }
            SignalKind::Unreadable { kind } => {
                book.add_note("run.signal_unreadable", None, None, json!({"kind": kind, "signal": signal.id}));
                Ok(())
            }
            SignalKind::Patch { number, by, .. } if self.status.is_final() => {
                self.refuse_patch(number, 1, &by, "the run has ended", book)
            }
            _ if self.status.is_final() => Ok(()),
            SignalKind::Patch { number, by, .. } if self.can_only_end => {
                self.refuse_patch(number, 1, &by, TURN_REFUSED, book)
            }
            // A run that can only end ignores signals that would let it continue.
            SignalKind::Approved { .. }
            | SignalKind::Denied { .. }
            | SignalKind::Edited { .. }
            | SignalKind::PlanEdited { .. }
            | SignalKind::Unpatch { .. }
                if self.can_only_end =>
            {
                Ok(())
            }
            SignalKind::Approved { approval, by, notes } => self.apply_approval(approval, by, notes, env, book),
            SignalKind::Denied { approval, by, notes, changes } => {
                self.apply_rejection(approval, by, notes, changes, env, book)
            }
            SignalKind::Edited { step, input, by, approval } => self.apply_edit(step, input, by, approval, env, book),
            SignalKind::PlanEdited { node, input, by, approval } => {
                self.plan_edited(node, input, by, approval, env, book)
            }
            SignalKind::ChildEnded { step, status, result, error, changed_by } => {
                self.add_co_requesters(changed_by.iter().map(String::as_str));
                self.child_ended(step, &status, result, error, env, book)
            }
            SignalKind::Cancel { by, reason } => self.stop(by, reason, env, book),
            SignalKind::Pause { by } => {
                self.set_paused(true, by, book);
                Ok(())
            }
            SignalKind::Resume { by } => {
                self.set_paused(false, by, book);
                Ok(())
            }
            // It is about another attempt: two people have resolved it, and the first one counted.
            SignalKind::Resolve { step, attempt, .. } if !self.is_current_attempt(step, attempt) => Ok(()),
            SignalKind::Resolve { step, happened, output, by, notes, .. } => {
                self.resolve_outcome(step, happened.then(|| output.unwrap_or_else(|| json!({}))), by, notes, env, book)
            }
            SignalKind::Patch { number, patch, by, risk } => self.patch_proposed(number, patch, by, risk, env, book),
            SignalKind::Unpatch { number, by } => self.revert_patch(number, by, env, book),
        }
    }

    fn is_current_attempt(&self, step: Uuid, attempt: u32) -> bool {
        self.place_of_step(step).and_then(|at| self.task(at)).is_some_and(|task| task.attempt == attempt)
    }

    /// A person resolved an unknown outcome: the call took effect with this output, or it never did and
    /// may be sent again.
    fn resolve_outcome(
        &mut self,
        step: Uuid,
        output: Option<Value>,
        by: Actor,
        notes: Option<String>,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        let Some(at) = self.place_of_step(step) else { return Ok(()) };
        let Some(TaskState::OutcomeUnknown { .. }) = self.task(at).map(|task| &task.state) else { return Ok(()) };
        let work = self.work(at);
        if !matches!(work, Work::Tool(_) | Work::Child { .. }) {
            return Ok(());
        }
        let data = json!({"node": self.name(at), "happened": output.is_some(), "notes": notes});
        // They count as requesters: they chose the output that later steps use, or that the call is made.
        self.add_co_requesters([by.id.as_str()]);
        book.add_note("step.resolved", Some(step), Some(by), data);
        self.end_doubt(at, book);
        let Work::Tool(spec) = work else { return self.resolve_child_outcome(at, output, env, book) };
        let now = env.now;
        let Some(task) = self.task_mut(at) else { return Ok(()) };
        match output {
            Some(output) => {
                task.in_doubt = false;
                book.settle_effect(task, EffectStatus::Succeeded, now)?;
                self.complete_without_call(at, &spec, output, "resolved", env, book)
            }
            None => {
                book.settle_effect(task, EffectStatus::Failed, now)?;
                (task.in_doubt, task.resends, task.checks) = (false, 0, 0);
                let demand = match self.judge_anew(at, &spec, env) {
                    PolicyVerdict::Ask(demand) => Some(demand),
                    PolicyVerdict::Allow | PolicyVerdict::Deny { .. } => None,
                };
                self.send_settled(at, demand, env, book)
            }
        }
    }

    /// A person resolved whether a child run was started: its output is used, or it is started now.
    fn resolve_child_outcome(
        &mut self,
        at: RunPlace,
        output: Option<Value>,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        if let Some(output) = output {
            return self.complete_nested(at, output, "resolved", env, book);
        }
        let now = env.now;
        if let Some(task) = self.task_mut(at) {
            task.attempt += 1;
            task.started_at = Some(now);
        }
        let demand = self.demand_of_child(at, env);
        self.send_settled(at, demand, env, book)
    }

    /// What never happened is done now. If people had to approve it, they are asked again: they let it happen once, and
    /// whoever settles it, on their word alone, must not make it happen twice.
    fn send_settled(
        &mut self,
        at: RunPlace,
        demand: Option<ApprovalRequirement>,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        let was_approved = self.was_approved(at);
        if (demand.is_some() || was_approved) && !self.is_stopping() {
            let again =
                ApprovalRequirement::one_approval("the call was settled as never happened, and would be made again");
            let demand = demand.map_or_else(|| again.clone(), |demand| demand.and(again.clone()));
            return self.request_approval(at, &demand, env, book);
        }
        self.enter(at, TaskState::Ready);
        self.mark_dirty(at, env, book);
        self.ready.push_back(at);
        Ok(())
    }
}
