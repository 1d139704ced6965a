//! The places of a run, rebuilt from the rows of their steps and effects.
//!
//! A place without a row has not started. What can't be decoded, and a step of a node that the graph does not have, are
//! damage: nothing of the run is driven then.

use super::task::{HeldOutput, JudgeState, MapProgress, Recovery, StoredEffect, StoredStep, Task, TaskState};
use super::work::{CallWork, StoredItem, TaskWork};
use crate::error::ErrorBody;
use crate::flow::air::Body;
use crate::flow::approval::{StoredApproval, current, newest_approved};
use crate::flow::judgement::Judgement;
use crate::flow::run::load::value_or_null;
use crate::flow::run::patches::apply::RunPatch;
use crate::flow::run::requesters::merge_names;
use crate::flow::run::restore::is_written_since_restore;
use crate::flow::run::waits::WaitState;
use crate::flow::run::{EffectStatus, Run, RunPlace, StepStatus, elsewhere};
use crate::flow::status::EffectPurpose;
use crate::flow::tables::{EffectRow, StepRow, WorkItemState};
use crate::flow::work::Elsewhere;
use crate::record::{DamagedRows, Json};
use crate::time::Timestamp;
use crate::tool::EffectKind;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

/// Loads the places that have rows.
pub(crate) fn load(
    run: &mut Run,
    steps: &[StepRow],
    effects: &[EffectRow],
    items: &[WorkItemState],
    approvals: &[StoredApproval],
) -> Result<(), DamagedRows> {
    let calls = effects.iter().filter(|row| row.kind == EffectPurpose::Tool);
    let effects: BTreeMap<(Uuid, u32), &EffectRow> =
        calls.map(|row| ((row.step_id, round_of(&row.idempotency_key)), row)).collect();
    let work: BTreeMap<Uuid, &WorkItemState> = items.iter().map(|row| (row.id, row)).collect();
    // Parents first: items are stored in the state of their map.
    let (nodes, items): (Vec<&StepRow>, Vec<&StepRow>) = steps.iter().partition(|row| row.map_index.is_none());
    for row in nodes.into_iter().chain(items) {
        let judgement: Option<Judgement> = row.judgement.as_ref().map(Json::decode).transpose()?;
        let effect = effects.get(&(row.id, judgement.as_ref().map_or(0, |made| made.round))).copied();
        let item = row.work_id.and_then(|id| work.get(&id)).copied();
        let stored = StoredTask { row, node: position(run, row)?, effect, item, judgement, approvals };
        let at = RunPlace { node: stored.node, item: row.map_index };
        let task = load_task(run, stored)?;
        run.tasks.load_step(at, row.id, task);
    }
    Ok(())
}

/// What is stored of one place.
struct StoredTask<'a> {
    row: &'a StepRow,
    node: usize,
    /// The effect of its call, if it has one.
    effect: Option<&'a EffectRow>,
    /// The work item of its call, if a worker executes it.
    item: Option<&'a WorkItemState>,
    /// What its judge decided last.
    judgement: Option<Judgement>,
    /// The requests of the run.
    approvals: &'a [StoredApproval],
}

/// The round that an idempotency key belongs to: `RUN:NODE` is the first, `RUN:NODE:2` the second.
fn round_of(key: &str) -> u32 {
    key.split(':').nth(2).and_then(|round| round.parse::<u32>().ok()).map_or(0, |round| round.saturating_sub(1))
}

fn position(run: &Run, row: &StepRow) -> Result<usize, DamagedRows> {
    let name = &row.node_id;
    run.tasks.graph().position(name).ok_or_else(|| DamagedRows { what: format!("there is no node {name}") })
}

fn load_task(run: &Run, stored: StoredTask<'_>) -> Result<Task, DamagedRows> {
    let StoredTask { row, effect, approvals, .. } = stored;
    let of_step = |approval: &StoredApproval| approval.step == Some(row.id);
    let asked = approvals.iter().filter(|approval| of_step(approval)).max_by_key(|approval| approval.order());
    Ok(Task {
        state: load_state(run, &stored)?,
        step: Some(StoredStep { id: row.id, version: row.state_version }),
        effect: effect.map(|effect| StoredEffect {
            id: effect.id,
            version: effect.state_version,
            status: effect.status,
            since_restore: is_written_since_restore(effect, run.row.restored_at()),
        }),
        input: row.input.as_ref().map(Json::value).transpose()?.map(Arc::new),
        digest: row.input_digest,
        attempt: row.attempt,
        recovery: Recovery {
            resends: effect.map_or(0, |effect| row.attempt.saturating_sub(effect.attempt)),
            checks: 0,
        },
        doubt: None,
        in_doubt: effect.is_some_and(|effect| effect.status == EffectStatus::Unknown)
            || stored.item.is_some_and(|item| item.in_doubt && row.status == StepStatus::Running),
        cache_missed: false,
        approved: newest_approved(approvals, of_step),
        changed_by: asked.map(|asked| editors(run, &stored, asked)).unwrap_or_default(),
        elsewhere: TaskWork { child: row.child_run_id, call: call_work(&stored), is_stored: row.work_kind.is_some() },
        judging: JudgeState { judgement: stored.judgement.map(Box::new), held: load_held(row)? },
        started_at: row.started_at,
    })
}

/// The editors of a step, according to its last approval request. Older requests don't name them: then, all
/// co-requesters of the request who are not requesters for another reason.
fn editors(run: &Run, stored: &StoredTask<'_>, asked: &StoredApproval) -> Vec<String> {
    if let Some(editors) = asked.data.edited_by() {
        return editors;
    }
    let planned = run.drafting.editors_of(&stored.row.node_id);
    let others = run.patches.of_node(stored.node).into_iter().flat_map(RunPatch::writers).chain(planned);
    let known = merge_names(run.head.requesters(), others);
    asked.requesters.iter().skip(1).filter(|who| !known.contains(who)).cloned().collect()
}

fn load_state(run: &Run, stored: &StoredTask<'_>) -> Result<TaskState, DamagedRows> {
    let StoredTask { row, effect, approvals, .. } = *stored;
    let error = || -> Result<Box<ErrorBody>, DamagedRows> {
        let missing = || DamagedRows { what: "a step has failed without an error".to_owned() };
        Ok(Box::new(row.error.as_ref().ok_or_else(missing)?.decode()?))
    };
    let output = || value_or_null(row.output.as_ref()).map(Arc::new);
    let (due, seq) = (row.retry_at, row.completed_seq.unwrap_or(0));
    Ok(match row.status {
        StepStatus::Pending => match due {
            Some(until) => TaskState::Delayed { until },
            // It was drafted and has not started.
            None => load_pending(run, stored),
        },
        StepStatus::Ready | StepStatus::Paused => TaskState::Ready,
        StepStatus::Judging => TaskState::Judging,
        StepStatus::AwaitingApproval => match current(approvals, |approval| approval.step == Some(row.id)) {
            Some(asked) => TaskState::AwaitingApproval(asked),
            None => return Err(DamagedRows { what: "an approval is missing".to_owned() }),
        },
        StepStatus::Running => load_running(run, stored)?,
        // The missing `effects` row would say whether the first attempt may have taken effect.
        StepStatus::RetryWait if effect.is_none() && writes(run, stored) => {
            TaskState::Lost { deadline: due.unwrap_or(Timestamp::from_micros(0)) }
        }
        StepStatus::RetryWait => {
            TaskState::RetryWait { until: due.unwrap_or(Timestamp::from_micros(0)), error: error()? }
        }
        StepStatus::Waiting => TaskState::Waiting(WaitState::load(&value_or_null(row.input.as_ref())?, due)),
        StepStatus::OutcomeUnknown => TaskState::OutcomeUnknown { error: error()? },
        StepStatus::Completed => TaskState::Completed { output: output()?, seq, items: Vec::new() },
        StepStatus::Failed => TaskState::Failed { error: error()?, output: output()?, seq, items: Vec::new() },
        StepStatus::Skipped => TaskState::Skipped,
        StepStatus::Cancelled => TaskState::Cancelled { items: Vec::new() },
        StepStatus::RolledBack => TaskState::RolledBack { output: output()? },
    })
}

/// The output that the judge has not released. Other outputs belong to steps that have ended.
fn load_held(row: &StepRow) -> Result<Option<HeldOutput>, DamagedRows> {
    let held = row.output.as_ref().filter(|_| matches!(row.status, StepStatus::Judging | StepStatus::AwaitingApproval));
    let how = if row.child_run_id.is_some() { "child" } else { "completed" };
    Ok(held.map(Json::value).transpose()?.map(|output| HeldOutput { output: Arc::new(output), how }))
}

fn load_pending(run: &Run, stored: &StoredTask<'_>) -> TaskState {
    let incoming = run.tasks.graph().nodes[stored.node].incoming.len();
    TaskState::Pending { undecided: u32::try_from(incoming).unwrap_or(u32::MAX), taken: false }
}

/// Whether the tool of a step is a write, so that every call has a row in `effects`.
fn writes(run: &Run, stored: &StoredTask<'_>) -> bool {
    let tool = run.tasks.graph().nodes[stored.node].tool.as_ref();
    tool.is_some_and(|spec| spec.effect == EffectKind::Write)
}

fn load_running(run: &Run, stored: &StoredTask<'_>) -> Result<TaskState, DamagedRows> {
    let StoredTask { row, node, effect, .. } = *stored;
    if let Some(child) = row.child_run_id {
        let until = row.work_until.unwrap_or_else(|| elsewhere::child_deadline(run, row.started_at));
        return Ok(TaskState::Elsewhere { work: Elsewhere::Run(child), until });
    }
    if row.map_index.is_none() && matches!(run.tasks.graph().nodes[node].node.body, Body::Map(_)) {
        let mut input = value_or_null(row.input.as_ref())?;
        let over = input.get_mut("over").and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default();
        let open = over.len();
        return Ok(TaskState::Mapping(MapProgress { over: Arc::new(over), open, ..MapProgress::default() }));
    }
    let lost = |effect: Option<&EffectRow>| {
        let deadline = effect.and_then(|effect| effect.deadline);
        TaskState::Lost { deadline: row.retry_at.or(deadline).unwrap_or(Timestamp::from_micros(0)) }
    };
    if let Some(work) = call_work(stored).filter(elsewhere::may_still_end) {
        return Ok(TaskState::Elsewhere { work: work.elsewhere(), until: work.until });
    }
    Ok(match effect {
        Some(effect) if effect.status == EffectStatus::Dispatched => lost(Some(effect)),
        // A write is recorded before it is made, so somebody deleted its row.
        None if writes(run, stored) => lost(None),
        _ => TaskState::Ready,
    })
}

/// The work elsewhere that executes the call of a step, or executed the last one.
fn call_work(stored: &StoredTask<'_>) -> Option<CallWork> {
    let row = stored.row;
    let until = row.work_until.unwrap_or(Timestamp::from_micros(0));
    let item = stored.item.map(|item| StoredItem {
        state: item.state,
        claims: item.claims,
        cancel_requested: item.cancel_requested,
        in_doubt: item.in_doubt,
    });
    Some(CallWork { kind: row.work_kind?, id: row.work_id?, until, item })
}
