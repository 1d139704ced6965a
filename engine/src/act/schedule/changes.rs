//! Creates, replaces, pauses, resumes and removes schedules.
//!
//! Only its owner says what a schedule starts, because it starts in the owner's name. Whoever manages runs may stop it.

use super::definition::{check_name, check_reason, rules_of};
use super::records::{Cells, backlog_cells, idle_cells, update};
use super::{ScheduleDefinition, ScheduleView, Schedules};
use crate::access::{Permit, RUNS_MANAGE};
use crate::error::EngineError;
use crate::port::CommitError;
use crate::rows;
use chimera_core::act::schedule::{Backlog, ScheduleRules, Timing};
use chimera_core::act::tables::{SCHEDULES, ScheduleDue, ScheduleRow, schedules};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::json::Digest32;
use chimera_core::limits::{OVERLOAD_RETRY_SECONDS, SCHEDULES_MAX};
use chimera_core::record::{
    Comparison, Condition, Conflict, Insert, Json, RowCount, STATE_VERSION, Scope, Step, StoredRow, Tx, Value as Cell,
};
use chimera_core::time::Timestamp;
use serde_json::{Value, json};

impl Schedules {
    /// Creates a schedule. Refuses a name that the tenant uses, and a workflow that the caller may not start.
    pub async fn create(
        &self,
        permit: &Permit,
        name: &str,
        wanted: ScheduleDefinition,
    ) -> Result<ScheduleView, EngineError> {
        check_name(name)?;
        let (rules, now) = self.check(permit, &wanted).await?;
        self.check_count(permit).await?;
        let id = self.actions.access.directory.parts.random.row_id(now);
        let backlog = Backlog { next_at: first_tick(&rules, now)?, ..Backlog::default() };
        let mut cells: Cells = vec![
            (schedules::id, id.into()),
            (schedules::tenant_id, permit.tenant().into()),
            (schedules::name, name.into()),
            (schedules::owner, permit.actor().into()),
            (schedules::created_at, now.into()),
            (schedules::updated_at, now.into()),
        ];
        cells.extend(definition_cells(permit, &wanted, &rules)?);
        cells.extend(backlog_cells(id, &rules, &backlog, now));
        let mut tx = Tx { inserts: vec![Insert::new(&SCHEDULES, cells)?], ..Tx::default() };
        self.writer().event(&mut tx, permit.event(id.to_string(), "schedule.created", described(name, &wanted)))?;
        permit.add_alongside(&mut tx);
        self.commit(permit, name, tx).await?;
        self.show(permit, name).await
    }

    /// Replaces what a schedule starts and when. Queued ticks are dropped. Only its owner may.
    pub async fn replace(
        &self,
        permit: &Permit,
        name: &str,
        mut wanted: ScheduleDefinition,
    ) -> Result<ScheduleView, EngineError> {
        let row = self.row(permit, name).await?;
        if row.owner != permit.actor() {
            let message = "only its owner may change a schedule; you may pause or remove it, or create your own";
            return Err(EngineError::refused(Code::RbacForbidden, message));
        }
        if wanted.every.is_some() && wanted.anchor_at.is_none() {
            wanted.anchor_at = row.anchor_at;
        }
        let (rules, now) = self.check(permit, &wanted).await?;
        let mut cells = definition_cells(permit, &wanted, &rules)?;
        let next_at = first_tick(&rules, now)?.filter(|_| row.paused_at.is_none());
        let backlog = Backlog { next_at, queued: Vec::new(), active_runs: row.active_runs.clone() };
        cells.extend(backlog_cells(row.id, &rules, &backlog, now));
        self.change(permit, &row, ("schedule.changed", described(name, &wanted)), cells).await
    }

    /// Stops the ticks of a schedule until it is resumed. Runs that it has started go on.
    pub async fn pause(
        &self,
        permit: &Permit,
        name: &str,
        reason: Option<String>,
    ) -> Result<ScheduleView, EngineError> {
        check_reason(reason.as_deref())?;
        let row = self.manageable(permit, name).await?;
        if row.paused_at.is_some() {
            return Err(EngineError::refused(Code::InvalidTransition, format!("schedule {name} is already paused")));
        }
        let mut cells = idle_cells();
        cells.extend([
            (schedules::paused_at, self.now().into()),
            (schedules::paused_by, permit.actor().into()),
            (schedules::pause_reason, reason.clone().into()),
        ]);
        let data = json!({"name": name, "reason": reason});
        self.change(permit, &row, ("schedule.paused", data), cells).await
    }

    /// Resumes a paused schedule with its next tick. Ticks that passed meanwhile are not caught up.
    pub async fn resume(&self, permit: &Permit, name: &str) -> Result<ScheduleView, EngineError> {
        let row = self.manageable(permit, name).await?;
        if row.paused_at.is_none() {
            return Err(EngineError::refused(Code::InvalidTransition, format!("schedule {name} is not paused")));
        }
        let (rules, now) = (rules_of(&row)?, self.now());
        let backlog =
            Backlog { next_at: rules.first_from(now), active_runs: row.active_runs.clone(), queued: Vec::new() };
        let mut cells = backlog_cells(row.id, &rules, &backlog, now);
        let cleared = [schedules::paused_at, schedules::paused_by, schedules::pause_reason];
        cells.extend(cleared.map(|column| (column, Cell::Null)));
        self.change(permit, &row, ("schedule.resumed", json!({"name": name})), cells).await
    }

    /// Removes a schedule. Runs that it has started go on, and the ledger keeps its history.
    pub async fn remove(&self, permit: &Permit, name: &str) -> Result<(), EngineError> {
        let row = self.manageable(permit, name).await?;
        let is = |column, value| Condition { column, compare: Comparison::Is, value };
        let conditions = vec![is(schedules::id, row.id.into()), is(STATE_VERSION, row.state_version.into())];
        let step = Step::Delete { table: &SCHEDULES, conditions, rows: RowCount::Exactly(1) };
        let mut tx = Tx { steps: vec![step], ..Tx::default() };
        self.writer().event(&mut tx, permit.event(row.id.to_string(), "schedule.removed", json!({"name": name})))?;
        permit.add_alongside(&mut tx);
        self.commit(permit, name, tx).await
    }

    /// Checks a definition and that its workflow can be started by the caller now.
    async fn check(
        &self,
        permit: &Permit,
        wanted: &ScheduleDefinition,
    ) -> Result<(ScheduleRules, Timestamp), EngineError> {
        let now = self.now();
        let rules = wanted.rules(now)?;
        let ScheduleDefinition { workflow_id, version, inputs, .. } = wanted;
        self.actions.check_startable(permit, workflow_id, *version, inputs).await?;
        Ok((rules, now))
    }

    async fn check_count(&self, permit: &Permit) -> Result<(), EngineError> {
        let select = ScheduleDue::select(Scope::Tenant(permit.tenant().to_owned()));
        if rows::count(self.records(), select).await? < SCHEDULES_MAX {
            return Ok(());
        }
        let message = format!("the tenant has {SCHEDULES_MAX} schedules, which is the limit; remove one first");
        Err(ErrorBody::new(Code::Overloaded, message).retry_after(OVERLOAD_RETRY_SECONDS).into())
    }

    /// Commits a change of a schedule's row together with its ledger entry.
    async fn change(
        &self,
        permit: &Permit,
        row: &ScheduleRow,
        (event, data): (&str, Value),
        mut cells: Cells,
    ) -> Result<ScheduleView, EngineError> {
        cells.push((schedules::updated_at, self.now().into()));
        let mut tx = update(row, cells)?;
        self.writer().event(&mut tx, permit.event(row.id.to_string(), event, data))?;
        permit.add_alongside(&mut tx);
        self.commit(permit, &row.name, tx).await?;
        self.show(permit, &row.name).await
    }

    async fn commit(&self, permit: &Permit, name: &str, tx: Tx) -> Result<(), EngineError> {
        match self.records().commit(tx).await {
            Ok(_) => {
                self.changed.notify_one();
                Ok(())
            }
            Err(error) if permit.is_alongside_conflict(&error) => Err(error.into()),
            Err(CommitError::Conflict(Conflict::Exists(_))) => {
                let body = ErrorBody::new(Code::OccConflict, format!("there is already a schedule {name}"));
                Err(body.with("pointer", "/name").into())
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn manageable(&self, permit: &Permit, name: &str) -> Result<ScheduleRow, EngineError> {
        let row = self.row(permit, name).await?;
        match permit.may_manage(&row.owner) {
            true => Ok(row),
            false => Err(EngineError::missing_scope(RUNS_MANAGE)),
        }
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

/// The columns of a definition, and the rights that its ticks may use.
fn definition_cells(permit: &Permit, wanted: &ScheduleDefinition, rules: &ScheduleRules) -> Result<Cells, EngineError> {
    let (cron, zone, every, anchor) = match &rules.timing {
        Timing::Cron { cron, zone } => (Some(cron.to_string()), Some(zone.name()), None, None),
        Timing::Interval { every_seconds, anchor } => (None, None, Some(*every_seconds), Some(*anchor)),
    };
    Ok(vec![
        (schedules::owner_scopes, permit.scopes().to_vec().into()),
        (schedules::workflow_id, wanted.workflow_id.as_str().into()),
        (schedules::workflow_version, wanted.version.into()),
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
    ])
}

/// What the ledger keeps of a definition. Inputs may be private, so it keeps their digest.
fn described(name: &str, wanted: &ScheduleDefinition) -> Value {
    json!({
        "name": name, "workflow_id": wanted.workflow_id, "version": wanted.version,
        "inputs_digest": Digest32::of(&wanted.inputs).to_string(),
        "cron": wanted.cron, "time_zone": wanted.time_zone, "every": wanted.every,
        "overlap": wanted.overlap, "catch_up": wanted.catch_up,
        "starts_at": wanted.starts_at, "ends_at": wanted.ends_at,
    })
}
