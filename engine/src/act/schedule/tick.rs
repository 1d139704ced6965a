//! One look at one schedule: decide, and commit the decision with the run that it starts.
//!
//! Whoever loses the race for a tick finds the row changed, or the tick's idempotency key used, and does nothing. A
//! crash before the commit leaves the tick to the next look, here or on another node.

use super::Schedules;
use super::definition::rules_of;
use super::records::{TickReport, backlog_cells, backlog_of, event_of, idle_cells, report_cells, update};
use crate::access::{Permit, RUNS_MANAGE};
use crate::act::{ActOutcome, ActRequest, DuplicatePolicy, Objective, RequestKey, StartedAction};
use crate::error::EngineError;
use crate::flow::{add_cancellations, wake_runs};
use crate::port::CommitError;
use crate::rows;
use chimera_core::act::schedule::{Backlog, Missed, Overlap, ScheduleRules, TickAction, TickOutcome, Wake, decide};
use chimera_core::act::tables::{ScheduleRow, schedules};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::tables::{RunBrief, runs};
use chimera_core::limits::{
    DECIDE_TRIES_MAX, SCHEDULE_ACTIVE_RUNS_MAX, SCHEDULE_GRACE_SECONDS, SCHEDULE_RETRY_SECONDS,
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
    /// It may be started in a while.
    Busy(ErrorBody),
    /// The store can't be used.
    Store(EngineError),
}

impl Schedules {
    /// Looks at a due schedule.
    pub(super) async fn look(&self, row: ScheduleRow) -> Result<(), EngineError> {
        let now = self.now();
        let rules = match rules_of(&row) {
            Ok(rules) => rules,
            // A zone or limit that this version does not know: nothing can be done until somebody changes it.
            Err(body) => return self.stop(&row, body).await,
        };
        let active_runs = self.unfinished(&row).await?;
        let wake = decide(row.id, &rules, Backlog { active_runs, ..backlog_of(&row) }, now);
        match wake.action {
            TickAction::Start { tick } => self.start(&row, &rules, wake, tick).await,
            TickAction::Skip { tick } => {
                let body = ErrorBody::new(Code::InvalidTransition, "a run of an earlier tick is not finished");
                let report = TickReport { tick, outcome: TickOutcome::Skipped, run: None, error: Some(body) };
                self.advance(&row, &rules, wake, Some(report)).await
            }
            TickAction::Queue { tick } => {
                let report = TickReport { tick, outcome: TickOutcome::Queued, run: None, error: None };
                self.advance(&row, &rules, wake, Some(report)).await
            }
            TickAction::Wait => {
                let missed = wake.missed.map(|missed| TickReport {
                    tick: missed.last,
                    outcome: TickOutcome::Missed,
                    run: None,
                    error: None,
                });
                self.advance(&row, &rules, wake, missed).await
            }
        }
    }

    /// Starts a run of a schedule now, in the caller's name. A key that was used is refused.
    pub async fn run_now(
        &self,
        permit: &Permit,
        name: &str,
        key: Option<&str>,
    ) -> Result<Box<StartedAction>, EngineError> {
        // A tick at the same moment changes the row; the request is repeated with the new one.
        for _ in 1..DECIDE_TRIES_MAX {
            match self.try_run_now(permit, name, key).await {
                Err(EngineError::Commit(error @ CommitError::Conflict(_))) if !permit.is_alongside_conflict(&error) => {
                }
                result => return result,
            }
        }
        self.try_run_now(permit, name, key).await
    }

    async fn try_run_now(
        &self,
        permit: &Permit,
        name: &str,
        key: Option<&str>,
    ) -> Result<Box<StartedAction>, EngineError> {
        let row = self.row(permit, name).await?;
        if !permit.may_manage(&row.owner) {
            return Err(EngineError::missing_scope(RUNS_MANAGE));
        }
        let mut active_runs = self.unfinished(&row).await?;
        if active_runs.len() >= SCHEDULE_ACTIVE_RUNS_MAX {
            let message = format!("the schedule has {} unfinished runs, which is the limit", active_runs.len());
            return Err(EngineError::refused(Code::InvalidTransition, message));
        }
        let run = self.new_run_id();
        active_runs.push(run);
        let mut tx = update(&row, vec![(schedules::active_runs, active_runs.into())])?;
        let event = permit.event(row.id.to_string(), "schedule.run_requested", json!({"name": row.name}));
        self.writer().event(&mut tx, event.of_run(run))?;
        let key =
            key.map(|key| RequestKey { key: key.to_owned(), on_duplicate: DuplicatePolicy::Conflict, unmasked: None });
        let ask = ActRequest { run_id: Some(run), key, ..request(&row, None)? };
        match self.actions.act(&permit.with_alongside(tx), ask).await? {
            ActOutcome::Started(started) => Ok(started),
            ActOutcome::Duplicate { .. } => Err(EngineError::not_found("run")),
        }
    }

    /// Starts the run of a tick. Run, row and entries commit together.
    async fn start(
        &self,
        row: &ScheduleRow,
        rules: &ScheduleRules,
        wake: Wake,
        tick: Timestamp,
    ) -> Result<(), EngineError> {
        let lateness = self.now().micros().saturating_sub(rules.start_of(row.id, tick).micros());
        match self.try_start(row, rules, &wake, tick).await {
            Ok(()) => {
                count(TickOutcome::Started, wake.missed);
                if lateness > SCHEDULE_GRACE_SECONDS * 1_000_000 {
                    metrics::counter!("chimera_schedule_ticks_late_total").increment(1);
                }
                Ok(())
            }
            Err(Failure::Lost) => Ok(()),
            Err(Failure::Refused(body)) => {
                let report = TickReport { tick, outcome: TickOutcome::Refused, run: None, error: Some(body) };
                self.advance(row, rules, wake, Some(report)).await
            }
            Err(Failure::Busy(body)) => {
                let again = self.now().plus_seconds(SCHEDULE_RETRY_SECONDS);
                let cells =
                    vec![(schedules::due_at, again.into()), (schedules::last_error, Json::encode(&body)?.into())];
                self.commit_tick(update(row, cells)?).await.map(drop)
            }
            Err(Failure::Store(error)) => Err(error),
        }
    }

    async fn try_start(
        &self,
        row: &ScheduleRow,
        rules: &ScheduleRules,
        wake: &Wake,
        tick: Timestamp,
    ) -> Result<(), Failure> {
        let directory = &self.actions.access.directory;
        let permit =
            directory.permit_within(&row.tenant_id, &row.owner, &row.owner_scopes).map_err(Failure::Refused)?;
        let run = self.new_run_id();
        let mut backlog = wake.backlog.clone();
        backlog.active_runs.push(run);
        let report = TickReport { tick, outcome: TickOutcome::Started, run: Some(run), error: None };
        let mut cells = backlog_cells(row.id, rules, &backlog, self.now());
        cells.extend(report_cells(&report).map_err(Failure::Store)?);
        let mut tx = update(row, cells).map_err(Failure::Store)?;
        self.add_missed(&mut tx, row, wake.missed).map_err(Failure::Store)?;
        let event =
            permit.event(row.id.to_string(), "schedule.tick_started", json!({"name": row.name, "tick_at": tick}));
        self.writer().event(&mut tx, event.of_run(run)).map_err(|error| Failure::Store(error.into()))?;
        let cancelled =
            self.cancellable(row, rules, &permit, &wake.backlog.active_runs).await.map_err(Failure::Store)?;
        let reason = format!("schedule {} has started its next tick", row.name);
        add_cancellations(&self.actions.flow, &permit, &cancelled, &reason, &mut tx).map_err(Failure::Store)?;
        let key = format!("schedule:{}:{tick}", row.id);
        let ask = ActRequest {
            run_id: Some(run),
            key: Some(RequestKey { key, on_duplicate: DuplicatePolicy::Return, unmasked: None }),
            ..request(row, Some(tick)).map_err(Failure::Store)?
        };
        match self.actions.act(&permit.with_alongside(tx), ask).await {
            Ok(ActOutcome::Started(_)) => {
                wake_runs(&self.actions.flow, &cancelled);
                Ok(())
            }
            Ok(ActOutcome::Duplicate { run, .. }) => Err(self.duplicate(row, run).await),
            Err(error) => Err(Failure::of(error)),
        }
    }

    /// The unfinished runs that the policy cancels when the next tick starts: those that the owner may manage.
    async fn cancellable(
        &self,
        row: &ScheduleRow,
        rules: &ScheduleRules,
        permit: &Permit,
        active: &[Uuid],
    ) -> Result<Vec<Uuid>, EngineError> {
        let mut cancelled = Vec::new();
        for run in active.iter().filter(|_| rules.overlap == Overlap::CancelPrevious) {
            let select = RunBrief::select(Scope::Tenant(row.tenant_id.clone())).with(runs::id, *run);
            let found: Option<RunBrief> = rows::find(self.records(), select).await?;
            if found.is_some_and(|found| permit.may_manage(&found.actor)) {
                cancelled.push(*run);
            }
        }
        Ok(cancelled)
    }

    /// The tick has a run: another node started it, unless the row has not moved. Then the key was used by somebody
    /// else, or for this tick before the schedule was changed.
    async fn duplicate(&self, row: &ScheduleRow, run: Uuid) -> Failure {
        let select = ScheduleRow::select(Scope::System).with(schedules::id, row.id);
        match rows::find::<ScheduleRow>(self.records(), select).await {
            Ok(Some(now)) if now.state_version == row.state_version => {
                let body = ErrorBody::new(Code::ConflictIdempotency, "this tick has already started a run");
                Failure::Refused(body.with("run_id", run.to_string()))
            }
            Ok(_) => Failure::Lost,
            Err(error) => Failure::Store(error),
        }
    }

    /// Commits a decision that starts no run.
    async fn advance(
        &self,
        row: &ScheduleRow,
        rules: &ScheduleRules,
        wake: Wake,
        report: Option<TickReport>,
    ) -> Result<(), EngineError> {
        let mut cells = backlog_cells(row.id, rules, &wake.backlog, self.now());
        if let Some(report) = &report {
            cells.extend(report_cells(report)?);
        }
        let mut tx = update(row, cells)?;
        self.add_missed(&mut tx, row, wake.missed)?;
        if let Some(report) = &report {
            self.add_tick(&mut tx, row, report)?;
        }
        if self.commit_tick(tx).await?
            && let Some(report) = report
        {
            count(report.outcome, wake.missed);
        }
        Ok(())
    }

    /// A schedule that can't be read ticks no more.
    async fn stop(&self, row: &ScheduleRow, body: ErrorBody) -> Result<(), EngineError> {
        let report = TickReport { tick: row.due_at, outcome: TickOutcome::Refused, run: None, error: Some(body) };
        let mut cells = idle_cells();
        cells.extend(report_cells(&report)?);
        let mut tx = update(row, cells)?;
        self.add_tick(&mut tx, row, &report)?;
        self.commit_tick(tx).await.map(drop)
    }

    /// The entry of a tick that started no run.
    fn add_tick(&self, tx: &mut Tx, row: &ScheduleRow, report: &TickReport) -> Result<(), EngineError> {
        let mut data = json!({"name": row.name, "tick_at": report.tick});
        if let Some(error) = &report.error {
            data["code"] = error.code.as_str().into();
            data["reason"] = error.message.as_str().into();
        }
        let event_type = match (report.outcome, &report.error) {
            (TickOutcome::Refused, Some(body)) => {
                return self.add_refusal(tx, event_of(row, "schedule.tick_refused", data), &row.owner, body);
            }
            (TickOutcome::Skipped, _) => "schedule.tick_skipped",
            (TickOutcome::Queued, _) => "schedule.tick_queued",
            // What was missed has an entry of its own.
            _ => return Ok(()),
        };
        self.writer().event(tx, event_of(row, event_type, data))?;
        Ok(())
    }

    fn add_missed(&self, tx: &mut Tx, row: &ScheduleRow, missed: Option<Missed>) -> Result<(), EngineError> {
        let Some(Missed { first, last, count }) = missed else { return Ok(()) };
        let data = json!({"name": row.name, "first": first, "last": last, "count": count, "catch_up": row.catch_up});
        self.writer().event(tx, event_of(row, "schedule.ticks_missed", data))?;
        Ok(())
    }

    /// Commits; returns false if somebody else has dealt with the schedule.
    async fn commit_tick(&self, tx: Tx) -> Result<bool, EngineError> {
        match self.records().commit(tx).await {
            Ok(_) => Ok(true),
            Err(CommitError::Conflict(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The runs of earlier ticks that are not finished.
    async fn unfinished(&self, row: &ScheduleRow) -> Result<Vec<Uuid>, EngineError> {
        let mut unfinished = Vec::new();
        for run in &row.active_runs {
            let scope = Scope::Tenant(row.tenant_id.clone());
            let found: Option<RunBrief> =
                rows::find(self.records(), RunBrief::select(scope).with(runs::id, *run)).await?;
            if found.is_some_and(|found| !found.status.is_final()) {
                unfinished.push(*run);
            }
        }
        Ok(unfinished)
    }

    fn new_run_id(&self) -> Uuid {
        let parts = &self.actions.access.directory.parts;
        parts.random.row_id(parts.clock.now())
    }
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
