//! Rolling a run back: what its steps did is undone, the last first.
//!
//! Each undoing is a recorded effect of its own, asked of the policy like any other call. What can't
//! be undone is left and said; then the run keeps its status. Undoing twice does no harm, so after a
//! crash a rollback simply goes on.

use super::env::{Action, Env, Verdict as PolicyVerdict};
use super::event::{Call, Effect, Mode};
use super::rows::{Book, Unstorable};
use super::start::Work;
use super::task::State;
use super::{At, EffectStatus, Run, RunStatus, Told, retry};
use crate::error::{Code, ErrorBody};
use crate::flow::call::Answer;
use crate::flow::tables::EFFECTS;
use crate::flow::tool::Reach;
use crate::record::{Insert, Json, Update, Value as Cell};
use crate::time::Timestamp;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use uuid::Uuid;

/// A rollback under way.
#[derive(Debug)]
pub(crate) struct Undo {
    pub(crate) by: String,
    pub(crate) reason: Option<String>,
    /// Only some steps were asked for.
    pub(crate) part: bool,
    pub(crate) queue: VecDeque<At>,
    pub(crate) current: Option<Current>,
    pub(crate) undone: Vec<Value>,
    pub(crate) left: Vec<Value>,
    /// When the current one is tried again.
    pub(crate) retry_at: Option<Timestamp>,
}

/// The step that is being undone.
#[derive(Debug)]
pub(crate) struct Current {
    pub(crate) at: At,
    pub(crate) call: Option<Uuid>,
    pub(crate) effect: Uuid,
    pub(crate) version: i64,
    pub(crate) attempt: u32,
}

impl Run {
    /// Somebody wants the run undone.
    pub(crate) fn begin_undo(
        &mut self,
        steps: Option<Vec<Uuid>>,
        by: String,
        reason: Option<String>,
        env: &mut Env<'_>,
        book: &mut Book,
    ) -> Result<(), Unstorable> {
        let unsettled =
            self.places().any(|at| self.task(at).is_some_and(|task| matches!(task.state, State::Unknown { .. })));
        let refusal = match self.status {
            _ if self.undo.is_some() => Some("a rollback is under way"),
            RunStatus::RolledBack => Some("it was rolled back already"),
            status if !status.is_final() => Some("the run has not ended"),
            _ if unsettled => Some("the outcome of a step is unknown; settle it first"),
            _ => None,
        };
        if let Some(why) = refusal {
            book.note("run.rollback_refused", None, Some(by), json!({"reason": why}));
            return Ok(());
        }
        let mut done: Vec<(i64, At)> =
            self.places().filter_map(|at| Some((self.undoable(at, steps.as_deref())?, at))).collect();
        done.sort_unstable_by_key(|(seq, _)| std::cmp::Reverse(*seq));
        book.note("run.rollback_started", None, Some(by.clone()), json!({"reason": reason, "steps": done.len()}));
        self.undo = Some(Undo {
            by,
            reason,
            part: steps.is_some(),
            queue: done.into_iter().map(|(_, at)| at).collect(),
            current: None,
            undone: Vec::new(),
            left: Vec::new(),
            retry_at: None,
        });
        self.write_undo(false, book)?;
        self.undo_on(env, book)
    }

    /// The number of a completed place that did something outside, or that a child run did.
    fn undoable(&self, at: At, only: Option<&[Uuid]>) -> Option<i64> {
        let task = self.task(at)?;
        let State::Completed { seq, .. } = &task.state else { return None };
        let step = task.step?.id;
        if only.is_some_and(|only| !only.contains(&step)) {
            return None;
        }
        match self.work(at) {
            Work::Tool(spec) => (spec.effect == Reach::Write && task.effect.is_some()).then_some(*seq),
            _ => None,
        }
    }

    /// Undoes the next step, or ends the rollback.
    pub(crate) fn undo_on(&mut self, env: &mut Env<'_>, book: &mut Book) -> Result<(), Unstorable> {
        loop {
            let Some(undo) = &mut self.undo else { return Ok(()) };
            if undo.current.is_some() {
                return Ok(());
            }
            let Some(at) = undo.queue.pop_front() else { return self.undo_done(env, book) };
            match self.may_undo(at, env) {
                Err(why) => self.leave(at, &why),
                Ok(()) => {
                    self.write_compensation(at, env, book)?;
                    self.send_undo(env, book);
                    return Ok(());
                }
            }
        }
    }

    fn may_undo(&self, at: At, env: &Env<'_>) -> Result<(), String> {
        let Work::Tool(spec) = self.work(at) else { return Err("it is no tool".to_owned()) };
        if !spec.reversible {
            return Err(format!("{} can't undo its work", spec.name));
        }
        let input = self.task(at).and_then(|task| task.input.clone()).unwrap_or_default();
        let (tenant, actor, level) = (self.head.tenant.as_str(), self.head.actor.as_str(), self.head.level);
        match env.policy.judge(&Action { tenant, actor, level, node: self.name(at), tool: &spec, input: &input }) {
            PolicyVerdict::Deny { reason, .. } => Err(reason),
            // Whoever asked for the rollback has decided; approvals guard what is done, not its undoing.
            PolicyVerdict::Allow | PolicyVerdict::Ask(_) => Ok(()),
        }
    }

    fn leave(&mut self, at: At, why: &str) {
        let line = json!({"node": self.name(at), "step_id": self.step_id(at), "reason": why});
        if let Some(undo) = &mut self.undo {
            undo.left.push(line);
        }
    }

    fn write_compensation(&mut self, at: At, env: &mut Env<'_>, book: &mut Book) -> Result<(), Unstorable> {
        let Some(step) = self.step_id(at) else { return Ok(()) };
        let effect = (env.ids)();
        let tool = self.function(at).map(|function| function.tool.clone()).unwrap_or_default();
        let digest = self.task(at).and_then(|task| task.digest).unwrap_or_default();
        let key = self.effect_key(at, &Mode::Undo { output: Arc::default() });
        book.insert(Insert::into(
            &EFFECTS,
            vec![
                ("id", effect.into()),
                ("tenant_id", self.head.tenant.as_str().into()),
                ("run_id", self.head.id.into()),
                ("step_id", step.into()),
                ("kind", "compensation".into()),
                ("tool", tool.as_str().into()),
                ("status", EffectStatus::Dispatched.as_str().into()),
                ("idempotency_key", format!("{key}:{}", effect.simple()).into()),
                ("input_digest", Cell::Bytes(digest.to_vec())),
                ("created_at", env.now.into()),
                ("dispatched_at", env.now.into()),
                ("state_version", 1.into()),
            ],
        )?);
        book.note("step.undoing", Some(step), None, json!({"node": self.name(at), "tool": tool, "effect_id": effect}));
        if let Some(undo) = &mut self.undo {
            undo.current = Some(Current { at, call: None, effect, version: 1, attempt: 0 });
        }
        Ok(())
    }

    fn send_undo(&mut self, env: &mut Env<'_>, book: &mut Book) {
        let Some(current) = self.undo.as_ref().and_then(|undo| undo.current.as_ref()) else { return };
        let (at, effect, attempt) = (current.at, current.effect, current.attempt + 1);
        let Work::Tool(spec) = self.work(at) else { return };
        let Some(task) = self.task(at) else { return };
        let output = task.output().cloned().unwrap_or_default();
        let call = (env.ids)();
        let ms = i64::try_from(spec.timeout_ms).unwrap_or(60_000);
        let mode = Mode::Undo { output };
        let deadline = Timestamp::from_micros(env.now.micros().saturating_add(ms * 1_000));
        book.effects.push(Effect::Call(Call {
            at,
            id: call,
            step: self.step_id(at).unwrap_or_default(),
            effect,
            key: self.effect_key(at, &mode),
            attempt,
            tool: spec.name.clone(),
            input: task.input.clone().unwrap_or_default(),
            mode,
            deadline,
        }));
        self.calls.insert(at);
        if let Some(undo) = &mut self.undo {
            undo.retry_at = None;
            if let Some(current) = &mut undo.current {
                current.call = Some(call);
                current.attempt = attempt;
            }
        }
    }

    /// Goes on with a rollback that was loaded, or whose next try is due.
    pub(crate) fn drive_undo(&mut self, env: &mut Env<'_>, book: &mut Book) -> Result<(), Unstorable> {
        let Some(undo) = &self.undo else { return Ok(()) };
        match &undo.current {
            None => self.undo_on(env, book),
            Some(current) if current.call.is_none() && undo.retry_at.is_none_or(|due| due <= env.now) => {
                self.send_undo(env, book);
                Ok(())
            }
            Some(_) => Ok(()),
        }
    }

    /// An undoing ended.
    pub(crate) fn undo_answered(
        &mut self,
        at: At,
        call: Uuid,
        answer: Answer,
        _took_ms: i64,
        env: &mut Env<'_>,
        book: &mut Book,
    ) -> Result<(), Unstorable> {
        let Some(undo) = &mut self.undo else { return Ok(()) };
        let Some(current) = undo.current.as_mut().filter(|current| current.call == Some(call)) else { return Ok(()) };
        self.calls.remove(&at);
        current.call = None;
        let (effect, version, attempt) = (current.effect, current.version, current.attempt);
        let step = self.step_id(at);
        let status = match answer {
            Answer::Output(output) => {
                let data = json!({"node": self.name(at), "step_id": step, "output": output});
                if let Some(undo) = &mut self.undo {
                    undo.undone.push(json!({"node": data["node"], "step_id": step}));
                }
                book.note("step.rolled_back", step, None, json!({"node": self.name(at), "effect_id": effect}));
                let output = self.task(at).and_then(|task| task.output().cloned()).unwrap_or_default();
                self.enter(at, State::RolledBack { output });
                self.keep(at, env, book);
                EffectStatus::Succeeded
            }
            Answer::Failed(error) => {
                let dice = u64::from_be_bytes(*call.as_bytes().last_chunk().unwrap_or(&[0; 8]));
                let due = retry::due(&error.body, attempt, crate::limits::RETRIES_MAX, env.now, dice);
                if let (Some(due), Some(undo)) = (due, &mut self.undo) {
                    undo.retry_at = Some(due);
                    return Ok(());
                }
                book.note(
                    "step.rollback_failed",
                    step,
                    None,
                    json!({"node": self.name(at), "code": error.body.code, "message": error.body.message}),
                );
                self.leave(at, &error.body.message);
                EffectStatus::Failed
            }
            Answer::Found(_) => EffectStatus::Failed,
        };
        let set = vec![("status", status.as_str().into()), ("settled_at", env.now.into())];
        book.update(Update::versioned(&EFFECTS, vec![effect.into()], version, set)?);
        if let Some(undo) = &mut self.undo {
            undo.current = None;
        }
        self.undo_on(env, book)
    }

    fn undo_done(&mut self, env: &mut Env<'_>, book: &mut Book) -> Result<(), Unstorable> {
        self.write_undo(true, book)?;
        let Some(undo) = self.undo.take() else { return Ok(()) };
        let whole = undo.left.is_empty() && !undo.part;
        let data = json!({"undone": undo.undone.len(), "left": undo.left, "reason": undo.reason});
        if whole {
            self.status = RunStatus::RolledBack;
            book.status = Some(RunStatus::RolledBack);
            book.note("run.rolled_back", None, Some(undo.by), data);
        } else {
            book.note("run.rollback_ended", None, Some(undo.by), data);
        }
        if let Some((parent, step)) = self.head.parent.filter(|_| whole) {
            let error = Some(ErrorBody::new(Code::Cancelled, "the child run was rolled back"));
            let told = Told::ChildEnded { step, status: self.status.as_str().to_owned(), result: None, error };
            book.signal(&self.head.tenant, parent, &told, env)?;
        }
        Ok(())
    }

    /// How far the rollback has come, in `runs.rollback`.
    fn write_undo(&self, ended: bool, book: &mut Book) -> Result<(), Unstorable> {
        let Some(undo) = &self.undo else { return Ok(()) };
        let only: Vec<Uuid> = undo.queue.iter().filter_map(|at| self.step_id(*at)).collect();
        let document = json!({
            "by": undo.by, "reason": undo.reason, "part": undo.part, "ended": ended,
            "undone": undo.undone, "left": undo.left, "steps": if ended { Vec::new() } else { only },
        });
        book.set("rollback", Json::of(&document)?);
        Ok(())
    }
}
