//! The event feed of one run.
//!
//! The run's row is read before its entries: every number up to the row's is committed, so no entry can appear later
//! behind one that was delivered.

use super::{Flow, load};
use crate::access::Permit;
use crate::error::EngineError;
use chimera_core::flow::run::RunStatus;
use chimera_core::flow::tables::{RunActor, RunBrief};
use chimera_core::limits;
use chimera_core::record::StoredRow;
use serde_json::Value;
use uuid::Uuid;

/// The next events.
#[derive(Clone, Debug, PartialEq)]
pub struct EventPage {
    /// In order, without a gap.
    pub events: Vec<Value>,
    /// The number to continue after.
    pub after: i64,
    /// No more events: the run has ended, is not being undone, and everything was delivered.
    pub over: bool,
}

impl Flow {
    /// A run's status.
    pub async fn status(&self, permit: &Permit, run: Uuid) -> Result<RunStatus, EngineError> {
        let row = load::readable_run(&*self.inner.parts.records, permit, run).await?;
        Ok(RunActor::decode(row)?.status)
    }

    /// The events of a run after number `after`.
    pub async fn feed(&self, permit: &Permit, run: Uuid, after: i64) -> Result<EventPage, EngineError> {
        let records = &*self.inner.parts.records;
        let row = RunBrief::decode(load::readable_run(records, permit, run).await?)?;
        let (head, after) = (row.run_seq, after.max(0));
        if after < head {
            let events = self.events(permit, run, after, limits::FEED_PAGE_MAX).await?;
            let window = i64::try_from(limits::FEED_PAGE_MAX).unwrap_or(i64::MAX);
            let last = events.last().and_then(|event| event["run_seq"].as_i64());
            let reached = after.saturating_add(window).min(head).max(last.unwrap_or(after));
            return Ok(EventPage { events, after: reached, over: false });
        }
        let rests = row.status.is_final() && row.owner_lane.is_none();
        let over = rests && load::signals(records, run).await?.0.is_empty();
        Ok(EventPage { events: Vec::new(), after, over })
    }
}
