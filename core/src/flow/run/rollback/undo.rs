//! Rolls a run back: undoes the effects of its steps, the last one first.
//!
//! Each undo is a recorded effect (a compensation), evaluated by the policy like any other call. A child run
//! rolls itself back and signals its parent when it is done. Steps that can't be undone are reported, and
//! then the run keeps its status. A rollback continues after a crash. The undo that was in flight is
//! resent only if its tool declares it repeatable; otherwise its outcome is unknown, and a person
//! resolves it. The same applies if the row of an undo was deleted: the row of its step says that it
//! was sent.

use crate::access::Actor;
use crate::error::{Code, ErrorBody};
use crate::flow::call::{CallOutcome, Sent};
use crate::flow::policy::{Action, PolicyVerdict};
use crate::flow::run::answer::RECORD_MISSING;
use crate::flow::run::env::Env;
use crate::flow::run::event::{Call, CallMode, Effect};
use crate::flow::run::refused_turn::TURN_REFUSED;
use crate::flow::run::rollback::child_undo;
use crate::flow::run::rollback::loading;
use crate::flow::run::start::Work;
use crate::flow::run::tasks::task::{Task, TaskState};
use crate::flow::run::turn_builder::{TurnBuilder, TurnContext};
use crate::flow::run::{EffectStatus, Run, RunPlace, RunStatus, retry, start};
use crate::flow::status::EffectPurpose;
use crate::flow::tables::{EFFECTS, effects, runs};
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

impl RollbackProgress {}

/// Starts a rollback.
pub(crate) fn begin(run: &mut Run, wanted: RollbackRequest, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let RollbackRequest { steps, by, reason, for_parent } = wanted;
    if let Some(undo) = run.rollback.progress.as_mut().filter(|_| for_parent) {
        undo.for_parent = true;
        return write_progress(run, false, &mut cx.turn);
    }
    let refusal = match run.status {
        _ if run.rollback.is_under_way() => Some("a rollback is under way"),
        RunStatus::RolledBack => Some("it is already rolled back"),
        status if !status.is_final() => Some("the run has not ended"),
        _ if run.stopping.can_only_end() => Some(TURN_REFUSED),
        _ => None,
    };
    if let Some(why) = refusal {
        cx.turn.add_note("run.rollback_refused", None, Some(by), json!({"reason": why}));
        return child_undo::signal_parent(run, for_parent, run.status == RunStatus::RolledBack, cx);
    }
    let mut done: Vec<(i64, RunPlace)> =
        run.tasks.places().filter_map(|at| Some((undoable(run, at, steps.as_deref())?, at))).collect();
    if run.rollback.undos.saturating_add(done.len()) > limits::RUN_UNDOS_MAX {
        let why = format!("a run has at most {} recorded undos; undo it by hand", limits::RUN_UNDOS_MAX);
        cx.turn.add_note("run.rollback_refused", None, Some(by), json!({"reason": why}));
        return child_undo::signal_parent(run, for_parent, false, cx);
    }
    done.sort_unstable_by_key(|(seq, _)| std::cmp::Reverse(*seq));
    cx.turn.add_note("run.rollback_started", None, Some(by.clone()), json!({"reason": reason, "steps": done.len()}));
    run.rollback.rounds += 1;
    run.rollback.progress = Some(RollbackProgress {
        by,
        reason,
        partial: steps.is_some(),
        for_parent,
        began_at: Some(cx.env.now),
        round: run.rollback.rounds,
        queue: done.into_iter().map(|(_, at)| at).collect(),
        current: None,
        undone: Vec::new(),
        not_undone: Vec::new(),
        retry_at: None,
        from_backup: false,
    });
    write_progress(run, false, &mut cx.turn)?;
    proceed(run, cx)
}

/// The sequence number of a place with something to undo: a write that took effect, or a child run.
fn undoable(run: &Run, at: RunPlace, only: Option<&[Uuid]>) -> Option<i64> {
    let task = run.tasks.task(at)?;
    let (TaskState::Completed { seq, .. } | TaskState::Failed { seq, .. }) = task.state() else { return None };
    let step = task.step()?.id;
    if only.is_some_and(|only| !only.contains(&step)) {
        return None;
    }
    let happened = task.effect().is_some_and(|effect| effect.status == EffectStatus::Succeeded);
    let dry = task.input().is_some_and(is_dry_run);
    match start::work(run, at) {
        Work::Tool(spec) => (run.tasks.reach(at, &spec) == EffectKind::Write && happened && !dry).then_some(*seq),
        Work::Child { .. } => task.child().map(|_| *seq),
        _ => None,
    }
}

/// Undoes the next step, or ends the rollback.
pub(crate) fn proceed(run: &mut Run, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    loop {
        let Some(undo) = &mut run.rollback.progress else { return Ok(()) };
        if undo.current.is_some() {
            return Ok(());
        }
        let Some(at) = undo.queue.pop_front() else { return finish(run, cx) };
        if run.stopping.can_only_end() {
            report_not_undone(run, at, TURN_REFUSED);
            continue;
        }
        if let Some(child) = run.tasks.child(at) {
            return child_undo::undo_child(run, at, child, cx);
        }
        match may_undo(run, at, &cx.env) {
            Err(why) => report_not_undone(run, at, &why),
            Ok(()) => {
                let effect = id::effect(run.head.id, &undo_key(run, at, run.rollback.rounds));
                run.rollback.set_current(Some(CurrentUndo::new(at, effect, None)));
                return send(run, cx);
            }
        }
    }
}

pub(crate) fn place_undone(run: &mut Run, at: RunPlace, data: Value, cx: &mut TurnContext<'_>) {
    let step = run.tasks.step_id(at);
    let line = json!({"node": run.tasks.name(at), "item": at.item, "step_id": step});
    run.rollback.progress.iter_mut().for_each(|undo| undo.undone.push(line.clone()));
    cx.turn.add_note("step.rolled_back", step, None, data);
    let output = run.tasks.task(at).and_then(|task| task.output().cloned()).unwrap_or_default();
    run.tasks.enter(at, TaskState::RolledBack { output });
    run.tasks.mark_dirty(at, cx);
    run.doubts.end(at, &mut cx.turn);
}

/// Marks an ended run as rolled back by hand. No tool is called.
pub(crate) fn mark_rolled_back(run: &mut Run, by: Actor, reason: Option<String>, turn: &mut TurnBuilder) {
    let refusal = match run.status {
        _ if run.rollback.is_under_way() => Some("a rollback is under way"),
        RunStatus::RolledBack => Some("it is already rolled back"),
        status if !status.is_final() => Some("the run has not ended"),
        _ => None,
    };
    if let Some(why) = refusal {
        turn.add_note("run.rollback_refused", None, Some(by), json!({"reason": why}));
        return;
    }
    run.doubts.end_all(turn);
    run.status = RunStatus::RolledBack;
    turn.status = Some(RunStatus::RolledBack);
    turn.add_note("run.rolled_back", None, Some(by), json!({"by_hand": true, "reason": reason}));
}

fn may_undo(run: &Run, at: RunPlace, env: &Env<'_>) -> Result<(), String> {
    let Work::Tool(spec) = start::work(run, at) else { return Err("it is not a tool call".to_owned()) };
    if run.tasks.task(at).is_some_and(|task| matches!(task.state(), TaskState::Failed { .. })) {
        return Err("its output can't be used, so it is unknown what to undo".to_owned());
    }
    if run.tasks.graph().nodes[at.node].is_tool_absent {
        return Err(spec.description.clone());
    }
    if !spec.is_reversible() {
        return Err(format!("{} does not support rollback", spec.name));
    }
    // A person who names the step has checked the outcome.
    let named = run.rollback.progress.as_ref().is_some_and(|undo| undo.partial);
    if !named && spec.rollback == Rollback::Once && run.doubts.since(at).is_some() {
        return Err(IN_DOUBT.to_owned());
    }
    let input = run.tasks.task(at).map(Task::shared_input).unwrap_or_default();
    let (tenant, actor, level) = (run.head.tenant.as_str(), run.head.actor.as_str(), run.head.level);
    let action = Action { tenant, actor, level, node: run.tasks.name(at), tool: &spec, input: &input };
    let of_run = match env.policy.evaluate(&action) {
        PolicyVerdict::Deny { reason, .. } => return Err(reason),
        // The rollback request is itself a decision: approvals guard calls, not their undo.
        verdict @ (PolicyVerdict::Allow | PolicyVerdict::Ask(_)) => verdict,
    };
    // The requester of the rollback must still be allowed to make the call.
    match run.rollback.progress.as_ref().map(|undo| undo.by.id.as_str()).filter(|by| *by != actor) {
        Some(by) => env.policy.evaluate(&Action { actor: by, ..action }).check_contribution(&of_run),
        None => Ok(()),
    }
}

pub(crate) fn report_not_undone(run: &mut Run, at: RunPlace, why: &str) {
    let line = json!({"node": run.tasks.name(at), "item": at.item, "step_id": run.tasks.step_id(at), "reason": why});
    if let Some(undo) = &mut run.rollback.progress {
        undo.not_undone.push(line);
    }
}

/// Writes the status of the current undo. Its row is created with the first send.
pub(crate) fn write_compensation(
    run: &mut Run,
    status: EffectStatus,
    deadline: Option<Timestamp>,
    now: Timestamp,
    turn: &mut TurnBuilder,
) -> Result<(), Unstorable> {
    let Some(current) = run.rollback.current() else { return Ok(()) };
    let (at, effect, version, attempt) = (current.at, current.effect, current.version, i64::from(current.attempt));
    let child = current.child;
    let sent = status == EffectStatus::Dispatched;
    if version > 0 {
        let mut set =
            vec![(effects::status, status.as_str().into()), (effects::settled_at, (!sent).then_some(now).into())];
        if sent {
            set.extend([
                (effects::attempt, attempt.into()),
                (effects::deadline, deadline.into()),
                (effects::dispatched_at, now.into()),
            ]);
        }
        turn.update(Update::versioned(&EFFECTS, vec![effect.into()], version, set)?);
    } else {
        let Some(digest) = run.tasks.task(at).map(Task::input_digest) else { return Ok(()) };
        let tool = match child {
            Some(_) => "workflow".to_owned(),
            None => run.tasks.function(at).map(|function| function.tool.clone()).unwrap_or_default(),
        };
        turn.insert(Insert::new(
            &EFFECTS,
            vec![
                (effects::id, effect.into()),
                (effects::tenant_id, run.head.tenant.as_str().into()),
                (effects::run_id, run.head.id.into()),
                (effects::step_id, run.tasks.step_id(at).into()),
                (effects::kind, EffectPurpose::Compensation.into()),
                (effects::tool, tool.as_str().into()),
                (effects::status, status.as_str().into()),
                (effects::idempotency_key, undo_key(run, at, run.rollback.rounds).into()),
                (effects::attempt, attempt.into()),
                (effects::deadline, deadline.into()),
                (effects::input_digest, Cell::Bytes(digest.to_vec())),
                (effects::created_at, now.into()),
                (effects::dispatched_at, now.into()),
                (effects::state_version, 1.into()),
            ],
        )?);
        run.rollback.undos += 1;
        if sent {
            let data = match child {
                Some(child) => json!({"node": run.tasks.name(at), "item": at.item, "child_run_id": child}),
                None => json!({"node": run.tasks.name(at), "tool": tool, "effect_id": effect}),
            };
            turn.add_note("step.rollback_started", run.tasks.step_id(at), None, data);
        }
    }
    if child.is_none() {
        turn.undoing.insert(at);
    }
    if let Some(current) = run.rollback.current_mut() {
        current.version += 1;
    }
    Ok(())
}

/// The idempotency key of an undo's row, different for each rollback.
pub(crate) fn undo_key(run: &Run, at: RunPlace, round: u32) -> String {
    format!("{}:{round}", start::effect_key(run, at, &CallMode::Undo { output: Arc::default() }))
}

fn send(run: &mut Run, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let Some(current) = run.rollback.current() else { return Ok(()) };
    let (at, effect, attempt) = (current.at, current.effect, current.attempt + 1);
    let Work::Tool(spec) = start::work(run, at) else { return Ok(()) };
    if current.child.is_some() {
        return Ok(());
    }
    let slot = start::take_slot(run, at, &spec, &mut cx.env);
    let Some(undo) = &mut run.rollback.progress else { return Ok(()) };
    // It is due: from now on it waits for a slot at most.
    undo.retry_at = None;
    if !slot {
        return Ok(());
    }
    let call = (cx.env.ids)();
    let ms = i64::try_from(spec.timeout_ms).unwrap_or(60_000);
    let deadline = Timestamp::from_micros(cx.env.now.micros().saturating_add(ms * 1_000));
    if let Some(current) = &mut undo.current {
        (current.call, current.attempt, current.deadline) = (Some(call), attempt, Some(deadline));
    }
    write_compensation(run, EffectStatus::Dispatched, Some(deadline), cx.env.now, &mut cx.turn)?;
    let Some(task) = run.tasks.task(at) else { return Ok(()) };
    let mode = CallMode::Undo { output: task.output().cloned().unwrap_or_default() };
    cx.turn.effects.push(Effect::Call(Call {
        at,
        id: call,
        step: run.tasks.step_id(at).unwrap_or_default(),
        effect,
        key: start::effect_key(run, at, &mode),
        attempt,
        tool: Arc::clone(&spec),
        input: task.shared_input(),
        mode,
        deadline,
    }));
    run.tasks.call_started(at);
    Ok(())
}

/// Continues a rollback that was loaded or whose retry is due.
pub(crate) fn drive(run: &mut Run, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    loading::abandon_restored(run, cx)?;
    let Some(undo) = &mut run.rollback.progress else { return Ok(()) };
    let due = undo.retry_at.is_none_or(|due| due <= cx.env.now);
    let Some(current) = &mut undo.current else { return proceed(run, cx) };
    if current.call.is_some() || current.child.is_some() || !due {
        return Ok(());
    }
    let (at, lost, attempt) = (current.at, std::mem::take(&mut current.lost), current.attempt);
    if lost && current.version == 0 {
        return failed(run, at, &ErrorBody::new(Code::OutcomeUnknown, RECORD_MISSING), cx);
    }
    if run.stopping.can_only_end() && !lost {
        return failed(run, at, &ErrorBody::new(Code::Internal, TURN_REFUSED), cx);
    }
    if lost && (run.stopping.can_only_end() || !(is_undo_repeatable(run, at) && attempt < limits::RESENDS_MAX)) {
        return failed(run, at, &ErrorBody::new(Code::OutcomeUnknown, LOST), cx);
    }
    match may_undo(run, at, &cx.env) {
        Ok(()) => send(run, cx),
        // It was allowed when it was first sent, but no longer is.
        Err(why) if attempt > 0 => failed(run, at, &ErrorBody::new(Code::PolicyDenied, why), cx),
        Err(why) => {
            report_not_undone(run, at, &why);
            run.rollback.set_current(None);
            proceed(run, cx)
        }
    }
}

/// Whether the undo of a place is repeatable.
fn is_undo_repeatable(run: &Run, at: RunPlace) -> bool {
    matches!(start::work(run, at), Work::Tool(spec) if spec.rollback == Rollback::Repeatable)
}

/// An undo call ended.
pub(crate) fn answered(
    run: &mut Run,
    at: RunPlace,
    call: Uuid,
    answer: CallOutcome,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    let Some(undo) = &mut run.rollback.progress else { return Ok(()) };
    let Some(current) = undo.current.as_mut().filter(|current| current.call == Some(call)) else { return Ok(()) };
    run.tasks.call_ended(at);
    cx.turn.effects.push(Effect::Release(at));
    current.call = None;
    let error = match answer {
        CallOutcome::Output(_) => {
            let effect = current.effect;
            let data = json!({"node": run.tasks.name(at), "item": at.item, "effect_id": effect});
            place_undone(run, at, data, cx);
            return settled(run, EffectStatus::Succeeded, cx);
        }
        CallOutcome::Failed(error) => error,
        CallOutcome::Checked(_) => return settled(run, EffectStatus::Failed, cx),
    };
    current.in_doubt |= error.sent == Sent::Maybe;
    let (attempt, in_doubt) = (current.attempt, current.in_doubt);
    let dice = u64::from_be_bytes(*call.as_bytes().last_chunk().unwrap_or(&[0; 8]));
    let due = retry::due(&error.body, attempt, limits::RETRIES_MAX, cx.env.now, dice);
    match due.filter(|_| !in_doubt || is_undo_repeatable(run, at)) {
        Some(due) => {
            run.rollback.set_retry_at(Some(due));
            // Certainly not sent: record that, so that its outcome stays known after a crash.
            if in_doubt {
                Ok(())
            } else {
                write_compensation(run, EffectStatus::Prepared, None, cx.env.now, &mut cx.turn)
            }
        }
        None => failed(run, at, &error.body, cx),
    }
}

/// No more retries. An undo that may have taken effect does not fail: its outcome is unknown, and a person
/// resolves it.
fn failed(run: &mut Run, at: RunPlace, error: &ErrorBody, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let data = json!({"node": run.tasks.name(at), "code": error.code, "message": error.message});
    cx.turn.add_note("step.rollback_failed", run.tasks.step_id(at), None, data);
    report_not_undone(run, at, &error.message);
    let current = run.rollback.current();
    let status = if current.is_some_and(|current| current.in_doubt) {
        run.doubts.begin(at, &error.message, &run.tasks, cx);
        EffectStatus::Unknown
    } else {
        EffectStatus::Failed
    };
    settled(run, status, cx)
}

/// Settles the current undo and continues with the next.
fn settled(run: &mut Run, status: EffectStatus, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    write_compensation(run, status, None, cx.env.now, &mut cx.turn)?;
    run.rollback.set_current(None);
    proceed(run, cx)
}

pub(crate) fn finish(run: &mut Run, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    write_progress(run, true, &mut cx.turn)?;
    let Some(undo) = run.rollback.progress.take() else { return Ok(()) };
    let whole = undo.not_undone.is_empty() && !undo.partial;
    // The run's row has the complete list.
    let shown = &undo.not_undone[..undo.not_undone.len().min(limits::UNDO_LEFT_SHOWN_MAX)];
    let data = json!({
        "undone": undo.undone.len(), "left": shown, "left_count": undo.not_undone.len(), "reason": undo.reason,
    });
    if whole {
        run.status = RunStatus::RolledBack;
        cx.turn.status = Some(RunStatus::RolledBack);
        cx.turn.add_note("run.rolled_back", None, Some(undo.by), data);
    } else {
        cx.turn.add_note("run.rollback_ended", None, Some(undo.by), data);
    }
    child_undo::signal_parent(run, undo.for_parent, whole, cx)
}

/// Writes the progress of the rollback to `runs.rollback`.
pub(crate) fn write_progress(run: &Run, ended: bool, turn: &mut TurnBuilder) -> Result<(), Unstorable> {
    let Some(undo) = &run.rollback.progress else { return Ok(()) };
    // A reloaded run considers only the steps listed here, whatever their state.
    let current = undo.current.as_ref().map(|current| current.at);
    let ahead = current.iter().chain(&undo.queue).filter_map(|at| run.tasks.step_id(*at));
    let behind = undo.undone.iter().chain(&undo.not_undone).filter_map(|line| line["step_id"].as_str()?.parse().ok());
    let only: Vec<Uuid> = behind.chain(ahead).collect();
    let document = json!({
        "by": undo.by.id, "by_kind": undo.by.kind.as_str(), "reason": undo.reason, "part": undo.partial, "ended": ended, "round": undo.round,
        "for_parent": undo.for_parent, "began_at": undo.began_at.map(Timestamp::micros), "restored_at": run.row.restored_at().map(Timestamp::micros),
        "undone": undo.undone, "left": undo.not_undone, "steps": if ended { Vec::new() } else { only },
    });
    turn.set_run_column(runs::rollback, Json::encode(&document)?);
    Ok(())
}
