//! Rolls a run back: undoes the effects of its steps, the last one first.
//!
//! Each undo is a recorded effect (a compensation), judged by the policy like any other call. A child run
//! rolls itself back and signals its parent when it is done. Steps that can't be undone are reported, and
//! then the run keeps its status. A rollback continues after a crash. The undo that was in flight is
//! resent only if its tool declares it repeatable; otherwise its outcome is unknown, and a person
//! resolves it. The same applies if the row of an undo was deleted: the row of its step says that it
//! was sent.

use super::answer::RECORD_MISSING;
use super::env::Env;
use super::event::{Call, CallMode, Effect};
use super::refused_turn::TURN_REFUSED;
use super::start::Work;
use super::task::{Task, TaskState};
use super::turn_builder::TurnBuilder;
use super::{EffectStatus, Run, RunPlace, RunStatus, retry};
use crate::access::Actor;
use crate::error::{Code, ErrorBody};
use crate::flow::call::{CallOutcome, Sent};
use crate::flow::policy::{Action, PolicyVerdict};
use crate::flow::tables::EFFECTS;
use crate::id;
use crate::limits;
use crate::record::{Insert, Json, Unstorable, Update, Value as Cell};
use crate::time::Timestamp;
use crate::tool::{EffectKind, Rollback, is_dry_run};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use uuid::Uuid;

/// A rollback in progress.
#[derive(Debug)]
pub(crate) struct RollbackProgress {
    pub(crate) by: Actor,
    pub(crate) reason: Option<String>,
    /// Only some steps were requested.
    pub(crate) partial: bool,
    /// The parent run waits for it.
    pub(crate) for_parent: bool,
    /// None: whoever began it did not write it down.
    pub(crate) began_at: Option<Timestamp>,
    /// Which rollback of the run it is, from one.
    pub(crate) round: u32,
    pub(crate) queue: VecDeque<RunPlace>,
    pub(crate) current: Option<CurrentUndo>,
    pub(crate) undone: Vec<Value>,
    pub(crate) not_undone: Vec<Value>,
    /// When the current undo is retried.
    pub(crate) retry_at: Option<Timestamp>,
    /// It was in progress in a state that was restored from a backup.
    pub(crate) from_backup: bool,
}

/// The step that is being undone.
#[derive(Debug)]
pub(crate) struct CurrentUndo {
    pub(crate) at: RunPlace,
    pub(crate) call: Option<Uuid>,
    pub(crate) effect: Uuid,
    /// Zero until its row is written, with the first send.
    pub(crate) version: i64,
    /// Sends so far.
    pub(crate) attempt: u32,
    /// One of its sends may have taken effect.
    pub(crate) in_doubt: bool,
    /// It was loaded as in flight: its process died or may have.
    pub(crate) lost: bool,
    /// The deadline of its last send. Also stored in the step's row, in case the row of the undo is deleted.
    pub(crate) deadline: Option<Timestamp>,
    /// The child run that is being rolled back.
    pub(crate) child: Option<Uuid>,
}

impl CurrentUndo {
    /// An undo that was not sent yet.
    pub(crate) const fn new(at: RunPlace, effect: Uuid, child: Option<Uuid>) -> Self {
        Self { at, call: None, effect, version: 0, attempt: 0, in_doubt: false, lost: false, deadline: None, child }
    }
}

/// Why an undo is not sent again.
const LOST: &str = "the process that made this call is gone";
const IN_DOUBT: &str = "nobody knows whether an earlier undo of it happened";
/// Why a child run is left.
pub(crate) const CHILD_LEFT: &str = "its child run could not be undone as a whole";

/// A request to roll back.
pub(crate) struct RollbackRequest {
    pub(crate) steps: Option<Vec<Uuid>>,
    pub(crate) by: Actor,
    pub(crate) reason: Option<String>,
    pub(crate) for_parent: bool,
}

impl RollbackProgress {
    /// Whether it waits for a child run to be rolled back.
    pub(crate) fn waits_for_child(&self) -> bool {
        self.current.as_ref().is_some_and(|current| current.child.is_some())
    }

    /// Whether the next undo only needs a slot.
    pub(crate) fn wants_slot(&self) -> bool {
        let waits = |current: &CurrentUndo| current.call.is_none() && current.child.is_none();
        self.retry_at.is_none() && self.current.as_ref().is_some_and(waits)
    }
}

impl Run {
    /// Starts a rollback.
    pub(crate) fn begin_undo(
        &mut self,
        wanted: RollbackRequest,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        let RollbackRequest { steps, by, reason, for_parent } = wanted;
        if let Some(undo) = self.undo.as_mut().filter(|_| for_parent) {
            undo.for_parent = true;
            return self.write_undo(false, book);
        }
        let refusal = match self.status {
            _ if self.undo.is_some() => Some("a rollback is under way"),
            RunStatus::RolledBack => Some("it is already rolled back"),
            status if !status.is_final() => Some("the run has not ended"),
            _ if self.can_only_end => Some(TURN_REFUSED),
            _ => None,
        };
        if let Some(why) = refusal {
            book.add_note("run.rollback_refused", None, Some(by), json!({"reason": why}));
            return self.signal_parent(for_parent, self.status == RunStatus::RolledBack, env, book);
        }
        let mut done: Vec<(i64, RunPlace)> =
            self.places().filter_map(|at| Some((self.undoable(at, steps.as_deref())?, at))).collect();
        if self.undos.saturating_add(done.len()) > limits::RUN_UNDOS_MAX {
            let why = format!("a run has at most {} recorded undos; undo it by hand", limits::RUN_UNDOS_MAX);
            book.add_note("run.rollback_refused", None, Some(by), json!({"reason": why}));
            return self.signal_parent(for_parent, false, env, book);
        }
        done.sort_unstable_by_key(|(seq, _)| std::cmp::Reverse(*seq));
        book.add_note("run.rollback_started", None, Some(by.clone()), json!({"reason": reason, "steps": done.len()}));
        self.rollbacks += 1;
        self.undo = Some(RollbackProgress {
            by,
            reason,
            partial: steps.is_some(),
            for_parent,
            began_at: Some(env.now),
            round: self.rollbacks,
            queue: done.into_iter().map(|(_, at)| at).collect(),
            current: None,
            undone: Vec::new(),
            not_undone: Vec::new(),
            retry_at: None,
            from_backup: false,
        });
        self.write_undo(false, book)?;
        self.continue_undo(env, book)
    }

    /// The sequence number of a place with something to undo: a write that took effect, or a child run.
    fn undoable(&self, at: RunPlace, only: Option<&[Uuid]>) -> Option<i64> {
        let task = self.task(at)?;
        let (TaskState::Completed { seq, .. } | TaskState::Failed { seq, .. }) = &task.state else { return None };
        let step = task.step?.id;
        if only.is_some_and(|only| !only.contains(&step)) {
            return None;
        }
        let happened = task.effect.is_some_and(|effect| effect.status == EffectStatus::Succeeded);
        let dry = task.input.as_deref().is_some_and(is_dry_run);
        match self.work(at) {
            Work::Tool(spec) => (self.reach(at, &spec) == EffectKind::Write && happened && !dry).then_some(*seq),
            Work::Child { .. } => task.child.map(|_| *seq),
            _ => None,
        }
    }

    /// Undoes the next step, or ends the rollback.
    pub(crate) fn continue_undo(&mut self, env: &mut Env<'_>, book: &mut TurnBuilder) -> Result<(), Unstorable> {
        loop {
            let Some(undo) = &mut self.undo else { return Ok(()) };
            if undo.current.is_some() {
                return Ok(());
            }
            let Some(at) = undo.queue.pop_front() else { return self.finish_rollback(env, book) };
            if self.can_only_end {
                self.report_not_undone(at, TURN_REFUSED);
                continue;
            }
            if let Some(child) = self.task(at).and_then(|task| task.child) {
                return self.undo_child(at, child, env, book);
            }
            match self.may_undo(at, env) {
                Err(why) => self.report_not_undone(at, &why),
                Ok(()) => {
                    let effect = id::effect(self.head.id, &self.undo_key(at, self.rollbacks));
                    self.undo.iter_mut().for_each(|undo| undo.current = Some(CurrentUndo::new(at, effect, None)));
                    return self.send_undo(env, book);
                }
            }
        }
    }

    pub(super) fn place_undone(&mut self, at: RunPlace, data: Value, env: &mut Env<'_>, book: &mut TurnBuilder) {
        let step = self.step_id(at);
        let line = json!({"node": self.name(at), "item": at.item, "step_id": step});
        self.undo.iter_mut().for_each(|undo| undo.undone.push(line.clone()));
        book.add_note("step.rolled_back", step, None, data);
        let output = self.task(at).and_then(|task| task.output().cloned()).unwrap_or_default();
        self.enter(at, TaskState::RolledBack { output });
        self.mark_dirty(at, env, book);
        self.end_doubt(at, book);
    }

    /// Marks an ended run as rolled back by hand. No tool is called.
    pub(crate) fn mark_rolled_back(&mut self, by: Actor, reason: Option<String>, book: &mut TurnBuilder) {
        let refusal = match self.status {
            _ if self.undo.is_some() => Some("a rollback is under way"),
            RunStatus::RolledBack => Some("it is already rolled back"),
            status if !status.is_final() => Some("the run has not ended"),
            _ => None,
        };
        if let Some(why) = refusal {
            book.add_note("run.rollback_refused", None, Some(by), json!({"reason": why}));
            return;
        }
        self.end_doubts(book);
        self.status = RunStatus::RolledBack;
        book.status = Some(RunStatus::RolledBack);
        book.add_note("run.rolled_back", None, Some(by), json!({"by_hand": true, "reason": reason}));
    }

    fn may_undo(&self, at: RunPlace, env: &Env<'_>) -> Result<(), String> {
        let Work::Tool(spec) = self.work(at) else { return Err("it is not a tool call".to_owned()) };
        if self.task(at).is_some_and(|task| matches!(task.state, TaskState::Failed { .. })) {
            return Err("its output can't be used, so it is unknown what to undo".to_owned());
        }
        if self.graph.nodes[at.node].is_tool_absent {
            return Err(format!("the tool {} is not configured in this process", spec.name));
        }
        if !spec.is_reversible() {
            return Err(format!("{} does not support rollback", spec.name));
        }
        // A person who names the step has checked the outcome.
        let named = self.undo.as_ref().is_some_and(|undo| undo.partial);
        if !named && spec.rollback == Rollback::Once && self.unknown_outcomes.contains_key(&at) {
            return Err(IN_DOUBT.to_owned());
        }
        let input = self.task(at).and_then(|task| task.input.clone()).unwrap_or_default();
        let (tenant, actor, level) = (self.head.tenant.as_str(), self.head.actor.as_str(), self.head.level);
        let action = Action { tenant, actor, level, node: self.name(at), tool: &spec, input: &input };
        let of_run = match env.policy.judge(&action) {
            PolicyVerdict::Deny { reason, .. } => return Err(reason),
            // The rollback request is itself a decision: approvals guard calls, not their undo.
            verdict @ (PolicyVerdict::Allow | PolicyVerdict::Ask(_)) => verdict,
        };
        // The requester of the rollback must still be allowed to make the call.
        match self.undo.as_ref().map(|undo| undo.by.id.as_str()).filter(|by| *by != actor) {
            Some(by) => env.policy.judge(&Action { actor: by, ..action }).check_contribution(&of_run),
            None => Ok(()),
        }
    }

    pub(crate) fn report_not_undone(&mut self, at: RunPlace, why: &str) {
        let line = json!({"node": self.name(at), "item": at.item, "step_id": self.step_id(at), "reason": why});
        if let Some(undo) = &mut self.undo {
            undo.not_undone.push(line);
        }
    }

    /// Writes the status of the current undo. Its row is created with the first send.
    pub(super) fn write_compensation(
        &mut self,
        status: EffectStatus,
        deadline: Option<Timestamp>,
        now: Timestamp,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        let Some(current) = self.undo.as_ref().and_then(|undo| undo.current.as_ref()) else { return Ok(()) };
        let (at, effect, version, attempt) = (current.at, current.effect, current.version, i64::from(current.attempt));
        let child = current.child;
        let sent = status == EffectStatus::Dispatched;
        if version > 0 {
            let mut set = vec![("status", status.as_str().into()), ("settled_at", (!sent).then_some(now).into())];
            if sent {
                set.extend([("attempt", attempt.into()), ("deadline", deadline.into()), ("dispatched_at", now.into())]);
            }
            book.update(Update::versioned(&EFFECTS, vec![effect.into()], version, set)?);
        } else {
            let Some(digest) = self.task(at).map(Task::input_digest) else { return Ok(()) };
            let tool = match child {
                Some(_) => "workflow".to_owned(),
                None => self.function(at).map(|function| function.tool.clone()).unwrap_or_default(),
            };
            book.insert(Insert::new(
                &EFFECTS,
                vec![
                    ("id", effect.into()),
                    ("tenant_id", self.head.tenant.as_str().into()),
                    ("run_id", self.head.id.into()),
                    ("step_id", self.step_id(at).into()),
                    ("kind", "compensation".into()),
                    ("tool", tool.as_str().into()),
                    ("status", status.as_str().into()),
                    ("idempotency_key", self.undo_key(at, self.rollbacks).into()),
                    ("attempt", attempt.into()),
                    ("deadline", deadline.into()),
                    ("input_digest", Cell::Bytes(digest.to_vec())),
                    ("created_at", now.into()),
                    ("dispatched_at", now.into()),
                    ("state_version", 1.into()),
                ],
            )?);
            self.undos += 1;
            if sent {
                let data = match child {
                    Some(child) => json!({"node": self.name(at), "item": at.item, "child_run_id": child}),
                    None => json!({"node": self.name(at), "tool": tool, "effect_id": effect}),
                };
                book.add_note("step.undoing", self.step_id(at), None, data);
            }
        }
        if child.is_none() {
            book.undoing.insert(at);
        }
        if let Some(current) = self.undo.as_mut().and_then(|undo| undo.current.as_mut()) {
            current.version += 1;
        }
        Ok(())
    }

    /// The deadline of a sent undo of this place whose outcome is not known.
    pub(crate) fn undo_sent_until(&self, at: RunPlace) -> Option<Timestamp> {
        let current = self.undo.as_ref()?.current.as_ref().filter(|current| current.at == at)?;
        current.deadline.filter(|_| current.call.is_some() || current.in_doubt)
    }

    /// The idempotency key of an undo's row, different for each rollback.
    pub(crate) fn undo_key(&self, at: RunPlace, round: u32) -> String {
        format!("{}:{round}", self.effect_key(at, &CallMode::Undo { output: Arc::default() }))
    }

    fn send_undo(&mut self, env: &mut Env<'_>, book: &mut TurnBuilder) -> Result<(), Unstorable> {
        let Some(current) = self.undo.as_ref().and_then(|undo| undo.current.as_ref()) else { return Ok(()) };
        let (at, effect, attempt) = (current.at, current.effect, current.attempt + 1);
        let Work::Tool(spec) = self.work(at) else { return Ok(()) };
        if current.child.is_some() {
            return Ok(());
        }
        let slot = self.take_slot(at, &spec, env);
        let Some(undo) = &mut self.undo else { return Ok(()) };
        // It is due: from now on it waits for a slot at most.
        undo.retry_at = None;
        if !slot {
            return Ok(());
        }
        let call = (env.ids)();
        let ms = i64::try_from(spec.timeout_ms).unwrap_or(60_000);
        let deadline = Timestamp::from_micros(env.now.micros().saturating_add(ms * 1_000));
        if let Some(current) = &mut undo.current {
            (current.call, current.attempt, current.deadline) = (Some(call), attempt, Some(deadline));
        }
        self.write_compensation(EffectStatus::Dispatched, Some(deadline), env.now, book)?;
        let Some(task) = self.task(at) else { return Ok(()) };
        let mode = CallMode::Undo { output: task.output().cloned().unwrap_or_default() };
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
        Ok(())
    }

    /// The undo in flight was not lost: its answer is about to be applied.
    pub(crate) fn expect_undo(&mut self, at: RunPlace, call: Uuid, in_doubt: bool) -> bool {
        let current = self.undo.as_mut().and_then(|undo| undo.current.as_mut());
        let Some(current) = current.filter(|current| current.at == at && current.lost) else { return false };
        (current.call, current.lost, current.in_doubt) = (Some(call), false, in_doubt);
        self.calls.insert(at);
        self.undo.iter_mut().for_each(|undo| undo.retry_at = None);
        true
    }

    /// The previous owner is gone: an undo that was in flight there is lost now, without waiting for its deadline.
    pub(crate) fn mark_undo_lost(&mut self) {
        let Some(undo) = &mut self.undo else { return };
        if undo.current.as_ref().is_some_and(|current| current.lost) {
            undo.retry_at = None;
        }
    }

    /// Continues a rollback that was loaded or whose retry is due.
    pub(crate) fn drive_undo(&mut self, env: &mut Env<'_>, book: &mut TurnBuilder) -> Result<(), Unstorable> {
        self.abandon_restored_rollback(env, book)?;
        let Some(undo) = &mut self.undo else { return Ok(()) };
        let due = undo.retry_at.is_none_or(|due| due <= env.now);
        let Some(current) = &mut undo.current else { return self.continue_undo(env, book) };
        if current.call.is_some() || current.child.is_some() || !due {
            return Ok(());
        }
        let (at, lost, attempt) = (current.at, std::mem::take(&mut current.lost), current.attempt);
        if lost && current.version == 0 {
            return self.undo_failed(at, &ErrorBody::new(Code::OutcomeUnknown, RECORD_MISSING), env, book);
        }
        if self.can_only_end && !lost {
            return self.undo_failed(at, &ErrorBody::new(Code::Internal, TURN_REFUSED), env, book);
        }
        if lost && (self.can_only_end || !(self.is_undo_repeatable(at) && attempt < limits::RESENDS_MAX)) {
            return self.undo_failed(at, &ErrorBody::new(Code::OutcomeUnknown, LOST), env, book);
        }
        match self.may_undo(at, env) {
            Ok(()) => self.send_undo(env, book),
            // It was allowed when it was first sent, but no longer is.
            Err(why) if attempt > 0 => self.undo_failed(at, &ErrorBody::new(Code::PolicyDenied, why), env, book),
            Err(why) => {
                self.report_not_undone(at, &why);
                self.undo.iter_mut().for_each(|undo| undo.current = None);
                self.continue_undo(env, book)
            }
        }
    }

    /// Whether the undo of a place is repeatable.
    fn is_undo_repeatable(&self, at: RunPlace) -> bool {
        matches!(self.work(at), Work::Tool(spec) if spec.rollback == Rollback::Repeatable)
    }

    /// An undo call ended.
    pub(crate) fn undo_answered(
        &mut self,
        at: RunPlace,
        call: Uuid,
        answer: CallOutcome,
        _took_ms: i64,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        let Some(undo) = &mut self.undo else { return Ok(()) };
        let Some(current) = undo.current.as_mut().filter(|current| current.call == Some(call)) else { return Ok(()) };
        self.calls.remove(&at);
        book.effects.push(Effect::Release(at));
        current.call = None;
        let error = match answer {
            CallOutcome::Output(_) => {
                let effect = current.effect;
                self.place_undone(at, json!({"node": self.name(at), "item": at.item, "effect_id": effect}), env, book);
                return self.undo_settled(EffectStatus::Succeeded, env, book);
            }
            CallOutcome::Failed(error) => error,
            CallOutcome::Checked(_) => return self.undo_settled(EffectStatus::Failed, env, book),
        };
        current.in_doubt |= error.sent == Sent::Maybe;
        let (attempt, in_doubt) = (current.attempt, current.in_doubt);
        let dice = u64::from_be_bytes(*call.as_bytes().last_chunk().unwrap_or(&[0; 8]));
        let due = retry::due(&error.body, attempt, limits::RETRIES_MAX, env.now, dice);
        match due.filter(|_| !in_doubt || self.is_undo_repeatable(at)) {
            Some(due) => {
                self.undo.iter_mut().for_each(|undo| undo.retry_at = Some(due));
                // Certainly not sent: record that, so that its outcome stays known after a crash.
                if in_doubt { Ok(()) } else { self.write_compensation(EffectStatus::Prepared, None, env.now, book) }
            }
            None => self.undo_failed(at, &error.body, env, book),
        }
    }

    /// No more retries. An undo that may have taken effect does not fail: its outcome is unknown, and a person
    /// resolves it.
    fn undo_failed(
        &mut self,
        at: RunPlace,
        error: &ErrorBody,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        let data = json!({"node": self.name(at), "code": error.code, "message": error.message});
        book.add_note("step.rollback_failed", self.step_id(at), None, data);
        self.report_not_undone(at, &error.message);
        let current = self.undo.as_ref().and_then(|undo| undo.current.as_ref());
        let status = if current.is_some_and(|current| current.in_doubt) {
            self.begin_doubt(at, &error.message, env.now, book);
            EffectStatus::Unknown
        } else {
            EffectStatus::Failed
        };
        self.undo_settled(status, env, book)
    }

    /// Settles the current undo and continues with the next.
    fn undo_settled(
        &mut self,
        status: EffectStatus,
        env: &mut Env<'_>,
        book: &mut TurnBuilder,
    ) -> Result<(), Unstorable> {
        self.write_compensation(status, None, env.now, book)?;
        self.undo.iter_mut().for_each(|undo| undo.current = None);
        self.continue_undo(env, book)
    }

    pub(super) fn finish_rollback(&mut self, env: &mut Env<'_>, book: &mut TurnBuilder) -> Result<(), Unstorable> {
        self.write_undo(true, book)?;
        let Some(undo) = self.undo.take() else { return Ok(()) };
        let whole = undo.not_undone.is_empty() && !undo.partial;
        // The run's row has the complete list.
        let shown = &undo.not_undone[..undo.not_undone.len().min(limits::UNDO_LEFT_SHOWN_MAX)];
        let data = json!({
            "undone": undo.undone.len(), "left": shown, "left_count": undo.not_undone.len(), "reason": undo.reason,
        });
        if whole {
            self.status = RunStatus::RolledBack;
            book.status = Some(RunStatus::RolledBack);
            book.add_note("run.rolled_back", None, Some(undo.by), data);
        } else {
            book.add_note("run.rollback_ended", None, Some(undo.by), data);
        }
        self.signal_parent(undo.for_parent, whole, env, book)
    }

    /// Writes the progress of the rollback to `runs.rollback`.
    pub(super) fn write_undo(&self, ended: bool, book: &mut TurnBuilder) -> Result<(), Unstorable> {
        let Some(undo) = &self.undo else { return Ok(()) };
        // A reloaded run considers only the steps listed here, whatever their state.
        let current = undo.current.as_ref().map(|current| current.at);
        let ahead = current.iter().chain(&undo.queue).filter_map(|at| self.step_id(*at));
        let behind =
            undo.undone.iter().chain(&undo.not_undone).filter_map(|line| line["step_id"].as_str()?.parse().ok());
        let only: Vec<Uuid> = behind.chain(ahead).collect();
        let document = json!({
            "by": undo.by.id, "by_kind": undo.by.kind.as_str(), "reason": undo.reason, "part": undo.partial, "ended": ended, "round": undo.round,
            "for_parent": undo.for_parent, "began_at": undo.began_at.map(Timestamp::micros), "restored_at": self.restored_at.map(Timestamp::micros),
            "undone": undo.undone, "left": undo.not_undone, "steps": if ended { Vec::new() } else { only },
        });
        book.set_run_column("rollback", Json::encode(&document)?);
        Ok(())
    }
}
