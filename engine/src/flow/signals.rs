//! Signals to a run: cancel, pause, resume, undo, change.
//!
//! Only the owner of a run changes it. Everybody else commits a signal, together with the ledger entry of who sent it;
//! the owner handles it in its next turn.

use super::error::masked_text;
use super::superseded_requests::SupersededRequests;
use super::{Flow, contributor_rules, definitions, load, lookup, review, suggest, undo_scopes, work};
use crate::access::{Permit, RUNS_MANAGE, WORKFLOWS_WRITE};
use crate::error::EngineError;
use crate::ledger::audit::{EventRecord, Writer};
use crate::port::CommitError;
use crate::rows;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::run::{
    ReplayMode, RunStatus, Signal, SignalKind, StepStatus, affinity, may_change_pause, paused_by,
};
use chimera_core::flow::tables::{CACHE_ENTRIES, RUNS, RunBrief, RunRow, STEPS, StepBrief, cache_entries, steps};
use chimera_core::ledger::ActorType;
use chimera_core::record::{
    Comparison, Condition, RowCount, STATE_VERSION, Scope, Step, StoredRow, Table, Tx, Value as Cell,
};
use chimera_core::tool::Rollback;
use chimera_core::{id, limits};
use serde_json::{Value, json};
use uuid::Uuid;

/// A person's finding about a step whose outcome is unknown.
#[derive(Clone, Debug, PartialEq)]
pub struct OutcomeReport {
    pub step: Uuid,
    /// The attempt they checked; `None`: the last one.
    pub attempt: Option<u32>,
    pub happened: bool,
    pub output: Option<Value>,
    /// How the person knows.
    pub notes: Option<String>,
}

impl OutcomeReport {
    /// The last attempt happened, with this output.
    #[must_use]
    pub const fn happened(step: Uuid, output: Option<Value>) -> Self {
        Self { step, attempt: None, happened: true, output, notes: None }
    }

    /// The last attempt never happened.
    #[must_use]
    pub const fn did_not_happen(step: Uuid) -> Self {
        Self { step, attempt: None, happened: false, output: None, notes: None }
    }
}

/// A signal to a run, with the requests that it closes.
pub(super) struct RunSignal {
    pub(super) run: Uuid,
    pub(super) kind: SignalKind,
    pub(super) superseded: SupersededRequests,
}

impl RunSignal {
    /// A signal that leaves all requests as they are.
    pub(super) fn new(run: Uuid, kind: SignalKind) -> Self {
        Self { run, kind, superseded: SupersededRequests::default() }
    }
}

/// One version of a row.
pub(super) struct RowVersion {
    pub table: &'static Table,
    pub key: Vec<Cell>,
    pub version: i64,
}

/// Cancels a run.
pub async fn cancel(flow: &Flow, permit: &Permit, run: Uuid, reason: Option<String>) -> Result<(), EngineError> {
    let reason = masked_text("reason", reason)?;
    unfinished_run(flow, permit, run).await?;
    undo_scopes::check_end_scopes(flow, permit, run, RUNS_MANAGE).await?;
    let kind = SignalKind::Cancel { by: permit.by(), reason };
    for _ in 0..limits::DECIDE_TRIES_MAX {
        // A concurrent decision stands, and the run is cancelled all the same.
        let open = review::requests_of(flow, permit.tenant(), run).await?;
        let signal = RunSignal { run, kind: kind.clone(), superseded: SupersededRequests::of_cancelled(&open)? };
        if try_send_signal(flow, permit, signal, Tx::default()).await? {
            return Ok(());
        }
    }
    Err(concurrent_change())
}

/// Pauses a run: what is in flight ends, nothing new starts.
pub async fn pause(flow: &Flow, permit: &Permit, run: Uuid) -> Result<(), EngineError> {
    let row = unfinished_run(flow, permit, run).await?;
    // A person may take over a pause by a service.
    if paused_by(&row).is_some_and(|by| permit.kind() != ActorType::Human || by.kind == ActorType::Human) {
        return Err(EngineError::refused(Code::InvalidTransition, "the run is already paused"));
    }
    send_signal(flow, permit, run, SignalKind::Pause { by: permit.by() }).await
}

/// Resumes a paused run.
pub async fn resume(flow: &Flow, permit: &Permit, run: Uuid) -> Result<(), EngineError> {
    let row = unfinished_run(flow, permit, run).await?;
    let holder = paused_by(&row);
    if holder.is_none() {
        return Err(EngineError::refused(Code::InvalidTransition, "the run is not paused"));
    }
    if !may_change_pause(holder.as_ref(), permit.kind()) {
        return Err(EngineError::refused(
            Code::RbacForbidden,
            "a person paused the run, so only a person may resume it",
        ));
    }
    undo_scopes::check_continue_scopes(flow, permit, run, RUNS_MANAGE).await?;
    send_signal(flow, permit, run, SignalKind::Resume { by: permit.by() }).await
}

/// Reports the outcome of one attempt. Accepted only while that is the last one.
pub async fn report_outcome(flow: &Flow, permit: &Permit, run: Uuid, found: OutcomeReport) -> Result<(), EngineError> {
    if permit.kind() != ActorType::Human {
        return Err(EngineError::refused(Code::RbacForbidden, "only a person may resolve an unknown outcome"));
    }
    let OutcomeReport { step, attempt, happened, output, notes } = found;
    let notes = masked_text("note", notes)?;
    let found = step_with_status(flow, permit, run, step, StepStatus::OutcomeUnknown).await?;
    let now = found.attempt;
    if attempt.is_some_and(|attempt| attempt != now) {
        return Err(EngineError::refused(
            Code::OccConflict,
            format!("the step is at attempt {now} now; fetch the run again"),
        ));
    }
    check_output(flow, permit, &found, output.as_ref().filter(|_| happened)).await?;
    if !happened {
        // A call that never happened is made now.
        undo_scopes::check_call_scopes(flow, permit, &found).await?;
        contributor_rules::check_repeat(flow, permit, run, &found).await?;
    }
    // Either way the run continues, with an output that the caller chose.
    undo_scopes::check_continue_scopes(flow, permit, run, RUNS_MANAGE).await?;
    let by = permit.by();
    let kind = SignalKind::Resolve { step, attempt: now, happened, output, by, notes };
    let at = RowVersion { table: &STEPS, key: vec![found.id.into()], version: found.state_version };
    // A worker may still report the outcome of its call.
    let tx = work::withdraw(flow, permit, found.id).await?;
    match try_send_signal_once(flow, permit, RunSignal::new(run, kind), &at, tx).await? {
        true => Ok(()),
        false => Err(concurrent_change()),
    }
}

/// Refuses an output that does not match the tool's output schema.
async fn check_output(
    flow: &Flow,
    permit: &Permit,
    step: &StepBrief,
    output: Option<&Value>,
) -> Result<(), EngineError> {
    let Some(output) = output else { return Ok(()) };
    let Some(tool) = definitions::tool_of_step(flow, permit, step).await? else { return Ok(()) };
    tool.output.check(output).map_err(|faults| {
        let body = ErrorBody::new(Code::ValidationFailed, "the output does not match the tool's output schema");
        EngineError::Refused(Box::new(body.with("faults", serde_json::to_value(faults).unwrap_or_default())))
    })
}

/// Undoes an ended run: all of it, or some steps.
pub async fn rollback(
    flow: &Flow,
    permit: &Permit,
    run: Uuid,
    steps: Option<Vec<Uuid>>,
    reason: Option<String>,
) -> Result<(), EngineError> {
    let reason = masked_text("reason", reason)?;
    undoable_run(flow, permit, run).await?;
    for step in steps.iter().flatten() {
        check_undo_repeatable(flow, permit, &step_row(flow, permit, run, *step).await?).await?;
    }
    undo_scopes::check_undo_scopes(flow, permit, run, steps.as_deref()).await?;
    contributor_rules::check_rollback(flow, permit, run, steps.as_deref()).await?;
    signal_undo(flow, permit, run, SignalKind::Rollback { steps, by: permit.by(), reason, for_parent: false }).await
}

/// If the outcome of a previous undo is unknown, refuses another one unless a person asks for it or it is
/// repeatable.
async fn check_undo_repeatable(flow: &Flow, permit: &Permit, step: &StepBrief) -> Result<(), EngineError> {
    let tool = definitions::tool_of_step(flow, permit, step).await?;
    let repeatable = tool.is_some_and(|tool| tool.rollback == Rollback::Repeatable);
    if step.in_doubt_since.is_none() || repeatable || permit.kind() == ActorType::Human {
        return Ok(());
    }
    let message = "the outcome of the last undo is unknown; only a person may check it and undo the step again";
    Err(EngineError::refused(Code::RbacForbidden, message))
}

/// Marks a run as undone by hand; nothing is called.
pub async fn mark_rolled_back(
    flow: &Flow,
    permit: &Permit,
    run: Uuid,
    reason: Option<String>,
) -> Result<(), EngineError> {
    let reason = masked_text("reason", reason)?;
    let row = undoable_run(flow, permit, run).await?;
    if permit.kind() != ActorType::Human {
        return Err(EngineError::refused(Code::RbacForbidden, "only a person may mark a run as undone by hand"));
    }
    // A run that did not fail has to be undone by calls first, unless such a rollback left something.
    if row.status != RunStatus::Failed && row.rollback.is_none() {
        let message = format!(
            "a run that is {} cannot be marked as undone by hand: undo it with POST /runs/{{id}}/rollback first",
            row.status.as_str()
        );
        return Err(EngineError::refused(Code::InvalidTransition, message));
    }
    signal_undo(flow, permit, run, SignalKind::MarkRolledBack { by: permit.by(), reason }).await
}

/// Signals an ended run to undo itself, unless that is already requested or in progress.
async fn signal_undo(flow: &Flow, permit: &Permit, run: Uuid, kind: SignalKind) -> Result<(), EngineError> {
    for _ in 0..limits::DECIDE_TRIES_MAX {
        let row = undoable_run(flow, permit, run).await?;
        let at = RowVersion { table: &RUNS, key: vec![row.id.into()], version: row.state_version };
        if try_send_signal_once(flow, permit, RunSignal::new(run, kind.clone()), &at, Tx::default()).await? {
            return Ok(());
        }
    }
    Err(concurrent_change())
}

/// An ended run that may be undone.
async fn undoable_run(flow: &Flow, permit: &Permit, run: Uuid) -> Result<RunBrief, EngineError> {
    let row = RunBrief::from(load::manageable_run(&*flow.inner.parts.records, permit, run).await?);
    if !matches!(row.status, RunStatus::Completed | RunStatus::Failed | RunStatus::Cancelled) {
        let message = format!("a run that is {} can't be rolled back", row.status.as_str());
        return Err(EngineError::refused(Code::InvalidTransition, message));
    }
    if row.dry_run {
        return Err(EngineError::refused(Code::InvalidTransition, "a dry run did nothing that could be undone"));
    }
    if matches!(row.replay_mode, Some(ReplayMode::Freeze | ReplayMode::Shadow)) {
        return Err(EngineError::refused(Code::InvalidTransition, "a replay did nothing that could be undone"));
    }
    if load::is_undoing(&*flow.inner.parts.records, &row).await? {
        return Err(EngineError::refused(Code::InvalidTransition, "a rollback is in progress"));
    }
    Ok(row)
}

/// Deletes cached outputs of a workflow: one key, or all. Refuses a workflow that does not exist.
pub async fn invalidate_outputs(
    flow: &Flow,
    permit: &Permit,
    workflow: &str,
    key: Option<&str>,
) -> Result<(), EngineError> {
    if !permit.may(WORKFLOWS_WRITE) {
        return Err(EngineError::missing_scope(WORKFLOWS_WRITE));
    }
    let workflows = &flow.inner.workflows;
    let is_own = workflows.row(permit.tenant(), workflow, None).await?.is_some();
    if !is_own && lookup::find_workflow(workflows, permit.tenant(), workflow, None).await?.is_none() {
        return Err(suggest::unknown_workflow(workflows, permit, workflow, None).await);
    }
    let is = |column, value: &str| Condition { column, compare: Comparison::Is, value: value.into() };
    let mut conditions = vec![is(cache_entries::tenant_id, permit.tenant()), is(cache_entries::workflow_id, workflow)];
    conditions.extend(key.map(|key| is(cache_entries::cache_key, key)));
    let rows = RowCount::AtMost(u64::MAX);
    let mut tx = Tx { steps: vec![Step::Delete { table: &CACHE_ENTRIES, conditions, rows }], ..Tx::default() };
    let data = json!({"workflow_id": workflow, "key": key});
    record(flow, &mut tx, permit, permit.event(workflow, "cache.invalidated", data))?;
    flow.inner.parts.records.commit(tx).await?;
    Ok(())
}

pub(super) async fn unfinished_run(flow: &Flow, permit: &Permit, run: Uuid) -> Result<RunRow, EngineError> {
    let row = load::manageable_run(&*flow.inner.parts.records, permit, run).await?;
    check_unfinished(&row)?;
    Ok(row)
}

pub(super) async fn step_with_status(
    flow: &Flow,
    permit: &Permit,
    run: Uuid,
    step: Uuid,
    status: StepStatus,
) -> Result<StepBrief, EngineError> {
    unfinished_run(flow, permit, run).await?;
    let found = step_row(flow, permit, run, step).await?;
    if found.status != status {
        let message = format!("the step's status is {}; this requires {}", found.status.as_str(), status.as_str());
        return Err(EngineError::refused(Code::InvalidTransition, message));
    }
    Ok(found)
}

async fn step_row(flow: &Flow, permit: &Permit, run: Uuid, step: Uuid) -> Result<StepBrief, EngineError> {
    let scope = Scope::Tenant(permit.tenant().to_owned());
    let select = StepBrief::select(scope).with(steps::id, step).with(steps::run_id, run);
    rows::find(&*flow.inner.parts.records, select).await?.ok_or_else(|| EngineError::unknown("step", step))
}

pub(super) async fn send_signal(flow: &Flow, permit: &Permit, run: Uuid, kind: SignalKind) -> Result<(), EngineError> {
    send_signal_with(flow, permit, run, kind, Tx::default()).await
}

/// Sends a signal together with other changes.
pub(super) async fn send_signal_with(
    flow: &Flow,
    permit: &Permit,
    run: Uuid,
    kind: SignalKind,
    tx: Tx,
) -> Result<(), EngineError> {
    match try_send_signal(flow, permit, RunSignal::new(run, kind), tx).await? {
        true => Ok(()),
        false => Err(concurrent_change()),
    }
}

/// Sends a signal that refers to one version of a row. Of several concurrent ones, one is accepted and the others
/// get an error, instead of being dropped silently by the run.
pub(super) async fn send_signal_once(
    flow: &Flow,
    permit: &Permit,
    signal: RunSignal,
    at: &RowVersion,
) -> Result<(), EngineError> {
    match try_send_signal_once(flow, permit, signal, at, Tx::default()).await? {
        true => Ok(()),
        false => Err(concurrent_change()),
    }
}

/// The same together with other changes; false if one of them conflicted, another signal was accepted or the row has
/// changed.
async fn try_send_signal_once(
    flow: &Flow,
    permit: &Permit,
    signal: RunSignal,
    at: &RowVersion,
    mut tx: Tx,
) -> Result<bool, EngineError> {
    let RowVersion { table, key, version } = at;
    let is =
        |(column, value): (&&'static str, &Cell)| Condition { column, compare: Comparison::Is, value: value.clone() };
    let mut conditions: Vec<_> = table.key.iter().zip(key).map(is).collect();
    conditions.push(is((&STATE_VERSION, &Cell::Int(*version))));
    let unchanged = Step::Lock { table, conditions, rows: RowCount::Exactly(1) };
    let keys: Vec<String> = key.iter().map(|value| format!("{value:?}")).collect();
    let id = id::signal(signal.run, &format!("{}\0{}\0{version}", table.name, keys.join("\0")));
    tx.steps.push(unchanged);
    commit_signal(flow, permit, id, signal, tx).await
}

/// Sends a signal; false if the other changes conflicted.
pub(super) async fn try_send_signal(
    flow: &Flow,
    permit: &Permit,
    signal: RunSignal,
    tx: Tx,
) -> Result<bool, EngineError> {
    commit_signal(flow, permit, flow.inner.id(), signal, tx).await
}

async fn commit_signal(
    flow: &Flow,
    permit: &Permit,
    id: Uuid,
    signal: RunSignal,
    mut tx: Tx,
) -> Result<bool, EngineError> {
    let RunSignal { run, kind, superseded } = signal;
    let mut signal = Signal { id, kind, withdrawn: Vec::new() };
    let kind = &signal.kind;
    if serde_json::to_string(kind).is_ok_and(|text| text.len() > limits::BODY_BYTES_MAX) {
        return Err(EngineError::refused(Code::PayloadTooLarge, "the signal is too large"));
    }
    let kind = kind.name();
    superseded.close(&mut tx, &mut signal, permit, flow.inner.parts.clock.steady())?;
    tx.inserts.push(signal.row(permit.tenant(), run, flow.inner.parts.clock.now())?);
    tx.affinity = affinity(run);
    let mut data = json!({"kind": kind, "signal_id": signal.id});
    superseded.add_to_entry(&mut data);
    record(flow, &mut tx, permit, permit.event(run, "run.signalled", data).of_run(run))?;
    match flow.inner.parts.records.commit(tx).await {
        Ok(_) => flow.inner.wake(run),
        Err(error @ CommitError::Conflict(_)) if !permit.is_alongside_conflict(&error) => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    Ok(true)
}

/// Adds a ledger entry for the caller's act to a transaction.
pub(super) fn record(flow: &Flow, tx: &mut Tx, permit: &Permit, event: EventRecord) -> Result<(), EngineError> {
    let writer = Writer { random: &*flow.inner.parts.random, clock: &*flow.inner.parts.clock };
    writer.event(tx, event)?;
    permit.add_alongside(tx);
    Ok(())
}

/// The refusal after a conflict.
fn concurrent_change() -> EngineError {
    EngineError::refused(Code::OccConflict, "the run was changed concurrently; fetch it again")
}

/// Refuses an ended run.
pub(super) fn check_unfinished(row: &RunRow) -> Result<(), EngineError> {
    let status = row.status;
    if status.is_final() {
        let message = format!("the run is already {}", status.as_str());
        return Err(EngineError::refused(Code::InvalidTransition, message));
    }
    Ok(())
}
