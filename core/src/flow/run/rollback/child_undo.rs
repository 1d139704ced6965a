//! Rolling back child runs: the parent asks each child once per rollback and waits for its answer.
//!
//! The request is a recorded effect, written with the signal, so a parent that is loaded again knows which children it
//! asked and what they answered.

use crate::flow::run::event::Effect;
use crate::flow::run::rollback::undo;
use crate::flow::run::rollback::undo::{CHILD_LEFT, CurrentUndo};
use crate::flow::run::turn_builder::TurnContext;
use crate::flow::run::{EffectStatus, Run, RunPlace, SignalKind};
use crate::id;
use crate::record::Unstorable;
use serde_json::json;
use uuid::Uuid;

/// Lets a child run undo what it did. The request is written down with the signal: a run that is read again
/// knows which children were asked in this rollback and what they answered, and asks none of them twice.
pub(crate) fn undo_child(run: &mut Run, at: RunPlace, child: Uuid, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let asked = child_undo(run, at, child);
    let Some(undo) = &mut run.rollback.progress else { return Ok(()) };
    let (by, reason) = (undo.by.clone(), undo.reason.clone());
    undo.current = Some(asked);
    let kind = SignalKind::Rollback { steps: None, by, reason, for_parent: true };
    cx.turn.send_signal(&run.head.tenant, child, &kind, &mut cx.env)?;
    cx.turn.effects.push(Effect::Wake(child));
    undo::write_compensation(run, EffectStatus::Dispatched, None, cx.env.now, &mut cx.turn)
}

pub(crate) fn child_undo(run: &Run, at: RunPlace, child: Uuid) -> CurrentUndo {
    CurrentUndo::new(at, id::effect(run.head.id, &undo::undo_key(run, at, run.rollback.rounds)), Some(child))
}

/// A child run was rolled back as far as possible.
pub(crate) fn child_undone(run: &mut Run, step: Uuid, whole: bool, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let Some(at) = run.tasks.place_of_step(step) else { return Ok(()) };
    let Some(child) = run.tasks.child(at) else { return Ok(()) };
    let unasked = child_undo(run, at, child);
    let Some(undo) = &mut run.rollback.progress else { return Ok(()) };
    let asked = undo.current.take_if(|current| current.at == at && current.child.is_some());
    // Rollbacks that began before requests to children were written down know a child that was asked as one to come.
    let queued = undo.queue.iter().position(|queued| *queued == at);
    let Some(asked) = asked.or_else(|| queued.and_then(|at| undo.queue.remove(at)).map(|_| unasked)) else {
        return Ok(());
    };
    let other = undo.current.replace(asked);
    let status = if whole { EffectStatus::Succeeded } else { EffectStatus::Failed };
    undo::write_compensation(run, status, None, cx.env.now, &mut cx.turn)?;
    if let Some(undo) = &mut run.rollback.progress {
        undo.current = other;
    }
    if whole {
        let data = json!({"node": run.tasks.name(at), "item": at.item, "child_run_id": child});
        undo::place_undone(run, at, data, cx);
    } else {
        undo::report_not_undone(run, at, CHILD_LEFT);
    }
    undo::proceed(run, cx)
}

/// Signals the waiting parent whether the rollback was complete.
pub(crate) fn signal_parent(
    run: &Run,
    for_parent: bool,
    whole: bool,
    cx: &mut TurnContext<'_>,
) -> Result<(), Unstorable> {
    let Some((parent, step)) = run.head.parent.filter(|_| for_parent) else { return Ok(()) };
    cx.turn.send_signal(&run.head.tenant, parent, &SignalKind::ChildUndone { step, whole }, &mut cx.env)?;
    cx.turn.effects.push(Effect::Wake(parent));
    Ok(())
}
