//! Rolling a run back: what its steps did is undone, the last first.
//!
//! Each undoing is a recorded effect of its own, asked of the policy like any other call. A child
//! run is rolled back in its parent's turn, by itself, and tells when it is done. What can't be
//! undone is left and said; then the run keeps its status. Undoing twice does no harm, so after a
//! crash a rollback simply goes on.

use super::env::{Action, Env, Verdict as PolicyVerdict};
use super::event::{Call, Effect, Mode};
use super::rows::{Book, Unstorable};
use super::start::Work;
use super::task::{State, Task};
use super::{At, EffectStatus, Run, RunStatus, Told, retry};
use crate::flow::call::{Answer, Sent};
use crate::flow::tables::EFFECTS;
use crate::flow::tool::{Reach, is_dry};
use crate::limits;
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
    /// The run that started this one waits for it.
    pub(crate) for_parent: bool,
    /// Which rollback of the run it is, from one.
    pub(crate) round: u32,
    pub(crate) queue: VecDeque<At>,
    pub(crate) current: Option<Current>,
    pub(crate) undone: Vec<Value>,
    pub(crate) left: Vec<Value>,
    /// When the current one is tried again.
    pub(crate) retry_at: Option<Timestamp>,
    /// It was under way in a state that was put back.
    pub(crate) doubted: bool,
}

/// The step that is being undone.
#[derive(Debug)]
pub(crate) struct Current {
    pub(crate) at: At,
    pub(crate) call: Option<Uuid>,
    pub(crate) effect: Uuid,
    pub(crate) version: i64,
    pub(crate) attempt: u32,
    /// The child run that is being rolled back.
    pub(crate) child: Option<Uuid>,
}

/// What somebody wants undone.
pub(crate) struct Wanted {
    pub(crate) steps: Option<Vec<Uuid>>,
    pub(crate) by: String,
    pub(crate) reason: Option<String>,
    pub(crate) for_parent: bool,
}

impl Undo {
    /// Whether nothing happens here before a child run has been rolled back.
    pub(crate) fn waits_for_child(&self) -> bool {
        self.current.as_ref().is_some_and(|current| current.child.is_some())
    }

    /// Whether the next step could be undone if there were a slot.
    pub(crate) fn wants_slot(&self) -> bool {
        let waits = |current: &Current| current.call.is_none() && current.child.is_none();
        self.retry_at.is_none() && self.current.as_ref().is_some_and(waits)
    }
}

impl Run {
    /// Somebody wants the run undone.
    pub(crate) fn begin_undo(&mut self, wanted: Wanted, env: &mut Env<'_>, book: &mut Book) -> Result<(), Unstorable> {
        let Wanted { steps, by, reason, for_parent } = wanted;
        if let Some(undo) = self.undo.as_mut().filter(|_| for_parent) {
            undo.for_parent = true;
            return self.write_undo(false, book);
        }
        let refusal = match self.status {
            _ if self.undo.is_some() => Some("a rollback is under way"),
            RunStatus::RolledBack => Some("it was rolled back already"),
            status if !status.is_final() => Some("the run has not ended"),
            _ => None,
        };
        if let Some(why) = refusal {
            book.note("run.rollback_refused", None, Some(by), json!({"reason": why}));
            return self.tell_parent(for_parent, self.status == RunStatus::RolledBack, env, book);
        }
        let mut done: Vec<(i64, At)> =
            self.places().filter_map(|at| Some((self.undoable(at, steps.as_deref())?, at))).collect();
        if self.undos.saturating_add(done.len()) > limits::RUN_UNDOS_MAX {
            let why = format!("a run has at most {} recorded undos; undo it by hand", limits::RUN_UNDOS_MAX);
            book.note("run.rollback_refused", None, Some(by), json!({"reason": why}));
            return self.tell_parent(for_parent, false, env, book);
        }
        done.sort_unstable_by_key(|(seq, _)| std::cmp::Reverse(*seq));
        book.note("run.rollback_started", None, Some(by.clone()), json!({"reason": reason, "steps": done.len()}));
        self.rollbacks += 1;
        self.undo = Some(Undo {
            by,
            reason,
            part: steps.is_some(),
            for_parent,
            round: self.rollbacks,
            queue: done.into_iter().map(|(_, at)| at).collect(),
            current: None,
            undone: Vec::new(),
            left: Vec::new(),
            retry_at: None,
            doubted: false,
        });
        self.write_undo(false, book)?;
        self.undo_on(env, book)
    }

    /// The number of a place that has ended and did something outside, or that a child run did.
    fn undoable(&self, at: At, only: Option<&[Uuid]>) -> Option<i64> {
        let task = self.task(at)?;
        let (State::Completed { seq, .. } | State::Failed { seq, .. }) = &task.state else { return None };
        let step = task.step?.id;
        if only.is_some_and(|only| !only.contains(&step)) {
            return None;
        }
        let happened = task.effect.is_some_and(|effect| effect.status == EffectStatus::Succeeded);
        let dry = task.input.as_deref().is_some_and(is_dry);
        match self.work(at) {
            Work::Tool(spec) => (self.reach(at, &spec) == Reach::Write && happened && !dry).then_some(*seq),
            Work::Child { .. } => task.child.map(|_| *seq),
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
            if let Some(child) = self.task(at).and_then(|task| task.child) {
                return self.undo_child(at, child, env, book);
            }
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

    /// Lets a child run undo what it did.
    fn undo_child(&mut self, at: At, child: Uuid, env: &mut Env<'_>, book: &mut Book) -> Result<(), Unstorable> {
        let Some(undo) = &mut self.undo else { return Ok(()) };
        let (by, reason) = (undo.by.clone(), undo.reason.clone());
        undo.current =
            Some(Current { at, call: None, effect: Uuid::nil(), version: 0, attempt: 0, child: Some(child) });
        let told = Told::Rollback { steps: None, by, reason, for_parent: true };
        book.signal(&self.head.tenant, child, &told, env)?;
        book.effects.push(Effect::Wake(child));
        let data = json!({"node": self.name(at), "item": at.item, "child_run_id": child});
        book.note("step.undoing", self.step_id(at), None, data);
        Ok(())
    }

    /// A child run undid what it could.
    pub(crate) fn child_undone(
        &mut self,
        step: Uuid,
        whole: bool,
        env: &mut Env<'_>,
        book: &mut Book,
    ) -> Result<(), Unstorable> {
        let Some(at) = self.place_of(step) else { return Ok(()) };
        let Some(undo) = &mut self.undo else { return Ok(()) };
        // A run that was read again knows the child only as one of those to come.
        let waited = undo.current.take_if(|current| current.at == at && current.child.is_some()).is_some();
        let before = undo.queue.len();
        undo.queue.retain(|queued| *queued != at);
        if !waited && undo.queue.len() == before {
            return Ok(());
        }
        if whole {
            let child = self.task(at).and_then(|task| task.child);
            self.undone(at, json!({"node": self.name(at), "item": at.item, "child_run_id": child}), env, book);
        } else {
            self.leave(at, "its child run could not be undone as a whole");
        }
        self.undo_on(env, book)
    }

    /// A place was undone.
    fn undone(&mut self, at: At, data: Value, env: &mut Env<'_>, book: &mut Book) {
        let step = self.step_id(at);
        let line = json!({"node": self.name(at), "item": at.item, "step_id": step});
        self.undo.iter_mut().for_each(|undo| undo.undone.push(line.clone()));
        book.note("step.rolled_back", step, None, data);
        let output = self.task(at).and_then(|task| task.output().cloned()).unwrap_or_default();
        self.enter(at, State::RolledBack { output });
        self.keep(at, env, book);
        self.end_doubt(at, book);
    }

    /// Says to the run that waits for it how far the rollback went.
    fn tell_parent(&self, for_parent: bool, whole: bool, env: &mut Env<'_>, book: &mut Book) -> Result<(), Unstorable> {
        let Some((parent, step)) = self.head.parent.filter(|_| for_parent) else { return Ok(()) };
        book.signal(&self.head.tenant, parent, &Told::ChildUndone { step, whole }, env)?;
        book.effects.push(Effect::Wake(parent));
        Ok(())
    }

    /// A person has undone by hand what a run did that has ended: nothing is called.
    pub(crate) fn mark_rolled_back(&mut self, by: String, reason: Option<String>, book: &mut Book) {
        let refusal = match self.status {
            _ if self.undo.is_some() => Some("a rollback is under way"),
            RunStatus::RolledBack => Some("it was rolled back already"),
            status if !status.is_final() => Some("the run has not ended"),
            _ => None,
        };
        if let Some(why) = refusal {
            book.note("run.rollback_refused", None, Some(by), json!({"reason": why}));
            return;
        }
        self.end_doubts(book);
        self.status = RunStatus::RolledBack;
        book.status = Some(RunStatus::RolledBack);
        book.note("run.rolled_back", None, Some(by), json!({"by_hand": true, "reason": reason}));
    }

    fn may_undo(&self, at: At, env: &Env<'_>) -> Result<(), String> {
        let Work::Tool(spec) = self.work(at) else { return Err("it is no tool".to_owned()) };
        if self.task(at).is_some_and(|task| matches!(task.state, State::Failed { .. })) {
            return Err("what it gave can't be used, so nobody can tell what to undo".to_owned());
        }
        if !spec.reversible {
            return Err(format!("{} does not support rollback", spec.name));
        }
        let input = self.task(at).and_then(|task| task.input.clone()).unwrap_or_default();
        let (tenant, actor, level) = (self.head.tenant.as_str(), self.head.actor.as_str(), self.head.level);
        match env.policy.judge(&Action { tenant, actor, level, node: self.name(at), tool: &spec, input: &input }) {
            PolicyVerdict::Deny { reason, .. } => Err(reason),
            // Whoever asked for the rollback has decided; approvals guard what is done, not its undoing.
            PolicyVerdict::Allow | PolicyVerdict::Ask(_) => Ok(()),
        }
    }

    pub(crate) fn leave(&mut self, at: At, why: &str) {
        let line = json!({"node": self.name(at), "item": at.item, "step_id": self.step_id(at), "reason": why});
        if let Some(undo) = &mut self.undo {
            undo.left.push(line);
        }
    }

    fn write_compensation(&mut self, at: At, env: &mut Env<'_>, book: &mut Book) -> Result<(), Unstorable> {
        let Some(step) = self.step_id(at) else { return Ok(()) };
        let effect = (env.ids)();
        let tool = self.function(at).map(|function| function.tool.clone()).unwrap_or_default();
        let Some(digest) = self.task(at).map(Task::input_digest) else { return Ok(()) };
        let key = self.undo_key(at, self.rollbacks);
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
                ("idempotency_key", key.into()),
                ("input_digest", Cell::Bytes(digest.to_vec())),
                ("created_at", env.now.into()),
                ("dispatched_at", env.now.into()),
                ("state_version", 1.into()),
            ],
        )?);
        self.undos += 1;
        book.note("step.undoing", Some(step), None, json!({"node": self.name(at), "tool": tool, "effect_id": effect}));
        if let Some(undo) = &mut self.undo {
            undo.current = Some(Current { at, call: None, effect, version: 1, attempt: 0, child: None });
        }
        Ok(())
    }

    /// The key of an undoing's row: one for each rollback.
    pub(crate) fn undo_key(&self, at: At, round: u32) -> String {
        format!("{}:{round}", self.effect_key(at, &Mode::Undo { output: Arc::default() }))
    }

    fn send_undo(&mut self, env: &mut Env<'_>, book: &mut Book) {
        let Some(current) = self.undo.as_ref().and_then(|undo| undo.current.as_ref()) else { return };
        let (at, effect, attempt) = (current.at, current.effect, current.attempt + 1);
        let Work::Tool(spec) = self.work(at) else { return };
        if current.child.is_some() {
            return;
        }
        if !self.take_slot(at, &spec, env) {
            // It is due and waits for a slot, no longer for a time.
            if let Some(undo) = &mut self.undo {
                undo.retry_at = None;
            }
            return;
        }
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
        self.doubt_undo(env, book)?;
        let Some(undo) = &self.undo else { return Ok(()) };
        match &undo.current {
            None => self.undo_on(env, book),
            Some(current)
                if current.call.is_none()
                    && current.child.is_none()
                    && undo.retry_at.is_none_or(|due| due <= env.now) =>
            {
                let effects = book.effects.len();
                self.send_undo(env, book);
                // Whoever has lost the run meanwhile learns it from this commit, before anything is sent.
                book.claim |= book.effects.len() > effects;
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
        book.effects.push(Effect::Release(at));
        current.call = None;
        let (effect, version, attempt) = (current.effect, current.version, current.attempt);
        let step = self.step_id(at);
        let status = match answer {
            Answer::Output(_) => {
                self.undone(at, json!({"node": self.name(at), "item": at.item, "effect_id": effect}), env, book);
                EffectStatus::Succeeded
            }
            Answer::Failed(error) => {
                let dice = u64::from_be_bytes(*call.as_bytes().last_chunk().unwrap_or(&[0; 8]));
                let due = retry::due(&error.body, attempt, limits::RETRIES_MAX, env.now, dice);
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
                if error.sent == Sent::Maybe {
                    self.begin_doubt(at, &error.body.message, env.now, book);
                    EffectStatus::Unknown
                } else {
                    EffectStatus::Failed
                }
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
        self.tell_parent(undo.for_parent, whole, env, book)
    }

    /// How far the rollback has come, in `runs.rollback`.
    fn write_undo(&self, ended: bool, book: &mut Book) -> Result<(), Unstorable> {
        let Some(undo) = &self.undo else { return Ok(()) };
        // A run that is read again knows of a step only if it stands here, whatever became of it.
        let current = undo.current.as_ref().map(|current| current.at);
        let ahead = current.iter().chain(&undo.queue).filter_map(|at| self.step_id(*at));
        let behind = undo.undone.iter().chain(&undo.left).filter_map(|line| line["step_id"].as_str()?.parse().ok());
        let only: Vec<Uuid> = behind.chain(ahead).collect();
        let document = json!({
            "by": undo.by, "reason": undo.reason, "part": undo.part, "ended": ended, "round": undo.round,
            "for_parent": undo.for_parent, "restored_at": self.restored_at.map(Timestamp::micros),
            "undone": undo.undone, "left": undo.left, "steps": if ended { Vec::new() } else { only },
        });
        book.set("rollback", Json::of(&document)?);
        Ok(())
    }
}
