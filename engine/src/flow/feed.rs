//! The event feed of one run.
//!
//! The run's row is read before its entries: every number up to the row's is committed, so no entry can appear later
//! behind one that was delivered.

use super::view::EventView;
use super::{Flow, load};
use crate::access::Permit;
use crate::error::EngineError;
use chimera_core::flow::run::RunStatus;
use chimera_core::ledger::tables::{RunEntry, audit_log_entries};
use chimera_core::limits;
use chimera_core::record::{Comparison, Scope, StoredRow};
use uuid::Uuid;

/// The next events.
#[derive(Clone, Debug, PartialEq)]
pub struct EventPage {
    /// In order, without a gap.
    pub events: Vec<EventView>,
    /// The number to continue after.
    pub after: i64,
    /// No more events: the run has ended, is not being undone, and everything was delivered.
    pub over: bool,
}

/// A run's status.
pub async fn run_status(flow: &Flow, permit: &Permit, run: Uuid) -> Result<RunStatus, EngineError> {
    Ok(load::readable_run(&*flow.inner.parts.records, permit, run).await?.status)
}

/// The events of a run after number `after`, in order: those with the next `limit` numbers.
///
/// A run that moved to another lane has later entries that an order by lane would put first, so a page is bounded
/// by numbers and not by rows.
pub async fn events(
    flow: &Flow,
    permit: &Permit,
    run: Uuid,
    after: i64,
    limit: usize,
) -> Result<Vec<EventView>, EngineError> {
    let limit = limit.clamp(1, limits::PAGE_ROWS_MAX);
    let last = after.saturating_add(i64::try_from(limit).unwrap_or(i64::MAX));
    let select = RunEntry::select(Scope::Tenant(permit.tenant().to_owned()))
        .with(audit_log_entries::run_id, run)
        .filter(audit_log_entries::run_seq, Comparison::Above, after)
        .filter(audit_log_entries::run_seq, Comparison::AtMost, last);
    let (rows, _) = flow.inner.parts.records.first(select, limit).await?;
    let decode = |row| RunEntry::decode(row).map(EventView::of);
    let mut events: Vec<EventView> = rows.into_iter().map(decode).collect::<Result<_, _>>()?;
    events.sort_by_key(|event| event.run_seq);
    Ok(events)
}

/// The events of a run after number `after`.
pub async fn feed(flow: &Flow, permit: &Permit, run: Uuid, after: i64) -> Result<EventPage, EngineError> {
    let records = &*flow.inner.parts.records;
    let row = load::readable_run(records, permit, run).await?;
    let (head, after) = (row.run_seq, after.max(0));
    if after < head {
        let events = events(flow, permit, run, after, limits::FEED_PAGE_MAX).await?;
        let window = i64::try_from(limits::FEED_PAGE_MAX).unwrap_or(i64::MAX);
        let last = events.last().map(|event| event.run_seq);
        let reached = after.saturating_add(window).min(head).max(last.unwrap_or(after));
        return Ok(EventPage { events, after: reached, over: false });
    }
    let rests = row.status.is_final() && row.owner_lane.is_none();
    let over = rests && load::signals(records, run).await?.0.is_empty();
    Ok(EventPage { events: Vec::new(), after, over })
}
