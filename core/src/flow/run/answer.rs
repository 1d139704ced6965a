//! What becomes of a call's answer.

use super::edges::{failed_output, seen};
use super::env::Env;
use super::event::{Effect, Mode};
use super::rows::{Book, Unstorable};
use super::start::{Work, cache_key};
use super::task::State;
use super::{At, EffectStatus, Run, retry};
use crate::error::{Code, ErrorBody};
use crate::flow::call::{Answer, Found, Sent, ToolError};
use crate::flow::tool::{Reach, Spec, input_digest, is_dry};
use crate::limits;
use crate::record::Json;
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

impl Run {
    /// A call ended. An answer that nobody waits for any more is dropped.
    pub(crate) fn answered(
        &mut self,
        at: At,
        call: Uuid,
        answer: Answer,
        took_ms: i64,
        env: &mut Env<'_>,
        book: &mut Book,
    ) -> Result<(), Unstorable> {
        if self.draft_answered(call, &answer, took_ms, env, book)? {
            return Ok(());
        }
        let mode = match self.task(at).map(|task| &task.state) {
            Some(State::Running { call: waited, mode, .. }) if *waited == call => mode.clone(),
            _ => return self.undo_answered(at, call, answer, took_ms, env, book),
        };
        self.calls.remove(&at);
        book.effects.push(Effect::Release(at));
        book.took_ms = took_ms;
        let Work::Tool(spec) = self.work(at) else { return Ok(()) };
        match (mode, answer) {
            (Mode::Check, Answer::Found(Found::Happened(output))) => self.found(at, &spec, output, env, book),
            (Mode::Check, Answer::Found(Found::Never)) => self.send_again(at, &spec, env, book),
            (Mode::Check, Answer::Failed(error)) if error.body.retryable && self.checks_left(at) => {
                self.wait_for_check(at, error, env, book)
            }
            (Mode::Check, _) => self.outcome_unknown(at, "nobody can tell whether it happened", env, book),
            (_, Answer::Output(output)) => self.complete(at, &spec, call, output, env, book),
            (_, Answer::Failed(error)) => {
                let step = self.ensure_step(at, env);
                book.call_ended(&self.head, self.task(at), call, step, &spec, Err(&error), env.now)?;
                self.failed(at, &spec, call, error, env, book)
            }
            (_, Answer::Found(_)) => Ok(()),
        }
    }

    /// The call gave an output.
    fn complete(
        &mut self,
        at: At,
        spec: &Arc<Spec>,
        call: Uuid,
        output: Value,
        env: &mut Env<'_>,
        book: &mut Book,
    ) -> Result<(), Unstorable> {
        let text = Json::of(&output);
        let step = self.ensure_step(at, env);
        let dry = self.task(at).and_then(|task| task.input.as_deref()).is_some_and(is_dry);
        let fault = match &text {
            Err(error) => Some(error.to_string()),
            Ok(text) if text.as_str().len() > limits::OUTPUT_BYTES_MAX => Some("it is too large".to_owned()),
            Ok(_) if dry => None,
            Ok(_) => spec.output.check(&output).err().map(|faults| {
                faults.first().map(|fault| format!("{} {}", fault.pointer, fault.message)).unwrap_or_default()
            }),
        };
        let now = env.now;
        let Some(task) = self.task_mut(at) else { return Ok(()) };
        book.settle_effect(task, EffectStatus::Succeeded, now)?;
        if let Some(fault) = fault {
            let message = format!("the output of {} can't be used: {fault}", spec.name);
            let error = ToolError::not_sent(Code::ExternalServiceError, message);
            let mut body = *error.body;
            body.retryable = false;
            let failed = ToolError { body: Box::new(body.clone()), sent: Sent::No };
            book.call_ended(&self.head, self.task(at), call, step, spec, Err(&failed), now)?;
            return self.fail_step(at, body, env, book);
        }
        let text = text.unwrap_or_else(|_| Json::stored("null".to_owned()));
        book.call_ended(&self.head, self.task(at), call, step, spec, Ok(text.clone()), now)?;
        if self.function(at).is_some_and(|function| function.cache.is_some()) && spec.effect != Reach::Write && !dry {
            self.remember(at, spec, text, env, book)?;
        }
        self.finish_step(at, spec, output, "completed", env, book)
    }

    /// A check found that it happened.
    fn found(
        &mut self,
        at: At,
        spec: &Arc<Spec>,
        output: Value,
        env: &mut Env<'_>,
        book: &mut Book,
    ) -> Result<(), Unstorable> {
        let now = env.now;
        if let Some(task) = self.task_mut(at) {
            book.settle_effect(task, EffectStatus::Succeeded, now)?;
        }
        self.complete_from(at, spec, output, "checked", env, book)
    }

    /// A recording or a cached output stands for the call.
    pub(crate) fn complete_from(
        &mut self,
        at: At,
        spec: &Arc<Spec>,
        output: Value,
        how: &'static str,
        env: &mut Env<'_>,
        book: &mut Book,
    ) -> Result<(), Unstorable> {
        let (call, step) = ((env.ids)(), self.ensure_step(at, env));
        let Ok(text) = Json::of(&output) else {
            let message = format!("the output of {} can't be stored", spec.name);
            return self.fail_step(at, ErrorBody::new(Code::ExternalServiceError, message), env, book);
        };
        book.call_replaced(&self.head, self.task(at), call, step, spec, text, how, env.now)?;
        self.finish_step(at, spec, output, how, env, book)
    }

    fn finish_step(
        &mut self,
        at: At,
        spec: &Spec,
        output: Value,
        how: &'static str,
        env: &mut Env<'_>,
        book: &mut Book,
    ) -> Result<(), Unstorable> {
        self.compare(at, &output);
        let task = self.task(at);
        let attempt = task.map_or(0, |task| task.attempt);
        let digest = task.and_then(|task| task.digest).unwrap_or_default();
        let given = input_digest(&output).map(hex::encode).unwrap_or_default();
        let data = json!({
            "node": self.name(at),
            "item": at.item,
            "tool": spec.name,
            "attempt": attempt,
            "how": how,
            "input_digest": hex::encode(digest),
            "output_digest": given,
        });
        let seq = book.note("step.completed", self.step_id(at), None, data) + self.run_seq;
        self.enter(at, State::Completed { output: Arc::new(seen(output)), seq, items: Vec::new() });
        self.keep(at, env, book);
        self.ended(at, env, book)
    }

    /// The call failed: another try, a person, or the end of the step.
    fn failed(
        &mut self,
        at: At,
        spec: &Arc<Spec>,
        call: Uuid,
        error: ToolError,
        env: &mut Env<'_>,
        book: &mut Book,
    ) -> Result<(), Unstorable> {
        if error.sent == Sent::Maybe && !spec.resendable() {
            return self.maybe_sent(at, spec, error, env, book);
        }
        let attempt = self.task(at).map_or(0, |task| task.attempt);
        let retries = self.graph.nodes[at.node].node.retry.as_ref().map_or(limits::RETRIES_MAX, |retry| retry.max);
        let stopping = self.cancelled_by.is_some() || self.failure.is_some();
        let resends = self.task(at).map_or(0, |task| task.resends);
        let tried = attempt.saturating_sub(resends);
        let due = retry::due(&error.body, tried, retries, env.now, dice(call)).filter(|_| !stopping);
        let Some(until) = due else {
            let now = env.now;
            if let Some(task) = self.task_mut(at) {
                book.settle_effect(task, EffectStatus::Failed, now)?;
            }
            return self.fail_step(at, *error.body, env, book);
        };
        let data = json!({
            "node": self.name(at), "item": at.item, "attempt": attempt, "code": error.body.code,
            "message": error.body.message, "retry_at": until.to_string(),
            "delay_ms": until.millis() - env.now.millis(),
        });
        self.enter(at, State::RetryWait { until, error: error.body });
        self.keep(at, env, book);
        book.note("step.retrying", self.step_id(at), None, data);
        Ok(())
    }

    /// It may have been sent: check it, send it again if that can't do harm, or ask a person.
    pub(crate) fn maybe_sent(
        &mut self,
        at: At,
        spec: &Arc<Spec>,
        error: ToolError,
        env: &mut Env<'_>,
        book: &mut Book,
    ) -> Result<(), Unstorable> {
        if spec.checkable && self.checks_left(at) {
            if let Some(task) = self.task_mut(at) {
                task.resends += 1;
            }
            return self.dispatch(at, spec, Mode::Check, env, book);
        }
        if spec.resendable() && self.checks_left(at) {
            return self.send_again(at, spec, env, book);
        }
        self.outcome_unknown(at, &error.body.message, env, book)
    }

    fn checks_left(&self, at: At) -> bool {
        self.task(at).is_some_and(|task| task.resends < limits::RESENDS_MAX)
    }

    /// Sends it once more under the same key; that is no retry.
    fn send_again(&mut self, at: At, spec: &Arc<Spec>, env: &mut Env<'_>, book: &mut Book) -> Result<(), Unstorable> {
        if self.cancelled_by.is_some() || self.failure.is_some() {
            return self.stop_step(at, env, book);
        }
        if let Some(task) = self.task_mut(at) {
            task.resends += 1;
        }
        self.dispatch(at, spec, Mode::Execute, env, book)
    }

    /// The check itself failed for the moment.
    fn wait_for_check(
        &mut self,
        at: At,
        error: ToolError,
        env: &mut Env<'_>,
        book: &mut Book,
    ) -> Result<(), Unstorable> {
        let seconds = error.body.retry_after_seconds.and_then(|s| i64::try_from(s).ok()).unwrap_or(2);
        self.enter(at, State::Lost { deadline: env.now.plus_seconds(seconds) });
        self.keep(at, env, book);
        Ok(())
    }

    fn outcome_unknown(&mut self, at: At, why: &str, env: &mut Env<'_>, book: &mut Book) -> Result<(), Unstorable> {
        let error = ErrorBody::new(Code::OutcomeUnknown, why);
        let now = env.now;
        if let Some(task) = self.task_mut(at) {
            book.settle_effect(task, EffectStatus::Unknown, now)?;
        }
        self.enter(at, State::Unknown { error: Box::new(error) });
        self.keep(at, env, book);
        let data = json!({"node": self.name(at), "item": at.item, "reason": why});
        book.note("step.outcome_unknown", self.step_id(at), None, data);
        Ok(())
    }

    /// The step has failed for good.
    pub(crate) fn fail_step(
        &mut self,
        at: At,
        error: ErrorBody,
        env: &mut Env<'_>,
        book: &mut Book,
    ) -> Result<(), Unstorable> {
        self.ensure_step(at, env);
        let data = json!({"node": self.name(at), "item": at.item, "code": error.code, "message": error.message});
        book.note("step.failed", self.step_id(at), None, data);
        let items = self.task_mut(at).and_then(|task| task.items_mut().map(std::mem::take)).unwrap_or_default();
        let output = Arc::new(failed_output(&error));
        self.enter(at, State::Failed { error: Box::new(error), output, items });
        self.keep(at, env, book);
        self.ended(at, env, book)
    }

    /// Keeps an output for later runs of the workflow.
    fn remember(
        &mut self,
        at: At,
        spec: &Spec,
        output: Json,
        env: &Env<'_>,
        book: &mut Book,
    ) -> Result<(), Unstorable> {
        let ttl = self.function(at).and_then(|function| function.cache.as_ref()).and_then(|cache| cache.ttl_seconds);
        let Some(digest) = self.task(at).and_then(|task| task.digest) else { return Ok(()) };
        let key = cache_key(self.name(at), spec, &digest);
        let expires_at = ttl.map(|seconds| env.now.plus_seconds(i64::from(seconds)));
        book.remember(&self.head, key, &spec.version, output, expires_at, env.now)
    }
}

/// A random number out of a fresh id.
fn dice(id: Uuid) -> u64 {
    u64::from_be_bytes(*id.as_bytes().last_chunk().unwrap_or(&[0; 8]))
}
