//! The end of a turn: writes the rows of changed places and the next version of the run's row.

use super::env::Env;
use super::event::{CallMode, Turn};
use super::tasks::task::TaskState;
use super::turn_builder::{TurnBuilder, TurnContext};
use super::{LaneOwner, Run, RunPlace, RunStatus, end};
use crate::flow::tables::{RUNS, STEPS, runs, steps};
use crate::flow::work::Elsewhere;
use crate::json::Digest32;
use crate::limits;
use crate::record::{Insert, Json, Unstorable, Update, Value};
use crate::time::Timestamp;
use serde_json::json;
use uuid::Uuid;

/// Who continues a run after this turn. A row with work left always has an owner or a deadline, so that
/// it is found again if its process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Continuation {
    /// The owner of this lane drives it.
    Owned(LaneOwner),
    /// No owner. It is claimed again at `until` or when it gets a signal.
    Parked {
        until: Timestamp,
        /// It waits only for a slot.
        for_slot: bool,
    },
    Ended,
}

impl Continuation {
    const fn owner(self) -> Option<LaneOwner> {
        match self {
            Self::Owned(owner) => Some(owner),
            Self::Parked { .. } | Self::Ended => None,
        }
    }

    const fn until(self) -> Option<Timestamp> {
        match self {
            Self::Parked { until, .. } => Some(until),
            Self::Owned(_) | Self::Ended => None,
        }
    }
}

pub(crate) fn note_started(run: &Run, builder: &mut TurnBuilder) {
    let data = json!({
        "workflow_id": run.head.workflow.id,
        "workflow_version": run.head.workflow.version,
        "graph_digest": run.tasks.graph().digest,
        "inputs_digest": Digest32::of(&run.head.inputs),
        "autonomy_level": run.head.level.as_str(),
        "level_because": run.head.risk.as_ref().map(|risk| risk["level_because"].clone()),
        "risk_score": run.head.risk.as_ref().map(|risk| risk["score"].clone()),
        "source": run.head.source.as_str(),
        "dry_run": run.head.dry_run,
        "parent_run_id": run.head.parent.map(|(run, _)| run),
        "replay_of": run.head.replay.as_ref().map(|replay| replay.of),
    });
    builder.add_note("run.started", None, Some(run.head.requester()), data);
}

/// Turns what the turn collected into a transaction.
pub(crate) fn finish_turn(run: &mut Run, cx: TurnContext<'_>) -> Result<Turn, Unstorable> {
    let TurnContext { mut env, turn: mut builder, limits: counted } = cx;
    let next = continuation(run, &mut env, &builder);
    let parked = !matches!(next, Continuation::Owned(_));
    let released = parked && run.row.owner().is_some();
    let changed = run.row.is_new() || builder.has_rows() || builder.claim || released;
    let mut turn = Turn { status: builder.status, more: builder.more, parked, ..Turn::default() };
    turn.waits_for_slot = matches!(next, Continuation::Parked { for_slot: true, .. });
    turn.waits_for_person = run.status == RunStatus::AwaitingApproval && !builder.more && end::is_idle(run);
    if changed {
        let dirty = std::mem::take(&mut builder.dirty);
        for at in &dirty {
            write_step(run, *at, env.now, &mut builder)?;
        }
        for at in std::mem::take(&mut builder.undoing).difference(&dirty) {
            write_undo_deadline(run, *at, &mut builder)?;
        }
        turn.notes = builder.number_notes();
        write_run(run, next, &mut builder)?;
        turn.tx = Some(builder.tx(affinity(run.head.id)));
    }
    (turn.reserved, turn.windows_read) = counted.into_reserved();
    turn.effects = builder.effects;
    turn.asked = builder.requested;
    turn.unknown_outcomes = builder.unknown_outcomes;
    Ok(turn)
}

/// Who continues the run after this turn.
fn continuation(run: &Run, env: &mut Env<'_>, builder: &TurnBuilder) -> Continuation {
    if builder.more {
        return Continuation::Owned(env.owner);
    }
    if run.status.is_final() && !run.rollback.is_under_way() {
        return Continuation::Ended;
    }
    if end::waits_for_slot(run, env)
        && let Some(seconds) = env.gate.park(run.head.id)
    {
        let again = env.now.plus_seconds(seconds);
        let until = run.next_deadline().map_or(again, |due| due.min(again));
        return Continuation::Parked { until, for_slot: true };
    }
    if end::can_park(run, env) {
        let again = || env.now.plus_seconds(limits::SIGNAL_POLL_SECONDS);
        return Continuation::Parked { until: run.next_deadline().unwrap_or_else(again), for_slot: false };
    }
    Continuation::Owned(env.owner)
}

fn write_run(run: &mut Run, next: Continuation, builder: &mut TurnBuilder) -> Result<(), Unstorable> {
    let new = run.row.is_new();
    let (owner, until) = (next.owner(), next.until());
    if new || builder.status.is_some() {
        builder.set_run_column(runs::status, run.status.as_str());
    }
    let failure = run.stopping.failure();
    if builder.ended {
        builder.set_run_column(runs::completed_at, run.completed_at);
        builder.set_run_column(runs::error_message, failure.map(|error| error.message.clone()));
    }
    builder.set_run_column(runs::run_seq, builder.last_seq());
    if new || owner != run.row.owner() {
        builder.set_run_column(runs::owner_lane, owner.map(|owner| owner.lane));
        builder.set_run_column(runs::owner_epoch, owner.map(|owner| owner.epoch));
    }
    // The row of an owned run has no deadline.
    if new || until.is_some() || run.row.owner().is_none() {
        builder.set_run_column(runs::next_deadline, until);
    }
    if builder.ended {
        builder.set_run_column(runs::result, run.result.as_deref().map(Json::encode).transpose()?);
        builder.set_run_column(runs::error_data, failure.map(Json::encode).transpose()?);
    } else if !run.status.is_final() {
        run.stopping.write(builder)?;
    }
    run.doubts.write(builder);
    if !new && run.row.co_requesters() < run.head.co_requesters.len() {
        builder.set_run_column(runs::co_requesters, names_or_null(&run.head.co_requesters));
    }
    let mut cells = builder.take_run();
    if new {
        cells.extend(run.head.cells()?);
        cells.push((runs::workflow_digest, Value::Bytes(run.tasks.graph().digest.to_vec())));
        cells.push((runs::state_version, 1.into()));
        builder.insert(Insert::new(&RUNS, cells)?);
    } else {
        builder.update(Update::versioned(&RUNS, vec![run.head.id.into()], run.row.version(), cells)?);
    }
    run.row.written(owner, builder.last_seq(), &run.head);
    Ok(())
}

fn write_step(run: &mut Run, at: RunPlace, now: Timestamp, builder: &mut TurnBuilder) -> Result<(), Unstorable> {
    let mut cells = step_cells(run, at, now)?;
    let since = run.doubts.since(at);
    if since.is_some() || builder.settled.contains(&at) {
        cells.push((steps::in_doubt_since, since.into()));
    }
    let parent = at.item.and_then(|_| run.tasks.step_id(RunPlace::node(at.node)));
    let (node, kind, tool) = step_names(run, at);
    let position = i64::try_from(at.node).unwrap_or(i64::MAX);
    let head = &run.head;
    let Some(task) = run.tasks.task_mut(at) else { return Ok(()) };
    let Some(step) = task.step() else { return Ok(()) };
    if step.version > 0 {
        // Its tool may have changed since the row was written: record the version that makes the call.
        if let (
            TaskState::Running { mode: CallMode::Execute, .. }
            | TaskState::Elsewhere { work: Elsewhere::Job(_) | Elsewhere::Worker(_), .. },
            Some((_, version)),
        ) = (task.state(), tool)
        {
            cells.push((steps::tool_version, version.into()));
        }
        builder.update(Update::versioned(&STEPS, vec![step.id.into()], step.version, cells)?);
        task.step_written();
        return Ok(());
    }
    cells.extend([
        (steps::id, step.id.into()),
        (steps::run_id, head.id.into()),
        (steps::tenant_id, head.tenant.as_str().into()),
        (steps::node_id, node.into()),
        (steps::node_type, kind.into()),
        (steps::position, position.into()),
        (steps::parent_step_id, parent.into()),
        (steps::map_index, at.item.map(i64::from).into()),
        (steps::tool, tool.as_ref().map(|(name, _)| name.clone()).into()),
        (steps::tool_version, tool.map(|(_, version)| version).into()),
        (steps::created_at, now.into()),
        (steps::state_version, 1.into()),
    ]);
    task.step_written();
    builder.insert(Insert::new(&STEPS, cells)?);
    Ok(())
}

/// Records only that its undo was sent or has ended. The step itself stays as it is.
fn write_undo_deadline(run: &mut Run, at: RunPlace, builder: &mut TurnBuilder) -> Result<(), Unstorable> {
    let until = run.rollback.sent_until(at);
    let Some((task, step)) = run.tasks.task_mut(at).and_then(|task| task.step().map(|step| (task, step))) else {
        return Ok(());
    };
    let set = vec![(steps::retry_at, until.into())];
    builder.update(Update::versioned(&STEPS, vec![step.id.into()], step.version, set)?);
    task.step_written();
    Ok(())
}

/// The columns that change with the state.
fn step_cells(run: &Run, at: RunPlace, now: Timestamp) -> Result<Vec<(&'static str, Value)>, Unstorable> {
    let Some(task) = run.tasks.task(at) else { return Ok(Vec::new()) };
    let output = match task.state() {
        TaskState::Completed { output, .. } | TaskState::Failed { output, .. } => Some(Json::encode(&**output)?),
        _ => task.held().map(|held| Json::encode(&*held.output)).transpose()?,
    };
    let error = match task.state() {
        TaskState::Failed { error, .. } | TaskState::OutcomeUnknown { error } | TaskState::RetryWait { error, .. } => {
            Some(Json::encode(&**error)?)
        }
        _ => None,
    };
    let settled = task.is_settled();
    let mut cells = vec![
        (steps::status, task.status().as_str().into()),
        (steps::attempt, i64::from(task.attempt()).into()),
        (steps::input_digest, task.digest().map(|digest| Value::Bytes(digest.to_vec())).unwrap_or(Value::Null)),
        (steps::error, error.into()),
        (steps::retry_at, task.wait_until().or_else(|| run.rollback.sent_until(at)).into()),
        (steps::started_at, task.started_at().into()),
        (steps::completed_at, settled.then_some(now).into()),
    ];
    if let Some(judgement) = task.judgement() {
        cells.push((steps::judgement, Json::encode(judgement)?.into()));
    }
    // An output that was rejected or dropped does not stay in the row.
    let is_dropped = task.judgement().is_some() && !matches!(task.state(), TaskState::RolledBack { .. });
    if output.is_some() || is_dropped {
        cells.push((steps::output, output.into()));
    }
    if let TaskState::Elsewhere { work: Elsewhere::Run(child), until } = task.state() {
        cells.extend([(steps::child_run_id, (*child).into()), (steps::work_until, (*until).into())]);
    }
    if task.needs_work_row() {
        let work = task.work();
        cells.extend([
            (steps::work_kind, work.map(|work| work.kind.as_str()).into()),
            (steps::work_id, work.map(|work| work.id).into()),
            (steps::work_until, work.map(|work| work.until).into()),
        ]);
    }
    if let TaskState::Completed { seq, .. } | TaskState::Failed { seq, .. } = task.state() {
        cells.push((steps::completed_seq, (*seq).into()));
    }
    if task.needs_input_row() {
        cells.push((steps::input, task.input().map(Json::encode).transpose()?.into()));
    } else if task.judgement().is_some() && matches!(task.state(), TaskState::Ready) {
        // It is rendered again.
        cells.push((steps::input, Value::Null));
    }
    Ok(cells)
}

fn step_names(run: &Run, at: RunPlace) -> (String, &'static str, Option<(String, String)>) {
    let compiled = &run.tasks.graph().nodes[at.node];
    let tool = compiled.tool.as_ref().map(|spec| (spec.name.clone(), spec.version.clone()));
    (compiled.node.id.clone(), compiled.node.body.kind(), tool)
}

/// A list of names, null if empty.
pub(crate) fn names_or_null(names: &[String]) -> Value {
    if names.is_empty() { Value::Null } else { names.to_vec().into() }
}

/// All turns of a run go through the same lane.
#[must_use]
pub fn affinity(run: Uuid) -> u64 {
    u64::from_be_bytes(*run.as_bytes().last_chunk().unwrap_or(&[0; 8]))
}
