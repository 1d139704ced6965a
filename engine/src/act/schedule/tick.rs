//! One look at one schedule: decide, and commit the decision with the run that it starts.
//!
//! Whoever loses the race for a tick finds the row changed, or the tick's idempotency key used, and does nothing. A
//! crash before the commit leaves the tick to the next look, here or on another node.

use super::definition::rules_of;
use super::records::{
    SYSTEM, TickReport, add_dropped, add_summary, backlog_cells, backlog_of, event_of, idle_cells, owner_message,
    paused_cells, report_cells, streak_cell, streak_of, update,
};
use super::{Schedules, reading, records};
use crate::access::{Credential, Permit, RUNS_MANAGE};
use crate::act::{
    ActOutcome, ActRequest, ConfirmedWorkflow, DuplicatePolicy, LevelCeiling, Objective, RequestKey, StartedAction, act,
};
use crate::error::EngineError;
use crate::flow::{add_cancellations, wake_runs};
use crate::port::CommitError;
use crate::rows;
use chimera_core::act::schedule::{
    Backlog, FailedTick, Missed, Overlap, ScheduleRules, Streak, StreakEntry, TickAction, TickOutcome, Wake, decide,
};
use chimera_core::act::tables::{ScheduleRow, schedules};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::tables::{RunBrief, runs};
use chimera_core::limits::{
    DECIDE_TRIES_MAX, SCHEDULE_ACTIVE_RUNS_MAX, SCHEDULE_GRACE_SECONDS, SCHEDULE_REFUSALS_MAX, SCHEDULE_RETRY_SECONDS,
};
use chimera_core::record::{Json, Scope, StoredRow, Tx};
use chimera_core::time::Timestamp;
use serde_json::json;
use uuid::Uuid;

/// How an attempt to start a tick failed.
enum Failure {
    /// Another node was faster, or the schedule was changed.
    Lost,
    /// It can't be started, now or later.
    Refused(ErrorBody),
    /// The key that the schedule was made with is no longer valid.
    KeyEnded(ErrorBody),
    /// The owner's rate limit is reached.
    OverQuota(ErrorBody),
    /// It may be started in a while.
    Busy(ErrorBody),
    /// The store can't be used.
    Store(EngineError),
}

/// Looks at a due schedule.
pub(super) async fn look_at(scheduler: &Schedules, row: ScheduleRow) -> Result<(), EngineError> {
    let now = scheduler.now();
    let rules = match rules_of(&row) {
        Ok(rules) => rules,
        // A zone or limit that this version does not know: nothing can be done until somebody changes it.
        Err(body) => return stop_schedule(scheduler, &row, body).await,
    };
    let active_runs = unfinished_runs(scheduler, &row).await?;
    let wake = decide(row.id, &rules, Backlog { active_runs, ..backlog_of(&row) }, now);
    match wake.action {
        TickAction::Start { tick } => start_tick(scheduler, &row, &rules, wake, tick).await,
        TickAction::Skip { tick } => {
            let body = ErrorBody::new(Code::InvalidTransition, skip_reason(&rules, &wake.backlog));
            let report = TickReport { tick, outcome: TickOutcome::Skipped, run: None, error: Some(body) };
            advance_schedule(scheduler, &row, &rules, wake, Some(report)).await
        }
        TickAction::Queue { tick } => {
            let report = TickReport { tick, outcome: TickOutcome::Queued, run: None, error: None };
            advance_schedule(scheduler, &row, &rules, wake, Some(report)).await
        }
        TickAction::Wait => {
            let missed = wake.missed.map(|missed| TickReport {
                tick: missed.last,
                outcome: TickOutcome::Missed,
                run: None,
                error: None,
            });
            advance_schedule(scheduler, &row, &rules, wake, missed).await
        }
    }
}

/// Why a tick is skipped.
fn skip_reason(rules: &ScheduleRules, backlog: &Backlog) -> String {
    match rules.overlap {
        Overlap::Skip => "a run of an earlier tick is not finished".to_owned(),
        Overlap::Queue => {
            format!("{} ticks wait for a run to end, which is the limit of queue_max", backlog.queued.len())
        }
        Overlap::Allow | Overlap::CancelPrevious => {
            format!("{} runs of earlier ticks are not finished, which is the limit", backlog.active_runs.len())
        }
    }
}

/// Starts a run of a schedule now, in the caller's name. A key that was used is refused.
pub async fn run_now(
    scheduler: &Schedules,
    permit: &Permit,
    name: &str,
    key: Option<&str>,
) -> Result<Box<StartedAction>, EngineError> {
    // A tick at the same moment changes the row; the request is repeated with the new one.
    for _ in 1..DECIDE_TRIES_MAX {
        match try_run_now(scheduler, permit, name, key).await {
            Err(EngineError::Commit(error @ CommitError::Conflict(_))) if !permit.is_alongside_conflict(&error) => {}
            result => return result,
        }
    }
    try_run_now(scheduler, permit, name, key).await
}

async fn try_run_now(
    scheduler: &Schedules,
    permit: &Permit,
    name: &str,
    key: Option<&str>,
) -> Result<Box<StartedAction>, EngineError> {
    let row = reading::visible_row(scheduler, permit, name).await?;
    if !permit.may_manage(&row.owner) {
        return Err(EngineError::missing_scope(RUNS_MANAGE));
    }
    let mut active_runs = unfinished_runs(scheduler, &row).await?;
    if active_runs.len() >= SCHEDULE_ACTIVE_RUNS_MAX {
        let message = format!("the schedule has {} unfinished runs, which is the limit", active_runs.len());
        return Err(EngineError::refused(Code::InvalidTransition, message));
    }
    let run = new_run_id(scheduler);
    active_runs.push(run);
    let mut tx = update(&row, vec![(schedules::active_runs, active_runs.into())])?;
    let event = permit.event(row.id.to_string(), "schedule.run_requested", json!({"name": row.name}));
    scheduler.writer().event(&mut tx, event.of_run(run))?;
    // Its inputs are the owner's, whoever starts it.
    let writers = vec![row.owner.clone()];
    let key =
        key.map(|key| RequestKey { key: key.to_owned(), on_duplicate: DuplicatePolicy::Conflict, unmasked: None });
    let ask = ActRequest { run_id: Some(run), key, writers, ceiling: ceiling_of(&row), ..request(&row, None)? };
    match act(&scheduler.actions, &permit.with_alongside(tx), ask).await? {
        ActOutcome::Started(started) => Ok(started),
        ActOutcome::Duplicate { .. } => Err(EngineError::not_found("run")),
    }
}

/// Starts the run of a tick. Run, row and entries commit together.
async fn start_tick(
    scheduler: &Schedules,
    row: &ScheduleRow,
    rules: &ScheduleRules,
    wake: Wake,
    tick: Timestamp,
) -> Result<(), EngineError> {
    let report = |outcome, body: &ErrorBody| TickReport { tick, outcome, run: None, error: Some(body.clone()) };
    match try_start_tick(scheduler, row, rules, &wake, tick).await {
        Ok(()) => {
            if scheduler.now().micros() - tick.micros() > SCHEDULE_GRACE_SECONDS.saturating_mul(1_000_000) {
                metrics::counter!("chimera_schedule_ticks_late_total").increment(1);
            }
            count(TickOutcome::Started, wake.missed);
            Ok(())
        }
        Err(Failure::Lost) => Ok(()),
        Err(Failure::Refused(body)) => {
            advance_schedule(scheduler, row, rules, wake, Some(report(TickOutcome::Refused, &body))).await
        }
        Err(Failure::OverQuota(body)) => {
            advance_schedule(scheduler, row, rules, wake, Some(report(TickOutcome::Skipped, &body))).await
        }
        Err(Failure::KeyEnded(body)) => {
            let report = report(TickOutcome::Refused, &body);
            let hint = "the owner can confirm the schedule by resuming or editing it";
            pause_schedule(scheduler, row, &report, format!("{}; {hint}", body.message)).await
        }
        Err(Failure::Busy(body)) => defer(scheduler, row, &body).await,
        Err(Failure::Store(error)) => Err(error),
    }
}

/// Leaves a tick for later.
pub(super) async fn defer(scheduler: &Schedules, row: &ScheduleRow, body: &ErrorBody) -> Result<(), EngineError> {
    let again = scheduler.now().plus_seconds(SCHEDULE_RETRY_SECONDS);
    let cells = vec![(schedules::due_at, again.into()), (schedules::last_error, Json::encode(body)?.into())];
    commit_tick(scheduler, update(row, cells)?).await.map(drop)
}

/// The permit of a tick: the owner's, if a request with what the schedule was made with would get one, and the owner's
/// rate limit allows one more.
async fn tick_permit(scheduler: &Schedules, row: &ScheduleRow) -> Result<Permit, Failure> {
    let access = &scheduler.actions.access;
    let permit =
        access.directory.permit_within(&row.tenant_id, &row.owner, &row.owner_scopes).map_err(Failure::Refused)?;
    let credential = Credential { key: row.owner_key, key_of: row.owner_key_of.clone() };
    access.directory.check_credential(&row.owner, &credential).map_err(|body| {
        let ended = body.code == Code::Unauthenticated.as_str();
        if ended { Failure::KeyEnded(body) } else { Failure::Busy(body) }
    })?;
    access.authenticator.count_unattended(&permit).await.map_err(|body| {
        let over = body.code == Code::RateLimited.as_str();
        if over { Failure::OverQuota(body) } else { Failure::Busy(body) }
    })?;
    Ok(permit)
}

async fn try_start_tick(
    scheduler: &Schedules,
    row: &ScheduleRow,
    rules: &ScheduleRules,
    wake: &Wake,
    tick: Timestamp,
) -> Result<(), Failure> {
    let permit = tick_permit(scheduler, row).await?;
    let run = new_run_id(scheduler);
    let mut backlog = wake.backlog.clone();
    backlog.active_runs.push(run);
    let report = TickReport { tick, outcome: TickOutcome::Started, run: Some(run), error: None };
    let mut cells = backlog_cells(row.id, rules, &backlog, scheduler.now());
    cells.extend(report_cells(&report).map_err(Failure::Store)?);
    cells.push(streak_cell(None).map_err(Failure::Store)?);
    let mut tx = update(row, cells).map_err(Failure::Store)?;
    add_missed(scheduler, &mut tx, row, wake.missed).map_err(Failure::Store)?;
    let left = streak_of(row).and_then(|streak| streak.summary());
    add_summary(scheduler, &mut tx, row, left).map_err(Failure::Store)?;
    let event = permit.event(row.id.to_string(), "schedule.tick_started", json!({"name": row.name, "tick_at": tick}));
    scheduler.writer().event(&mut tx, event.of_run(run)).map_err(|error| Failure::Store(error.into()))?;
    let cancelled =
        cancellable_runs(scheduler, row, rules, &permit, &wake.backlog.active_runs).await.map_err(Failure::Store)?;
    let reason = format!("schedule {} has started its next tick", row.name);
    add_cancellations(&scheduler.actions.flow, &permit, &cancelled, &reason, &mut tx).map_err(Failure::Store)?;
    let key = format!("schedule:{}:{tick}", row.id);
    let ceiling = LevelCeiling { level: row.level_max, ..ceiling_of(row) };
    let ask = ActRequest {
        run_id: Some(run),
        key: Some(RequestKey { key, on_duplicate: DuplicatePolicy::Return, unmasked: None }),
        ceiling,
        ..request(row, Some(tick)).map_err(Failure::Store)?
    };
    match act(&scheduler.actions, &permit.with_alongside(tx), ask).await {
        Ok(ActOutcome::Started(_)) => {
            wake_runs(&scheduler.actions.flow, &cancelled);
            Ok(())
        }
        Ok(ActOutcome::Duplicate { run, .. }) => Err(duplicate_tick(scheduler, row, run).await),
        Err(error) => Err(Failure::of(error)),
    }
}

/// The unfinished runs that the policy cancels when the next tick starts: those that the owner may manage.
async fn cancellable_runs(
    scheduler: &Schedules,
    row: &ScheduleRow,
    rules: &ScheduleRules,
    permit: &Permit,
    active: &[Uuid],
) -> Result<Vec<Uuid>, EngineError> {
    let mut cancelled = Vec::new();
    for run in active.iter().filter(|_| rules.overlap == Overlap::CancelPrevious) {
        let select = RunBrief::select(Scope::Tenant(row.tenant_id.clone())).with(runs::id, *run);
        let found: Option<RunBrief> = rows::find(scheduler.records(), select).await?;
        if found.is_some_and(|found| permit.may_manage(&found.actor)) {
            cancelled.push(*run);
        }
    }
    Ok(cancelled)
}

/// The tick has a run: another node started it, unless the row has not moved. Then the key was used by somebody
/// else, or for this tick before the schedule was changed.
async fn duplicate_tick(scheduler: &Schedules, row: &ScheduleRow, run: Uuid) -> Failure {
    let select = ScheduleRow::select(Scope::System).with(schedules::id, row.id);
    match rows::find::<ScheduleRow>(scheduler.records(), select).await {
        Ok(Some(now)) if now.state_version == row.state_version => {
            let body = ErrorBody::new(Code::ConflictIdempotency, "this tick has already started a run");
            Failure::Refused(body.with("run_id", run.to_string()))
        }
        Ok(_) => Failure::Lost,
        Err(error) => Failure::Store(error),
    }
}

/// Commits a decision that starts no run.
async fn advance_schedule(
    scheduler: &Schedules,
    row: &ScheduleRow,
    rules: &ScheduleRules,
    mut wake: Wake,
    report: Option<TickReport>,
) -> Result<(), EngineError> {
    let now = scheduler.now();
    let failed = report.as_ref().and_then(|report| report.error.as_ref().map(|error| (report, error)));
    let Some((failed, error)) = failed else {
        let mut cells = backlog_cells(row.id, rules, &wake.backlog, now);
        if let Some(report) = &report {
            cells.extend(report_cells(report)?);
        }
        let mut tx = update(row, cells)?;
        add_missed(scheduler, &mut tx, row, wake.missed)?;
        if let Some(report) = &report {
            add_tick(scheduler, &mut tx, row, report)?;
        }
        return commit_counted(scheduler, tx, report.map(|report| report.outcome), wake.missed).await;
    };
    let step = |dropped| FailedTick { tick: failed.tick, outcome: failed.outcome, error, dropped };
    let (streak, _) = Streak::extend(streak_of(row), step(0), now);
    if streak.is_hopeless() {
        let reason = format!("{SCHEDULE_REFUSALS_MAX} ticks in a row were refused: {}", error.message);
        return pause_schedule(scheduler, row, failed, reason).await;
    }
    // What was refused is tried again later and later, and what is over the rate limit when the window allows it.
    let pause = match (failed.outcome, error.retry_after_seconds) {
        (TickOutcome::Refused, _) => streak.backoff_seconds(),
        (_, Some(seconds)) => i64::try_from(seconds).unwrap_or(i64::MAX),
        (_, None) => 0,
    };
    let from = now.plus_seconds(pause);
    let dropped = if pause > 0 { rules.drop_until(&mut wake.backlog, from) } else { 0 };
    let (streak, entry) = Streak::extend(streak_of(row), step(dropped), now);
    let mut cells = backlog_cells(row.id, rules, &wake.backlog, from);
    cells.extend(report_cells(failed)?);
    cells.push(streak_cell(Some(&streak))?);
    let mut tx = update(row, cells)?;
    add_missed(scheduler, &mut tx, row, wake.missed)?;
    match entry {
        StreakEntry::Nothing => {}
        StreakEntry::Summary(summary) => add_summary(scheduler, &mut tx, row, Some(summary))?,
        StreakEntry::First(before) => {
            add_summary(scheduler, &mut tx, row, before)?;
            add_tick(scheduler, &mut tx, row, failed)?;
        }
    }
    commit_counted(scheduler, tx, Some(failed.outcome), wake.missed).await
}

async fn commit_counted(
    scheduler: &Schedules,
    tx: Tx,
    outcome: Option<TickOutcome>,
    missed: Option<Missed>,
) -> Result<(), EngineError> {
    if commit_tick(scheduler, tx).await?
        && let Some(outcome) = outcome
    {
        count(outcome, missed);
    }
    Ok(())
}

/// Pauses a schedule whose ticks can't be started until somebody has looked at it, and tells its owner.
async fn pause_schedule(
    scheduler: &Schedules,
    row: &ScheduleRow,
    report: &TickReport,
    reason: String,
) -> Result<(), EngineError> {
    let mut cells = paused_cells(scheduler.now(), SYSTEM, Some(reason.clone()));
    cells.extend(report_cells(report)?);
    cells.push(streak_cell(None)?);
    let mut tx = update(row, cells)?;
    add_summary(scheduler, &mut tx, row, streak_of(row).and_then(|streak| streak.summary()))?;
    add_tick(scheduler, &mut tx, row, report)?;
    let mut data = json!({"name": row.name, "reason": reason});
    add_dropped(&mut data, row);
    scheduler.writer().event(&mut tx, event_of(row, "schedule.paused", data))?;
    tx.inserts.push(owner_message(scheduler, row, &reason)?);
    commit_counted(scheduler, tx, Some(report.outcome), None).await
}

/// A schedule that can't be read ticks no more.
async fn stop_schedule(scheduler: &Schedules, row: &ScheduleRow, body: ErrorBody) -> Result<(), EngineError> {
    let report = TickReport { tick: row.due_at, outcome: TickOutcome::Refused, run: None, error: Some(body) };
    let mut cells = idle_cells();
    cells.extend(report_cells(&report)?);
    let mut tx = update(row, cells)?;
    add_tick(scheduler, &mut tx, row, &report)?;
    commit_tick(scheduler, tx).await.map(drop)
}

/// The entry of a tick that started no run.
fn add_tick(scheduler: &Schedules, tx: &mut Tx, row: &ScheduleRow, report: &TickReport) -> Result<(), EngineError> {
    let mut data = json!({"name": row.name, "tick_at": report.tick});
    if let Some(error) = &report.error {
        data["code"] = error.code.as_str().into();
        data["reason"] = error.message.as_str().into();
    }
    let event_type = match (report.outcome, &report.error) {
        (TickOutcome::Refused, Some(body)) => {
            return records::add_refusal(scheduler, tx, event_of(row, "schedule.tick_refused", data), &row.owner, body);
        }
        (TickOutcome::Skipped, _) => "schedule.tick_skipped",
        (TickOutcome::Queued, _) => "schedule.tick_queued",
        // What was missed has an entry of its own.
        _ => return Ok(()),
    };
    scheduler.writer().event(tx, event_of(row, event_type, data))?;
    Ok(())
}

fn add_missed(
    scheduler: &Schedules,
    tx: &mut Tx,
    row: &ScheduleRow,
    missed: Option<Missed>,
) -> Result<(), EngineError> {
    let Some(Missed { first, last, count }) = missed else { return Ok(()) };
    let data = json!({"name": row.name, "first": first, "last": last, "count": count, "catch_up": row.catch_up});
    scheduler.writer().event(tx, event_of(row, "schedule.ticks_missed", data))?;
    Ok(())
}

/// Commits; returns false if somebody else has dealt with the schedule.
async fn commit_tick(scheduler: &Schedules, tx: Tx) -> Result<bool, EngineError> {
    match scheduler.records().commit(tx).await {
        Ok(_) => Ok(true),
        Err(CommitError::Conflict(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The runs of earlier ticks that are not finished.
async fn unfinished_runs(scheduler: &Schedules, row: &ScheduleRow) -> Result<Vec<Uuid>, EngineError> {
    let mut unfinished = Vec::new();
    for run in &row.active_runs {
        let scope = Scope::Tenant(row.tenant_id.clone());
        let found: Option<RunBrief> =
            rows::find(scheduler.records(), RunBrief::select(scope).with(runs::id, *run)).await?;
        if found.is_some_and(|found| !found.status.is_final()) {
            unfinished.push(*run);
        }
    }
    Ok(unfinished)
}

fn new_run_id(scheduler: &Schedules) -> Uuid {
    let parts = &scheduler.actions.access.directory.parts;
    parts.random.row_id(parts.clock.now())
}

impl Failure {
    fn of(error: EngineError) -> Self {
        let body = error.body();
        match error {
            EngineError::Commit(CommitError::Conflict(_)) => Self::Lost,
            EngineError::Refused(_) | EngineError::KeyUsed(_) if body.retryable => Self::Busy(body),
            EngineError::Refused(_) | EngineError::KeyUsed(_) => Self::Refused(body),
            // Whatever the store will never take is no reason to try again for ever.
            EngineError::Damaged(_)
            | EngineError::Unstorable(_)
            | EngineError::Audit(_)
            | EngineError::Commit(CommitError::Invalid(_) | CommitError::Rejected { .. }) => Self::Refused(body),
            error => Self::Store(error),
        }
    }
}

/// The request of a schedule: what its run keeps says which schedule and which tick caused it.
fn request(row: &ScheduleRow, tick: Option<Timestamp>) -> Result<ActRequest, EngineError> {
    let cause = json!({"schedule_id": row.id, "name": row.name, "tick_at": tick});
    let request = json!({"workflow_id": row.workflow_id, "version": row.workflow_version, "schedule": cause});
    let what =
        Objective::Workflow { id: row.workflow_id.clone(), version: row.workflow_version, inputs: row.inputs.value()? };
    Ok(ActRequest { correlation_id: Some(format!("schedule:{}", row.name)), ..ActRequest::of(what, request) })
}

/// What the owner has confirmed of the workflow: what others have changed since is drafted for approval.
fn ceiling_of(row: &ScheduleRow) -> LevelCeiling {
    let confirmed = row.confirmed_digest.map_or(ConfirmedWorkflow::Nothing, ConfirmedWorkflow::Digest);
    LevelCeiling { level: None, confirmed: Some(confirmed) }
}

/// Counts what was committed.
fn count(outcome: TickOutcome, missed: Option<Missed>) {
    if let Some(missed) = missed {
        metrics::counter!("chimera_schedule_ticks_missed_total").increment(missed.count as u64);
    }
    // Missed ticks are counted one by one.
    if outcome != TickOutcome::Missed {
        metrics::counter!("chimera_schedule_ticks_total", "outcome" => outcome.as_str()).increment(1);
    }
}
