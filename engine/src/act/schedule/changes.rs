//! Creates, replaces, pauses, resumes and removes schedules.
//!
//! Only its owner says what a schedule starts, because it starts in the owner's name. Whoever manages runs may stop it.

use super::definition::{check_jitter, check_name, masked_reason, rules_of};
use super::records::{Cells, add_dropped, add_summary, backlog_cells, paused_cells, streak_cell, streak_of, update};
use super::{ScheduleDefinition, ScheduleView, Schedules, reading};
use crate::access::{Credential, Permit, RUNS_MANAGE};
use crate::act::assess::{StartableWorkflow, check_startable};
use crate::error::EngineError;
use crate::port::CommitError;
use crate::rows;
use chimera_core::act::schedule::{Backlog, ScheduleRules, Timing};
use chimera_core::act::tables::{SCHEDULES, SchedulePlace, ScheduleRow, schedules};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::json::Digest32;
use chimera_core::limits::{DECIDE_TRIES_MAX, SCHEDULE_PLACE_TRIES_MAX, SCHEDULES_MAX};
use chimera_core::record::{
    Comparison, Condition, Conflict, Insert, Json, RowCount, RowKey, STATE_VERSION, Scope, Step, StoredRow, Tx,
    Value as Cell,
};
use chimera_core::time::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use uuid::Uuid;

/// Creates a schedule. Refuses a name that the tenant uses, and a workflow that the caller may not start.
pub async fn create(
    scheduler: &Schedules,
    permit: &Permit,
    name: &str,
    wanted: ScheduleDefinition,
) -> Result<ScheduleView, EngineError> {
    check_name(name)?;
    let checked = check_definition(scheduler, permit, &wanted).await?;
    // Somebody else may take the same place at the same moment.
    for _ in 1..SCHEDULE_PLACE_TRIES_MAX {
        match try_create(scheduler, permit, name, &wanted, &checked).await {
            Err(EngineError::Commit(CommitError::Conflict(Conflict::Exists(row)))) if is_place(&row) => {}
            result => return result,
        }
    }
    try_create(scheduler, permit, name, &wanted, &checked).await
}

async fn try_create(
    scheduler: &Schedules,
    permit: &Permit,
    name: &str,
    wanted: &ScheduleDefinition,
    checked: &CheckedDefinition,
) -> Result<ScheduleView, EngineError> {
    let CheckedDefinition { rules, now, .. } = checked;
    let id = scheduler.actions.access.directory.parts.random.row_id(*now);
    let backlog = Backlog { next_at: first_tick(rules, *now)?, ..Backlog::default() };
    let mut cells: Cells = vec![
        (schedules::id, id.into()),
        (schedules::tenant_id, permit.tenant().into()),
        (schedules::name, name.into()),
        (schedules::owner, permit.actor().into()),
        (schedules::created_at, (*now).into()),
        (schedules::updated_at, (*now).into()),
        (schedules::place, free_place(scheduler, permit, id).await?.into()),
    ];
    cells.extend(definition_cells(permit, wanted, checked)?);
    cells.extend(backlog_cells(id, rules, &backlog, *now));
    let mut tx = Tx { inserts: vec![Insert::new(&SCHEDULES, cells)?], ..Tx::default() };
    let event = permit.event(id.to_string(), "schedule.created", described(name, wanted, checked));
    scheduler.writer().event(&mut tx, event)?;
    permit.add_alongside(&mut tx);
    commit(scheduler, permit, name, tx).await?;
    reading::show(scheduler, permit, name).await
}

/// Replaces what a schedule starts and when. Queued ticks are dropped. Only its owner may.
pub async fn replace(
    scheduler: &Schedules,
    permit: &Permit,
    name: &str,
    wanted: ScheduleDefinition,
) -> Result<ScheduleView, EngineError> {
    for _ in 1..DECIDE_TRIES_MAX {
        match try_replace(scheduler, permit, name, wanted.clone()).await {
            Err(error) if is_race(permit, &error) => {}
            result => return result,
        }
    }
    try_replace(scheduler, permit, name, wanted).await
}

async fn try_replace(
    scheduler: &Schedules,
    permit: &Permit,
    name: &str,
    mut wanted: ScheduleDefinition,
) -> Result<ScheduleView, EngineError> {
    let row = reading::visible_row(scheduler, permit, name).await?;
    if row.owner != permit.actor() {
        let message = "only its owner may change a schedule; you may pause or remove it, or create your own";
        return Err(EngineError::refused(Code::RbacForbidden, message));
    }
    if wanted.every.is_some() && wanted.anchor_at.is_none() {
        wanted.anchor_at = row.anchor_at;
    }
    let checked = check_definition(scheduler, permit, &wanted).await?;
    let mut cells = definition_cells(permit, &wanted, &checked)?;
    let next_at = first_tick(&checked.rules, checked.now)?.filter(|_| row.paused_at.is_none());
    let backlog = Backlog { next_at, queued: Vec::new(), active_runs: row.active_runs.clone() };
    cells.extend(backlog_cells(row.id, &checked.rules, &backlog, checked.now));
    change_schedule(scheduler, permit, &row, ("schedule.changed", described(name, &wanted, &checked)), cells).await
}

/// Stops the ticks of a schedule until it is resumed. Runs that it has started go on.
pub async fn pause(
    scheduler: &Schedules,
    permit: &Permit,
    name: &str,
    reason: Option<String>,
) -> Result<ScheduleView, EngineError> {
    let reason = masked_reason(reason)?;
    for _ in 1..DECIDE_TRIES_MAX {
        match try_pause(scheduler, permit, name, reason.clone()).await {
            Err(error) if is_race(permit, &error) => {}
            result => return result,
        }
    }
    try_pause(scheduler, permit, name, reason).await
}

async fn try_pause(
    scheduler: &Schedules,
    permit: &Permit,
    name: &str,
    reason: Option<String>,
) -> Result<ScheduleView, EngineError> {
    let row = manageable(scheduler, permit, name).await?;
    if row.paused_at.is_some() {
        return Err(EngineError::refused(Code::InvalidTransition, format!("schedule {name} is already paused")));
    }
    let cells = paused_cells(scheduler.now(), permit.actor(), reason.clone());
    let data = json!({"name": name, "reason": reason});
    change_schedule(scheduler, permit, &row, ("schedule.paused", data), cells).await
}

/// Resumes a paused schedule with its next tick. Ticks that passed meanwhile are not caught up. It releases work, so a
/// narrowed token needs what starting the workflow would need. The owner confirms the schedule with the key of this
/// request.
pub async fn resume(scheduler: &Schedules, permit: &Permit, name: &str) -> Result<ScheduleView, EngineError> {
    for _ in 1..DECIDE_TRIES_MAX {
        match try_resume(scheduler, permit, name).await {
            Err(error) if is_race(permit, &error) => {}
            result => return result,
        }
    }
    try_resume(scheduler, permit, name).await
}

async fn try_resume(scheduler: &Schedules, permit: &Permit, name: &str) -> Result<ScheduleView, EngineError> {
    let row = manageable(scheduler, permit, name).await?;
    if row.paused_at.is_none() {
        return Err(EngineError::refused(Code::InvalidTransition, format!("schedule {name} is not paused")));
    }
    if permit.is_narrowed() && !permit.may(RUNS_MANAGE) {
        let inputs = row.inputs.value()?;
        check_startable(&scheduler.actions, permit, &row.workflow_id, row.workflow_version, &inputs).await?;
    }
    let (rules, now) = (rules_of(&row)?, scheduler.now());
    let backlog = Backlog { next_at: rules.first_from(now), active_runs: row.active_runs.clone(), queued: Vec::new() };
    let mut cells = backlog_cells(row.id, &rules, &backlog, now);
    let cleared = [schedules::paused_at, schedules::paused_by, schedules::pause_reason];
    cells.extend(cleared.map(|column| (column, Cell::Null)));
    if permit.actor() == row.owner {
        cells.extend(credential_cells(permit));
    }
    change_schedule(scheduler, permit, &row, ("schedule.resumed", json!({"name": name})), cells).await
}

/// Removes a schedule. Runs that it has started go on, and the ledger keeps its history.
pub async fn remove(scheduler: &Schedules, permit: &Permit, name: &str) -> Result<(), EngineError> {
    for _ in 1..DECIDE_TRIES_MAX {
        match try_remove(scheduler, permit, name).await {
            Err(error) if is_race(permit, &error) => {}
            result => return result,
        }
    }
    try_remove(scheduler, permit, name).await
}

async fn try_remove(scheduler: &Schedules, permit: &Permit, name: &str) -> Result<(), EngineError> {
    let row = manageable(scheduler, permit, name).await?;
    let is = |column, value| Condition { column, compare: Comparison::Is, value };
    let conditions = vec![is(schedules::id, row.id.into()), is(STATE_VERSION, row.state_version.into())];
    let step = Step::Delete { table: &SCHEDULES, conditions, rows: RowCount::Exactly(1) };
    let mut tx = Tx { steps: vec![step], ..Tx::default() };
    let mut data = json!({"name": name});
    add_dropped(&mut data, &row);
    add_summary(scheduler, &mut tx, &row, streak_of(&row).and_then(|streak| streak.summary()))?;
    scheduler.writer().event(&mut tx, permit.event(row.id.to_string(), "schedule.removed", data))?;
    permit.add_alongside(&mut tx);
    commit(scheduler, permit, name, tx).await
}

/// A definition that its owner could start now.
struct CheckedDefinition {
    rules: ScheduleRules,
    now: Timestamp,
    startable: StartableWorkflow,
}

impl CheckedDefinition {
    /// The version that the ticks start; `None`: the newest of their time.
    fn version(&self, wanted: &ScheduleDefinition) -> Option<i64> {
        (!wanted.follow_latest).then_some(wanted.version.unwrap_or(self.startable.version))
    }
}

/// Checks a definition and that its workflow can be started by the caller now.
async fn check_definition(
    scheduler: &Schedules,
    permit: &Permit,
    wanted: &ScheduleDefinition,
) -> Result<CheckedDefinition, EngineError> {
    let now = scheduler.now();
    let rules = wanted.rules(now)?;
    check_jitter(&rules, now)?;
    let ScheduleDefinition { workflow_id, version, inputs, .. } = wanted;
    let startable = check_startable(&scheduler.actions, permit, workflow_id, *version, inputs).await?;
    Ok(CheckedDefinition { rules, now, startable })
}

/// A free place among those of the tenant. A place is unique in the store, so there are never more schedules than
/// places. The search begins where the id says, so that two callers rarely find the same one.
async fn free_place(scheduler: &Schedules, permit: &Permit, id: Uuid) -> Result<i64, EngineError> {
    let select = SchedulePlace::select(Scope::Tenant(permit.tenant().to_owned()));
    let held: Vec<SchedulePlace> = rows::list(scheduler.records(), select, usize::MAX).await?;
    let held: BTreeSet<i64> = held.into_iter().filter_map(|row| row.place).collect();
    let places = i64::try_from(SCHEDULES_MAX).unwrap_or(i64::MAX);
    let from = id.as_bytes().iter().rev().take(4).fold(0_i64, |number, byte| (number << 8) | i64::from(*byte)) % places;
    let free = (from..places).chain(0..from).find(|place| !held.contains(place));
    free.ok_or_else(|| {
        let message = format!("the tenant has {SCHEDULES_MAX} schedules, which is the limit; remove one first");
        EngineError::refused(Code::ValidationFailed, message)
    })
}

fn is_place(row: &RowKey) -> bool {
    row.table == SCHEDULES.name && row.columns.contains(&schedules::place)
}

/// Whether a tick or somebody else changed the schedule meanwhile.
fn is_race(permit: &Permit, error: &EngineError) -> bool {
    matches!(error, EngineError::Commit(error @ CommitError::Conflict(_)) if !permit.is_alongside_conflict(error))
}

/// Commits a change of a schedule's row together with its ledger entry.
async fn change_schedule(
    scheduler: &Schedules,
    permit: &Permit,
    row: &ScheduleRow,
    (event, mut data): (&str, Value),
    mut cells: Cells,
) -> Result<ScheduleView, EngineError> {
    cells.push((schedules::updated_at, scheduler.now().into()));
    cells.push(streak_cell(None)?);
    let mut tx = update(row, cells)?;
    add_summary(scheduler, &mut tx, row, streak_of(row).and_then(|streak| streak.summary()))?;
    add_dropped(&mut data, row);
    scheduler.writer().event(&mut tx, permit.event(row.id.to_string(), event, data))?;
    permit.add_alongside(&mut tx);
    commit(scheduler, permit, &row.name, tx).await?;
    reading::show(scheduler, permit, &row.name).await
}

async fn commit(scheduler: &Schedules, permit: &Permit, name: &str, tx: Tx) -> Result<(), EngineError> {
    match scheduler.records().commit(tx).await {
        Ok(_) => {
            scheduler.changed.notify_one();
            Ok(())
        }
        Err(error) if permit.is_alongside_conflict(&error) => Err(error.into()),
        Err(CommitError::Conflict(Conflict::Exists(row))) if !is_place(&row) => {
            let body = ErrorBody::new(Code::OccConflict, format!("there is already a schedule {name}"));
            Err(body.with("pointer", "/name").into())
        }
        Err(error) => Err(error.into()),
    }
}

async fn manageable(scheduler: &Schedules, permit: &Permit, name: &str) -> Result<ScheduleRow, EngineError> {
    let row = reading::visible_row(scheduler, permit, name).await?;
    match permit.may_manage(&row.owner) {
        true => Ok(row),
        false => Err(EngineError::missing_scope(RUNS_MANAGE)),
    }
}

fn first_tick(rules: &ScheduleRules, now: Timestamp) -> Result<Option<Timestamp>, ErrorBody> {
    match rules.first_from(now) {
        Some(tick) => Ok(Some(tick)),
        None => {
            let message = "the schedule would never tick; its end is before its first tick";
            Err(ErrorBody::new(Code::ValidationFailed, message).with("pointer", "/ends_at"))
        }
    }
}

/// The columns of what the owner proved who they are with.
fn credential_cells(permit: &Permit) -> Cells {
    let Credential { key, key_of } = permit.credential();
    vec![(schedules::owner_key, (*key).into()), (schedules::owner_key_of, key_of.clone().into())]
}

/// The columns of a definition, and the rights that its ticks may use.
fn definition_cells(
    permit: &Permit,
    wanted: &ScheduleDefinition,
    checked: &CheckedDefinition,
) -> Result<Cells, EngineError> {
    let CheckedDefinition { rules, startable, .. } = checked;
    let (cron, zone, every, anchor) = match &rules.timing {
        Timing::Cron { cron, zone } => (Some(cron.to_string()), Some(zone.name()), None, None),
        Timing::Interval { every_seconds, anchor } => (None, None, Some(*every_seconds), Some(*anchor)),
    };
    let mut cells = credential_cells(permit);
    cells.extend([
        (schedules::level_max, startable.level.into()),
        (schedules::confirmed_digest, startable.digest.to_vec().into()),
        (schedules::owner_scopes, permit.scopes().to_vec().into()),
        (schedules::workflow_id, wanted.workflow_id.as_str().into()),
        (schedules::workflow_version, checked.version(wanted).into()),
        (schedules::inputs, Json::encode(&wanted.inputs)?.into()),
        (schedules::cron, cron.into()),
        (schedules::time_zone, zone.into()),
        (schedules::every_seconds, every.into()),
        (schedules::anchor_at, anchor.into()),
        (schedules::overlap, rules.overlap.into()),
        (schedules::queue_max, u32::try_from(rules.queue_max).unwrap_or(u32::MAX).into()),
        (schedules::catch_up, rules.catch_up.into()),
        (schedules::catch_up_seconds, rules.catch_up_seconds.into()),
        (schedules::jitter_seconds, rules.jitter_seconds.into()),
        (schedules::starts_at, rules.starts_at.into()),
        (schedules::ends_at, rules.ends_at.into()),
    ]);
    Ok(cells)
}

/// What the ledger keeps of a definition. Inputs may be private, so it keeps their digest.
fn described(name: &str, wanted: &ScheduleDefinition, checked: &CheckedDefinition) -> Value {
    json!({
        "name": name, "workflow_id": wanted.workflow_id, "version": checked.version(wanted),
        "content_digest": checked.startable.digest.to_string(), "autonomy_level_max": checked.startable.level,
        "inputs_digest": Digest32::of(&wanted.inputs).to_string(),
        "cron": wanted.cron, "time_zone": wanted.time_zone, "every": wanted.every,
        "overlap": wanted.overlap, "catch_up": wanted.catch_up,
        "starts_at": wanted.starts_at, "ends_at": wanted.ends_at,
    })
}
