//! The places of a run, rebuilt from the rows of their steps and effects.
//!
//! A place without a row has not started. What can't be decoded, and a step of a node that the graph does not have, are
//! damage: nothing of the run is driven then.

use super::task::{MapProgress, StoredEffect, StoredStep, Task, TaskState};
use crate::error::ErrorBody;
use crate::flow::air::Body;
use crate::flow::approval::{StoredApproval, current, newest_approved};
use crate::flow::run::load::value_or_null;
use crate::flow::run::patches::apply::RunPatch;
use crate::flow::run::requesters::merge_names;
use crate::flow::run::restore::is_written_since_restore;
use crate::flow::run::waits::WaitState;
use crate::flow::run::{EffectStatus, Run, RunPlace, StepStatus};
use crate::flow::status::EffectPurpose;
use crate::flow::tables::{EffectRow, StepRow};
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
    approvals: &[StoredApproval],
) -> Result<(), DamagedRows> {
    let calls = effects.iter().filter(|row| row.kind != EffectPurpose::Compensation);
    let effects: BTreeMap<Uuid, &EffectRow> = calls.map(|row| (row.step_id, row)).collect();
    // Parents first: items are stored in the state of their map.
    let (nodes, items): (Vec<&StepRow>, Vec<&StepRow>) = steps.iter().partition(|row| row.map_index.is_none());
    for row in nodes.into_iter().chain(items) {
        let stored = StoredTask { row, node: position(run, row)?, effect: effects.get(&row.id).copied(), approvals };
        let task = load_task(run, &stored)?;
        run.tasks.load_step(RunPlace { node: stored.node, item: row.map_index }, row.id, task);
    }
    Ok(())
}

/// What is stored of one place.
struct StoredTask<'a> {
    row: &'a StepRow,
    node: usize,
    /// The effect of its call, if it has one.
    effect: Option<&'a EffectRow>,
    /// The requests of the run.
    approvals: &'a [StoredApproval],
}

fn position(run: &Run, row: &StepRow) -> Result<usize, DamagedRows> {
    let name = &row.node_id;
    run.tasks.graph().position(name).ok_or_else(|| DamagedRows { what: format!("there is no node {name}") })
}

fn load_task(run: &Run, stored: &StoredTask<'_>) -> Result<Task, DamagedRows> {
    let StoredTask { row, effect, approvals, .. } = *stored;
    let of_step = |approval: &StoredApproval| approval.step == Some(row.id);
    let asked = approvals.iter().filter(|approval| of_step(approval)).max_by_key(|approval| approval.order());
    Ok(Task {
        state: load_state(run, stored)?,
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
        resends: effect.map_or(0, |effect| row.attempt.saturating_sub(effect.attempt)),
        checks: 0,
        doubt: None,
        in_doubt: effect.is_some_and(|effect| effect.status == EffectStatus::Unknown),
        cache_missed: false,
        approved: newest_approved(approvals, of_step),
        changed_by: asked.map(|asked| editors(run, stored, asked)).unwrap_or_default(),
        child: row.child_run_id,
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
        StepStatus::Ready | StepStatus::Judging | StepStatus::Paused => TaskState::Ready,
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
        return Ok(TaskState::AwaitingChild { run: child });
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
    Ok(match effect {
        Some(effect) if effect.status == EffectStatus::Dispatched => lost(Some(effect)),
        // A write is recorded before it is made, so somebody deleted its row.
        None if writes(run, stored) => lost(None),
        _ => TaskState::Ready,
    })
}
