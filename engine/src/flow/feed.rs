//! What happens to a run, for somebody who follows it.
//!
//! Where the run stands is read before its entries: a number that the run's row has reached is
//! committed, so an entry that is not there yet can't hide behind one that is.

use super::{Flow, load};
use crate::access::Permit;
use crate::error::EngineError;
use chimera_core::flow::run::RunStatus;
use chimera_core::limits;
use chimera_core::record::Damaged;
use serde_json::Value;
use uuid::Uuid;

/// The next events of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Feed {
    /// In order, without a gap.
    pub events: Vec<Value>,
    /// Where to go on.
    pub after: i64,
    /// Nothing more comes by itself: the run has ended, is not being undone, and all was given.
    pub over: bool,
}

impl Flow {
    /// Where a run stands.
    pub async fn status(&self, permit: &Permit, run: Uuid) -> Result<RunStatus, EngineError> {
        let row = load::seen_run(&*self.inner.parts.records, permit, run).await?;
        let damaged = || Damaged { what: "its status is no known word".to_owned() };
        Ok(RunStatus::parse(row.text("status")).ok_or_else(damaged)?)
    }

    /// The events of a run behind number `after`.
    pub async fn feed(&self, permit: &Permit, run: Uuid, after: i64) -> Result<Feed, EngineError> {
        let records = &*self.inner.parts.records;
        let row = load::seen_run(records, permit, run).await?;
        let (head, after) = (row.int("run_seq"), after.max(0));
        if after < head {
            let events = self.events(permit, run, after, limits::FEED_PAGE_MAX).await?;
            let window = i64::try_from(limits::FEED_PAGE_MAX).unwrap_or(i64::MAX);
            let last = events.last().and_then(|event| event["run_seq"].as_i64());
            let reached = after.saturating_add(window).min(head).max(last.unwrap_or(after));
            return Ok(Feed { events, after: reached, over: false });
        }
        let ended = RunStatus::parse(row.text("status")).is_some_and(RunStatus::is_final);
        let over = ended && row.get("owner_lane").is_null() && load::signals(records, run).await?.0.is_empty();
        Ok(Feed { events: Vec::new(), after, over })
    }
}
