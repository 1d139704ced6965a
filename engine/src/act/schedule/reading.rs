//! Lists and shows schedules. What a caller may not see does not exist for them.

use super::definition::rules_of;
use super::{ScheduleView, Schedules};
use crate::access::Permit;
use crate::error::EngineError;
use crate::flow::view::ListPage;
use crate::port::ReadError;
use crate::rows;
use chimera_core::act::schedule::is_schedule_name;
use chimera_core::act::tables::{SCHEDULES, ScheduleRow, schedules};
use chimera_core::record::{Cursor, Direction, Row, Scope, Select, StoredRow};
use chimera_core::time::Timestamp;

/// Schedules by name: the caller's own, or everybody's for those who see the runs of others.
pub async fn list(
    scheduler: &Schedules,
    permit: &Permit,
    limit: usize,
    cursor: Option<&str>,
) -> Result<ListPage<ScheduleView>, EngineError> {
    let scope = Scope::Tenant(permit.tenant().to_owned());
    let mut select = Select::from(&SCHEDULES, scope).by(&[schedules::name], Direction::Ascending);
    if !permit.sees("") {
        select = select.with(schedules::owner, permit.actor());
    }
    select = select.take(limit);
    if let Some(cursor) = cursor {
        select = select.continue_at(cursor).map_err(ReadError::from)?;
    }
    let page = scheduler.records().read(select).await?;
    let bytes = page.rows.iter().map(Row::bytes).sum();
    let view = |row| Ok::<_, EngineError>(ScheduleView::of(ScheduleRow::decode(row)?)?);
    Ok(ListPage {
        next_cursor: page.next.as_ref().map(Cursor::encode),
        items: page.rows.into_iter().map(view).collect::<Result<_, _>>()?,
        bytes,
    })
}

pub async fn show(scheduler: &Schedules, permit: &Permit, name: &str) -> Result<ScheduleView, EngineError> {
    Ok(ScheduleView::of(visible_row(scheduler, permit, name).await?)?)
}

/// The next ticks, as if the schedule were not paused.
pub async fn next_ticks(
    scheduler: &Schedules,
    permit: &Permit,
    name: &str,
    count: usize,
) -> Result<Vec<Timestamp>, EngineError> {
    let row = visible_row(scheduler, permit, name).await?;
    let rules = rules_of(&row)?;
    let first = row.next_at.or_else(|| rules.first_from(scheduler.now()));
    Ok(std::iter::successors(first, |tick| rules.next_after(*tick)).take(count).collect())
}

/// The row of a schedule that the caller may see.
pub(super) async fn visible_row(
    scheduler: &Schedules,
    permit: &Permit,
    name: &str,
) -> Result<ScheduleRow, EngineError> {
    let missing = || EngineError::not_found("schedule");
    if !is_schedule_name(name) {
        return Err(missing());
    }
    let scope = Scope::Tenant(permit.tenant().to_owned());
    let found: Option<ScheduleRow> =
        rows::find(scheduler.records(), ScheduleRow::select(scope).with(schedules::name, name)).await?;
    found.filter(|row| permit.sees(&row.owner)).ok_or_else(missing)
}
