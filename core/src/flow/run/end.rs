//! Ends a run and notifies its parent and recipients.

use super::env::Env;
use super::event::{Effect, SignalKind};
use super::scope::RunScope;
use super::task::TaskState;
use super::turn_builder::TurnBuilder;
use super::undo::RollbackProgress;
use super::{ReplayMode, Run, RunPlace, RunStatus};
use crate::access::Level;
use crate::error::{Code, ErrorBody};
use crate::json::Digest32;
use crate::limits;
use crate::record::{Json, Unstorable};
use serde_json::{Map, Value, json};

impl Run {
    /// Ends the run if nothing is left to do. Otherwise updates its status.
    pub(crate) fn conclude(&mut self, env: &mut Env<'_>, book: &mut TurnBuilder) -> Result<(), Unstorable> {
        if self.status.is_final() || book.more {
            return Ok(());
        }
        if self.is_stopping() {
            self.drop_plan(env, book)?;
            self.drop_draft();
            if self.cancel_waiting(env, book)? {
                self.update_status(book);
                return Ok(());
            }
            let status = if self.cancelled_by.is_some() { RunStatus::Cancelled } else { RunStatus::Failed };
            return self.end(status, env, book);
        }
        if self.open_nodes == 0 && self.settled.is_empty() && self.draft.is_none() && !self.is_plan_pending() {
            match self.checked_outputs() {
                Ok(result) => {
                    self.result = Some(result);
                    return self.end(RunStatus::Completed, env, book);
                }
                Err(error) => {
                    self.fail_with(error);
                    return self.end(RunStatus::Failed, env, book);
                }
            }
        }
        self.update_status(book);
        Ok(())
    }

    /// Updates the status of a run that has not ended: it awaits approval if nothing else can happen.
    fn update_status(&mut self, book: &mut TurnBuilder) {
        let asks = self.is_plan_pending() || self.approvals_pending > 0;
        let status = if asks && self.calls.is_empty() { RunStatus::AwaitingApproval } else { RunStatus::Running };
        if self.status != status {
            self.status = status;
            book.status = Some(status);
        }
    }

    /// The result: the workflow's output templates, or the outputs of the sink nodes.
    fn outputs(&self) -> Result<Value, ErrorBody> {
        let Some(template) = &self.graph.outputs else {
            let sinks = self.graph.sinks().filter_map(|node| {
                let output = self.nodes[node].output()?;
                Some((self.graph.nodes[node].node.id.clone(), (**output).clone()))
            });
            return Ok(Value::Object(sinks.collect::<Map<_, _>>()));
        };
        template.render(&RunScope::of(self)).map_err(|error| {
            ErrorBody::new(Code::ValidationFailed, format!("the outputs of the workflow can't be resolved: {error}"))
        })
    }

    /// The result, checked against the limits of the store.
    fn checked_outputs(&self) -> Result<Value, ErrorBody> {
        let outputs = self.outputs()?;
        let text = Json::encode(&outputs).map_err(|error| ErrorBody::new(Code::ValidationFailed, error.to_string()))?;
        if text.as_str().len() > limits::RESULT_BYTES_MAX {
            return Err(ErrorBody::new(Code::PayloadTooLarge, "the result of the run is too large"));
        }
        Ok(outputs)
    }

    pub(crate) fn end(
        &mut self,
        status: RunStatus,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        self.drop_proposals(env, book)?;
        self.status = status;
        self.completed_at = Some(env.now);
        book.status = Some(status);
        book.ended = true;
        self.close_patches(env, book)?;
        self.close_drafted(status, book);
        if self.replay_mode() == Some(ReplayMode::Shadow) {
            self.result = Some(json!({"result": self.result, "differences": self.differences()}));
        }
        let (event, by) = match status {
            RunStatus::Completed => ("run.completed", None),
            RunStatus::Cancelled => ("run.cancelled", self.cancelled_by.as_ref().map(|(by, _)| by.clone())),
            _ => ("run.failed", None),
        };
        let digest = self.result.as_ref().map(Digest32::of);
        let error = self.failure.as_ref().map(|error| json!({"code": error.code, "message": error.message}));
        let reason = self.cancelled_by.as_ref().and_then(|(_, reason)| reason.clone());
        book.add_note(event, None, by, json!({"result_digest": digest, "error": error, "reason": reason}));
        if self.cancelled_by.is_some() && self.failure.is_none() {
            let reason = reason.unwrap_or_else(|| "the run was cancelled".to_owned());
            self.failure = Some(Box::new(ErrorBody::new(Code::Cancelled, reason)));
        }
        if let Some((parent, step)) = self.head.parent {
            let error = self.failure.as_deref().cloned();
            let (status, result) = (status.as_str().to_owned(), self.result.clone());
            let told = SignalKind::ChildEnded { step, status, result, error, changed_by: self.contributors_to_end() };
            book.send_signal(&self.head.tenant, parent, &told, env)?;
            book.effects.push(Effect::Wake(parent));
        }
        // Dry runs and replays without effects send no notifications.
        let real = !self.head.dry_run && self.replay_mode().is_none_or(|mode| mode == ReplayMode::Retry);
        if self.head.level != Level::ExecuteSilent && self.head.parent.is_none() && real {
            book.notify(&self.head, status, self.result.as_ref(), self.failure.as_deref(), env)?;
        }
        Ok(())
    }

    /// Closes steps that have a row from the dry run but never started.
    fn close_drafted(&mut self, status: RunStatus, book: &mut TurnBuilder) {
        for (node, task) in self.nodes.iter_mut().enumerate() {
            if matches!(task.state, TaskState::Pending { .. }) && task.step.is_some() {
                let done = status == RunStatus::Completed;
                task.state = if done { TaskState::Skipped } else { TaskState::Cancelled { items: Vec::new() } };
                book.dirty.insert(RunPlace::node(node));
            }
        }
    }

    /// At L0, nothing else starts while an approval is pending.
    pub(crate) fn is_blocked_by_approval(&self) -> bool {
        self.head.level == Level::Ask && self.approvals_pending > 0
    }

    /// Whether the run can leave memory until a signal arrives or a timer is due.
    pub(crate) fn can_park(&self, env: &Env<'_>) -> bool {
        // A node that claims a parked run assumes that no other process works on it.
        if self.timers.iter().any(|(_, at)| self.is_lost(*at)) {
            return false;
        }
        let far = |due: crate::time::Timestamp| due > env.now.plus_seconds(limits::PARK_SECONDS_MIN);
        let idle = self.calls.is_empty()
            && self.settled.is_empty()
            && self.pending_roots.is_empty()
            && self.draft.is_none()
            && self.undo.as_ref().is_none_or(RollbackProgress::waits_for_child)
            && (self.ready.is_empty() || self.paused_by.is_some() || self.is_blocked_by_approval());
        idle && self.next_deadline().is_none_or(far)
    }

    /// Whether nothing is in flight and the run only waits for a slot.
    pub(crate) fn waits_for_slot(&self, env: &Env<'_>) -> bool {
        let far = |due: crate::time::Timestamp| due > env.now.plus_seconds(limits::PARK_SECONDS_MIN);
        self.wants_slot()
            && self.calls.is_empty()
            && self.settled.is_empty()
            && self.pending_roots.is_empty()
            && self.draft.is_none()
            // A rollback stays with its owner.
            && self.undo.is_none()
            && !self.timers.iter().any(|(_, at)| self.is_lost(*at))
            && self.next_deadline().is_none_or(far)
    }
}
