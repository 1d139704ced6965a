//! The row of a schedule and its ledger entries, as parts of a transaction.

use super::Schedules;
use crate::error::EngineError;
use crate::ledger::audit::{DecisionRecord, EventRecord};
use chimera_core::act::schedule::{Backlog, ScheduleRules, Streak, TickOutcome, TickSummary};
use chimera_core::act::tables::{SCHEDULES, ScheduleRow, schedules};
use chimera_core::error::ErrorBody;
use chimera_core::flow::tables::{INBOX_MESSAGES, inbox_messages};
use chimera_core::ledger::decision::{DecisionSource, Outcome};
use chimera_core::record::{Insert, Json, Tx, Update, Value as Cell};
use chimera_core::time::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

/// When a schedule is due that has nothing more to do: 9999-12-31.
const NEVER: Timestamp = Timestamp::from_micros(253_402_214_400_000_000);

/// Who pauses a schedule that can't go on.
pub(super) const SYSTEM: &str = "system";

pub(super) type Cells = Vec<(&'static str, Cell)>;

/// What became of a tick.
pub(super) struct TickReport {
    pub(super) tick: Timestamp,
    pub(super) outcome: TickOutcome,
    pub(super) run: Option<Uuid>,
    pub(super) error: Option<ErrorBody>,
}

/// What a schedule has left to do.
pub(super) fn backlog_of(row: &ScheduleRow) -> Backlog {
    Backlog {
        next_at: row.next_at,
        queued: row.queued.iter().filter_map(|tick| tick.parse().ok()).collect(),
        active_runs: row.active_runs.clone(),
    }
}

/// The columns of what is left to do, and when it is due.
pub(super) fn backlog_cells(schedule: Uuid, rules: &ScheduleRules, backlog: &Backlog, now: Timestamp) -> Cells {
    let due_at = rules.due_at(schedule, backlog, now).unwrap_or(NEVER);
    vec![
        (schedules::next_at, backlog.next_at.into()),
        (schedules::due_at, due_at.into()),
        (schedules::queued, backlog.queued.iter().map(Timestamp::to_string).collect::<Vec<_>>().into()),
        (schedules::active_runs, backlog.active_runs.clone().into()),
    ]
}

/// The columns of a schedule that does nothing until it is changed.
pub(super) fn idle_cells() -> Cells {
    let nothing = Vec::<String>::new();
    vec![(schedules::next_at, Cell::Null), (schedules::due_at, NEVER.into()), (schedules::queued, nothing.into())]
}

/// The columns of the last tick.
pub(super) fn report_cells(report: &TickReport) -> Result<Cells, EngineError> {
    let mut cells = vec![
        (schedules::last_tick_at, report.tick.into()),
        (schedules::last_outcome, report.outcome.into()),
        (schedules::last_error, report.error.as_ref().map(Json::encode).transpose()?.into()),
    ];
    if let Some(run) = report.run {
        cells.push((schedules::last_run_id, run.into()));
    }
    Ok(cells)
}

/// The ticks in a row that started no run.
pub(super) fn streak_of(row: &ScheduleRow) -> Option<Streak> {
    row.streak.as_ref().and_then(|streak| streak.decode().ok())
}

/// The column of a streak; without one, null.
pub(super) fn streak_cell(streak: Option<&Streak>) -> Result<(&'static str, Cell), EngineError> {
    Ok((schedules::streak, streak.map(Json::encode).transpose()?.into()))
}

/// Records the ticks that the ledger does not have yet: nothing more is known about them.
pub(super) fn add_summary(
    scheduler: &Schedules,
    tx: &mut Tx,
    row: &ScheduleRow,
    summary: Option<TickSummary>,
) -> Result<(), EngineError> {
    let Some(TickSummary { outcome, code, reason, ticks, first, last }) = summary else { return Ok(()) };
    let data = json!({
        "name": row.name, "outcome": outcome, "code": code, "reason": reason, "count": ticks, "first": first, "last": last,
    });
    scheduler.writer().event(tx, event_of(row, "schedule.ticks_not_started", data))?;
    Ok(())
}

/// Adds the queued ticks that a change drops to the data of its entry.
pub(super) fn add_dropped(data: &mut Value, row: &ScheduleRow) {
    if !row.queued.is_empty() {
        data["dropped_ticks"] = row.queued.clone().into();
    }
}

/// The message to a schedule's owner that it was paused.
pub(super) fn owner_message(scheduler: &Schedules, row: &ScheduleRow, reason: &str) -> Result<Insert, EngineError> {
    let parts = &scheduler.actions.access.directory.parts;
    let now = parts.clock.now();
    let data = json!({
        "schedule_id": row.id, "name": row.name, "workflow_id": row.workflow_id, "reason": reason, "paused_at": now,
    });
    Ok(Insert::new(
        &INBOX_MESSAGES,
        vec![
            (inbox_messages::tenant_id, row.tenant_id.as_str().into()),
            (inbox_messages::actor, row.owner.as_str().into()),
            (inbox_messages::id, parts.random.row_id(now).into()),
            // It is about no run.
            (inbox_messages::run_id, Uuid::nil().into()),
            (inbox_messages::event_type, "schedule.paused".into()),
            (inbox_messages::data, Json::encode(&data)?.into()),
            (inbox_messages::created_at, now.into()),
        ],
    )?)
}

/// The columns of a schedule that is paused from now on.
pub(super) fn paused_cells(now: Timestamp, by: &str, reason: Option<String>) -> Cells {
    let mut cells = idle_cells();
    cells.extend([
        (schedules::paused_at, now.into()),
        (schedules::paused_by, by.into()),
        (schedules::pause_reason, reason.into()),
    ]);
    cells
}

/// Changes a schedule that is still in the version that was read.
pub(super) fn update(row: &ScheduleRow, cells: Cells) -> Result<Tx, EngineError> {
    let update = Update::versioned(&SCHEDULES, vec![row.id.into()], row.state_version, cells)?;
    Ok(Tx { updates: vec![update], ..Tx::default() })
}

/// An event of a schedule that nobody but the clock caused.
pub(super) fn event_of(row: &ScheduleRow, event_type: &str, data: Value) -> EventRecord {
    EventRecord::by_system(&row.tenant_id, row.id.to_string(), event_type, data)
}

/// Records a tick that was refused: a decision about the owner.
pub(super) fn add_refusal(
    scheduler: &Schedules,
    tx: &mut Tx,
    event: EventRecord,
    owner: &str,
    body: &ErrorBody,
) -> Result<(), EngineError> {
    let decision = DecisionRecord {
        event: EventRecord { actor_id: Some(owner.to_owned()), ..event },
        source: DecisionSource::Access,
        outcome: Outcome::Rejected,
        rationale: body.message.clone(),
        agent_id: None,
        action_type: None,
        action_data: None,
        policies: vec![body.code.clone()],
        campaign_id: None,
        task_id: None,
    };
    scheduler.writer().decision(tx, decision)?;
    Ok(())
}
