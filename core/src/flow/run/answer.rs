//! Applies the answer of a call.

use super::env::Env;
use super::event::{CallMode, Effect};
use super::start::{Work, cache_key, note_dry};
use super::task::TaskState;
use super::turn_builder::TurnBuilder;
use super::value_size::unstorable_reason;
use super::{EffectStatus, Run, RunPlace, retry};
use crate::error::{Code, ErrorBody};
use crate::flow::call::{CallOutcome, CheckResult, Sent, ToolError};
use crate::flow::outputs;
use crate::json::Digest32;
use crate::limits;
use crate::record::{Json, Unstorable};
use crate::tool::{EffectKind, Spec, is_dry_run};
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

/// Why the outcome of a call is unknown whose row was deleted.
pub(crate) const RECORD_MISSING: &str = "the record of this call is missing from the store";

impl Run {
    /// A call ended. An answer that is no longer expected is dropped.
    pub(crate) fn apply_answer(
        &mut self,
        at: RunPlace,
        call: Uuid,
        answer: CallOutcome,
        took_ms: i64,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        // An external system's error text must not prevent the error from being stored.
        let answer = match answer {
            CallOutcome::Failed(ToolError { body, sent }) => {
                CallOutcome::Failed(ToolError { body: Box::new(body.sanitized()), sent })
            }
            answer => answer,
        };
        if self.draft_answered(call, &answer, took_ms, env, book)? {
            return Ok(());
        }
        let mode = match self.task(at).map(|task| &task.state) {
            Some(TaskState::Running { call: waited, mode, .. }) if *waited == call => mode.clone(),
            _ => return self.undo_answered(at, call, answer, took_ms, env, book),
        };
        self.calls.remove(&at);
        book.took_ms = took_ms;
        let Work::Tool(spec) = self.work(at) else { return Ok(()) };
        self.settle_answer(at, &spec, call, mode, answer, env, book)?;
        // A check that follows at once keeps the slot.
        if !self.calls.contains(&at) {
            book.effects.push(Effect::Release(at));
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "a call, its answer and the turn")]
    fn settle_answer(
        &mut self,
        at: RunPlace,
        spec: &Arc<Spec>,
        call: Uuid,
        mode: CallMode,
        answer: CallOutcome,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        match (mode, answer) {
            (CallMode::Check, CallOutcome::Checked(CheckResult::Happened(output))) => {
                self.complete_checked(at, spec, output, env, book)
            }
            (CallMode::Check, CallOutcome::Checked(CheckResult::DidNotHappen)) => {
                self.check_found_nothing(at, spec, call, env, book)
            }
            (CallMode::Check, CallOutcome::Failed(error)) if error.body.retryable && self.has_checks_left(at) => {
                self.wait_for_check(at, error, env, book)
            }
            (CallMode::Check, _) => {
                self.outcome_unknown(at, "the tool could not tell whether the call took effect", env, book)
            }
            (_, CallOutcome::Output(output)) => self.complete(at, spec, call, output, env, book),
            (_, CallOutcome::Failed(error)) => {
                let step = self.ensure_step(at, env);
                book.record_call_end(&self.head, self.task(at), call, step, spec, Err(&error), env.now)?;
                self.call_failed(at, spec, call, error, env, book)
            }
            (_, CallOutcome::Checked(_)) => Ok(()),
        }
    }

    /// The call returned an output.
    fn complete(
        &mut self,
        at: RunPlace,
        spec: &Arc<Spec>,
        call: Uuid,
        output: Value,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        let step = self.ensure_step(at, env);
        let dry = self.task(at).and_then(|task| task.input.as_deref()).is_some_and(is_dry_run);
        let unasked = || {
            let faults = spec.output.check(&output).err().filter(|_| !dry)?;
            Some(faults.first().map(|fault| format!("{} {}", fault.pointer, fault.message)).unwrap_or_default())
        };
        if let Some(fault) = unstorable_reason(&output).or_else(unasked) {
            return self.reject_output(at, spec, call, &fault, env, book);
        }
        let now = env.now;
        let Some(task) = self.task_mut(at) else { return Ok(()) };
        task.in_doubt = false;
        book.settle_effect(task, EffectStatus::Succeeded, now)?;
        let text = Json::encode(&output)?;
        book.record_call_end(&self.head, self.task(at), call, step, spec, Ok(text.clone()), now)?;
        if self.function(at).is_some_and(|function| function.cache.is_some())
            && self.reach(at, spec) != EffectKind::Write
            && !dry
        {
            self.cache_output(at, spec, text, env, book)?;
        }
        self.finish_step(at, spec, output, "completed", env, book)
    }

    /// The call returned an output that can't be stored. A write has taken effect with an unknown result, which the
    /// tool's check or a person resolves.
    fn reject_output(
        &mut self,
        at: RunPlace,
        spec: &Arc<Spec>,
        call: Uuid,
        fault: &str,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        let message = format!("the output of {} can't be used: {fault}", spec.name);
        let mut body = ErrorBody::new(Code::ExternalServiceError, message);
        body.retryable = false;
        let in_doubt = !self.is_resendable(at, spec);
        let sent = if in_doubt { Sent::Maybe } else { Sent::No };
        let error = ToolError { body: Box::new(body.clone()), sent };
        let step = self.ensure_step(at, env);
        book.record_call_end(&self.head, self.task(at), call, step, spec, Err(&error), env.now)?;
        let now = env.now;
        let Some(task) = self.task_mut(at) else { return Ok(()) };
        task.in_doubt = in_doubt;
        if in_doubt {
            return self.resolve_maybe_sent(at, spec, error, env, book);
        }
        book.settle_effect(task, EffectStatus::Succeeded, now)?;
        self.fail_step(at, body, env, book)
    }

    /// A check found that the call took effect.
    fn complete_checked(
        &mut self,
        at: RunPlace,
        spec: &Arc<Spec>,
        output: Value,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        if let Some(fault) = unstorable_reason(&output) {
            let why = format!("it took effect, but the output that {} reports can't be used: {fault}", spec.name);
            return self.outcome_unknown(at, &why, env, book);
        }
        let now = env.now;
        if let Some(task) = self.task_mut(at) {
            task.in_doubt = false;
            book.settle_effect(task, EffectStatus::Succeeded, now)?;
        }
        self.complete_without_call(at, spec, output, "checked", env, book)
    }

    /// A recorded, cached, checked or resolved output replaces the call.
    pub(crate) fn complete_without_call(
        &mut self,
        at: RunPlace,
        spec: &Arc<Spec>,
        output: Value,
        how: &'static str,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        let (call, step) = ((env.ids)(), self.ensure_step(at, env));
        let Ok(text) = Json::encode(&output) else {
            let message = format!("the output of {} can't be stored", spec.name);
            return self.fail_step(at, ErrorBody::new(Code::ExternalServiceError, message), env, book);
        };
        book.record_replaced_call(&self.head, self.task(at), call, step, spec, text, how, env.now)?;
        self.finish_step(at, spec, output, how, env, book)
    }

    fn finish_step(
        &mut self,
        at: RunPlace,
        spec: &Spec,
        output: Value,
        how: &'static str,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        let task = self.task(at);
        let attempt = task.map_or(0, |task| task.attempt);
        let digest = task.and_then(|task| task.digest);
        let given = Digest32::of(&output);
        self.count_output(&output);
        let mut data = json!({
            "node": self.name(at),
            "item": at.item,
            "tool": spec.name,
            "attempt": attempt,
            "how": how,
            "input_digest": digest,
            "output_digest": given,
        });
        if let Some(input) = self.task(at).and_then(|task| task.input.as_deref()) {
            note_dry(&mut data, input);
        }
        let seq = book.add_note("step.completed", self.step_id(at), None, data) + self.run_seq;
        self.enter(at, TaskState::Completed { output: Arc::new(outputs::completed(output)), seq, items: Vec::new() });
        self.mark_dirty(at, env, book);
        self.place_ended(at, env, book)
    }

    /// The call failed: retry it, check the outcome, or fail the step.
    fn call_failed(
        &mut self,
        at: RunPlace,
        spec: &Arc<Spec>,
        call: Uuid,
        error: ToolError,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        if error.sent == Sent::Maybe {
            if let Some(task) = self.task_mut(at) {
                task.in_doubt = true;
            }
            if !self.is_resendable(at, spec) {
                return self.resolve_maybe_sent(at, spec, error, env, book);
            }
        }
        let attempt = self.task(at).map_or(0, |task| task.attempt);
        let retries = self.graph.nodes[at.node].node.retry.as_ref().map_or(limits::RETRIES_MAX, |retry| retry.max);
        let resends = self.task(at).map_or(0, |task| task.resends);
        let tried = attempt.saturating_sub(resends);
        let due =
            retry::due(&error.body, tried, retries, env.now, random_from_id(call)).filter(|_| !self.is_stopping());
        let Some(until) = due else { return self.give_up(at, *error.body, env, book) };
        let now = env.now;
        if let Some(task) = self.task_mut(at).filter(|task| task.in_doubt) {
            book.settle_effect(task, EffectStatus::Unknown, now)?;
        }
        let data = json!({
            "node": self.name(at), "item": at.item, "attempt": attempt, "code": error.body.code,
            "message": error.body.message, "retry_at": until.to_string(),
            "delay_ms": until.millis() - env.now.millis(),
        });
        self.enter(at, TaskState::RetryWait { until, error: error.body });
        self.mark_dirty(at, env, book);
        book.add_note("step.retrying", self.step_id(at), None, data);
        Ok(())
    }

    /// No more retries. A call that may have taken effect does not fail: its outcome is unknown, and a person
    /// resolves it.
    pub(crate) fn give_up(
        &mut self,
        at: RunPlace,
        error: ErrorBody,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        if self.may_have_happened(at) {
            return self.outcome_unknown(at, &error.message, env, book);
        }
        let now = env.now;
        if let Some(task) = self.task_mut(at) {
            book.settle_effect(task, EffectStatus::Failed, now)?;
        }
        if error.code == Code::Cancelled.as_str() && self.is_stopping() {
            return self.stop_step(at, env, book);
        }
        self.fail_step(at, error, env, book)
    }

    /// Whether a write may have taken effect without a known outcome.
    pub(crate) fn may_have_happened(&self, at: RunPlace) -> bool {
        let writes = matches!(self.work(at), Work::Tool(spec) if self.reach(at, &spec) == EffectKind::Write);
        writes && self.task(at).is_some_and(|task| task.in_doubt)
    }

    /// Whether the `effects` row of a write that may have taken effect is missing. The row is written before the
    /// call is made, so somebody deleted it, and the call is not repeated.
    fn is_record_gone(&self, at: RunPlace) -> bool {
        self.may_have_happened(at) && self.task(at).is_some_and(|task| task.effect.is_none())
    }

    /// It may have been sent: check with the tool, or leave it to a person.
    fn resolve_maybe_sent(
        &mut self,
        at: RunPlace,
        spec: &Arc<Spec>,
        error: ToolError,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        if spec.checkable && self.has_checks_left(at) {
            if let Some(task) = self.task_mut(at) {
                task.checks += 1;
                task.doubt = Some(error.body);
            }
            return self.dispatch(at, spec, CallMode::Check, env, book);
        }
        self.outcome_unknown(at, &error.body.message, env, book)
    }

    /// Settles a call that was in flight when its process died or lost ownership: by the tool's check, by
    /// resending it if that is safe, or by a person.
    pub(crate) fn settle_lost(
        &mut self,
        at: RunPlace,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        let Work::Tool(spec) = self.work(at) else { return Ok(()) };
        let left = self.has_checks_left(at);
        if let Some(task) = self.task_mut(at) {
            task.in_doubt = true;
        }
        if spec.checkable && left {
            if !self.take_slot(at, &spec, env) {
                self.enter(at, TaskState::Lost { deadline: env.now.plus_seconds(1) });
                return Ok(());
            }
            if let Some(task) = self.task_mut(at) {
                task.checks += 1;
            }
            return self.dispatch(at, &spec, CallMode::Check, env, book);
        }
        if self.is_record_gone(at) {
            return self.outcome_unknown(at, RECORD_MISSING, env, book);
        }
        if self.is_resendable(at, &spec) && left {
            return self.resend(at, env, book);
        }
        self.outcome_unknown(at, "the process that made this call is gone", env, book)
    }

    pub(crate) fn has_checks_left(&self, at: RunPlace) -> bool {
        self.task(at).is_some_and(|task| task.checks + task.resends < limits::RESENDS_MAX)
    }

    /// The check found that it did not take effect: fail with the original error, or resend it after a crash.
    fn check_found_nothing(
        &mut self,
        at: RunPlace,
        spec: &Arc<Spec>,
        call: Uuid,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        let (now, restored) = (env.now, self.restored_at.is_some());
        if self.is_record_gone(at) {
            return self.outcome_unknown(at, RECORD_MISSING, env, book);
        }
        let Some(task) = self.task_mut(at) else { return Ok(()) };
        task.in_doubt = false;
        if restored {
            book.settle_effect(task, EffectStatus::Failed, now)?;
        }
        match task.doubt.take() {
            Some(body) => self.call_failed(at, spec, call, ToolError { body, sent: Sent::No }, env, book),
            None => self.resend(at, env, book),
        }
    }

    /// Resends it with the same idempotency key. This is not a retry. It queues for a slot like any call.
    fn resend(&mut self, at: RunPlace, env: &mut Env<'_>, book: &mut TurnBuilder) -> Result<(), Unstorable> {
        if self.is_stopping() {
            return self.give_up(at, ErrorBody::new(Code::Cancelled, "the run was stopped"), env, book);
        }
        if let Some(task) = self.task_mut(at) {
            task.resends += 1;
        }
        self.enter(at, TaskState::Ready);
        self.ready.push_back(at);
        Ok(())
    }

    /// The check itself failed with a retryable error.
    fn wait_for_check(
        &mut self,
        at: RunPlace,
        error: ToolError,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        let seconds = error.body.retry_after_seconds.and_then(|s| i64::try_from(s).ok()).unwrap_or(2);
        self.enter(at, TaskState::Lost { deadline: env.now.plus_seconds(seconds) });
        self.mark_dirty(at, env, book);
        Ok(())
    }

    pub(crate) fn outcome_unknown(
        &mut self,
        at: RunPlace,
        why: &str,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        let error = ErrorBody::new(Code::OutcomeUnknown, why);
        let now = env.now;
        if let Some(task) = self.task_mut(at) {
            book.settle_effect(task, EffectStatus::Unknown, now)?;
        }
        self.enter(at, TaskState::OutcomeUnknown { error: Box::new(error) });
        self.mark_dirty(at, env, book);
        self.begin_doubt(at, why, now, book);
        let data = json!({"node": self.name(at), "item": at.item, "reason": why});
        book.add_note("step.outcome_unknown", self.step_id(at), None, data);
        Ok(())
    }

    /// Fails the step.
    pub(crate) fn fail_step(
        &mut self,
        at: RunPlace,
        error: ErrorBody,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        self.ensure_step(at, env);
        let data = json!({"node": self.name(at), "item": at.item, "code": error.code, "message": error.message});
        let seq = book.add_note("step.failed", self.step_id(at), None, data) + self.run_seq;
        let items = self.task_mut(at).and_then(|task| task.items_mut().map(std::mem::take)).unwrap_or_default();
        let output = Arc::new(outputs::failed(&error));
        self.enter(at, TaskState::Failed { error: Box::new(error), output, seq, items });
        self.mark_dirty(at, env, book);
        self.place_ended(at, env, book)
    }

    /// Caches an output for later runs of the workflow.
    fn cache_output(
        &mut self,
        at: RunPlace,
        spec: &Spec,
        output: Json,
        env: &Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        let ttl = self.function(at).and_then(|function| function.cache.as_ref()).and_then(|cache| cache.ttl_seconds);
        let Some(digest) = self.task(at).and_then(|task| task.digest) else { return Ok(()) };
        let key = cache_key(self.name(at), spec, digest);
        let expires_at = ttl.map(|seconds| env.now.plus_seconds(i64::from(seconds)));
        book.cache_output(&self.head, key, &spec.version, output, expires_at, env.now)
    }
}

/// A random number from a fresh id.
fn random_from_id(id: Uuid) -> u64 {
    u64::from_be_bytes(*id.as_bytes().last_chunk().unwrap_or(&[0; 8]))
}
