//! A rollback under way, rebuilt from its document and the rows of its undos.

use crate::access::Actor;
use crate::flow::run::rollback::undo;
use crate::flow::run::rollback::undo::{CHILD_LEFT, CurrentUndo, RollbackProgress};
use crate::flow::run::tasks::task::TaskState;
use crate::flow::run::turn_builder::TurnContext;
use crate::flow::run::{EffectStatus, Run, RunPlace};
use crate::flow::status::EffectPurpose;
use crate::flow::tables::{EFFECTS, EffectRow, RunRow, StepRow, effects};
use crate::id;
use crate::ledger::ActorType;
use crate::record::{DamagedRows, Unstorable, Update};
use crate::time::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use uuid::Uuid;

const MAY_BE_UNDONE: &str = "it may have been undone after the backup was taken";

pub(crate) fn load(run: &mut Run, row: &RunRow, steps: &[StepRow], effects: &[EffectRow]) -> Result<(), DamagedRows> {
    run.rollback.undos = effects.iter().filter(|row| row.kind == EffectPurpose::Compensation).count();
    let Some(document) = &row.rollback else { return Ok(()) };
    let document = document.value()?;
    let round = document["round"].as_u64().and_then(|round| u32::try_from(round).ok()).unwrap_or(0);
    run.rollback.rounds = round;
    if document.get("ended").and_then(Value::as_bool) != Some(false) {
        return Ok(());
    }
    let mut undo = RollbackProgress {
        by: Actor::from_record(
            document["by"].as_str().unwrap_or_default(),
            document["by_kind"].as_str().and_then(ActorType::parse),
        ),
        reason: document["reason"].as_str().map(str::to_owned),
        partial: document["part"].as_bool().unwrap_or(false),
        for_parent: document["for_parent"].as_bool().unwrap_or(false),
        began_at: document["began_at"].as_i64().map(Timestamp::from_micros),
        round,
        queue: VecDeque::new(),
        current: None,
        undone: Vec::new(),
        not_undone: Vec::new(),
        retry_at: None,
        from_backup: document["restored_at"].as_i64() != run.row.restored_at().map(Timestamp::micros),
    };
    let damaged = |error| DamagedRows { what: format!("the steps of a rollback: {error}") };
    let asked = document.get("steps").cloned().map(serde_json::from_value).transpose().map_err(damaged)?;
    let asked: BTreeSet<Uuid> = asked.unwrap_or_default();
    let by_key: BTreeMap<&str, &EffectRow> = effects.iter().map(|row| (row.idempotency_key.as_str(), row)).collect();
    let sent: BTreeMap<Uuid, Timestamp> = steps.iter().filter_map(|row| Some((row.id, row.retry_at?))).collect();
    let mut queue: Vec<(i64, RunPlace)> = Vec::new();
    for at in run.tasks.places().collect::<Vec<_>>() {
        let Some(step) = run.tasks.step_id(at).filter(|step| asked.contains(step)) else { continue };
        let seq = match run.tasks.state(at) {
            Some(TaskState::Completed { seq, .. } | TaskState::Failed { seq, .. }) => *seq,
            Some(TaskState::RolledBack { .. }) => {
                undo.undone.push(json!({"node": run.tasks.name(at), "item": at.item, "step_id": step}));
                continue;
            }
            _ => continue,
        };
        match by_key.get(undo::undo_key(run, at, round).as_str()) {
            Some(effect) => load_compensation(run, at, effect, &mut undo),
            // An undo is written down before it is sent: somebody took its record away.
            None if sent.contains_key(&step) => {
                let deadline = sent.get(&step).copied();
                let effect = id::effect(run.head.id, &undo::undo_key(run, at, round));
                undo.retry_at = deadline;
                undo.current =
                    Some(CurrentUndo { in_doubt: true, lost: true, deadline, ..CurrentUndo::new(at, effect, None) });
            }
            None => queue.push((seq, at)),
        }
    }
    queue.sort_unstable_by_key(|(seq, _)| std::cmp::Reverse(*seq));
    undo.queue = queue.into_iter().map(|(_, at)| at).collect();
    run.rollback.progress = Some(undo);
    Ok(())
}

/// What the row of an undo says about a place that is not undone: it is under way, or it was tried and is left.
fn load_compensation(run: &Run, at: RunPlace, effect: &EffectRow, undo: &mut RollbackProgress) {
    let (status, child) = (effect.status, run.tasks.child(at));
    let reason = match status {
        EffectStatus::Prepared | EffectStatus::Dispatched => {
            let (lost, deadline) = (status == EffectStatus::Dispatched && child.is_none(), effect.deadline);
            // Whoever sent it may still be at it until then.
            undo.retry_at = deadline.filter(|_| lost);
            undo.current = Some(CurrentUndo {
                version: effect.state_version,
                attempt: effect.attempt,
                in_doubt: lost,
                lost,
                deadline,
                ..CurrentUndo::new(at, effect.id, child)
            });
            return;
        }
        _ if child.is_some() => CHILD_LEFT,
        EffectStatus::Unknown => "nobody knows whether it was undone",
        _ => "it could not be undone",
    };
    let step = run.tasks.step_id(at);
    undo.not_undone.push(json!({"node": run.tasks.name(at), "item": at.item, "step_id": step, "reason": reason}));
}

/// Ends a rollback that was in progress in the backup. Its remaining steps are reported as not undone.
pub(crate) fn abandon_restored(run: &mut Run, cx: &mut TurnContext<'_>) -> Result<(), Unstorable> {
    let Some(undo) = run.rollback.progress.as_mut().filter(|undo| undo.from_backup) else { return Ok(()) };
    undo.from_backup = false;
    let (current, queue) = (undo.current.take(), std::mem::take(&mut undo.queue));
    cx.turn.undoing.extend(current.iter().filter(|current| current.child.is_none()).map(|current| current.at));
    if let Some(current) = current.as_ref().filter(|current| current.version > 0) {
        let set =
            vec![(effects::status, EffectStatus::Unknown.as_str().into()), (effects::settled_at, cx.env.now.into())];
        cx.turn.update(Update::versioned(&EFFECTS, vec![current.effect.into()], current.version, set)?);
    }
    let places: Vec<RunPlace> = current.iter().map(|current| current.at).chain(queue).collect();
    for at in places {
        undo::report_not_undone(run, at, MAY_BE_UNDONE);
    }
    Ok(())
}
