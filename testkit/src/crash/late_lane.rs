//! A store whose lane is claimed late: its engine reads for a while before it can write.
//!
//! A slow disk or a busy database does the same to a process that starts. An engine that drives runs
//! before it holds a lane writes rows without an owner.

use async_trait::async_trait;
use chimera_core::record::{Page, Select, Tx};
use chimera_engine::port::{CommitError, HeldLane, Hold, ReadError, Receipt, Records, Unavailable};
use std::sync::Arc;
use tokio::sync::watch;

/// Reads after which the lane is claimed. The keeper makes more than one pass in that time, so it has seen every run.
const READS: u64 = 12;

pub(super) struct LateLaneRecords {
    inner: Arc<dyn Records>,
    reads: watch::Sender<u64>,
}

impl LateLaneRecords {
    pub(super) fn new(inner: Arc<dyn Records>) -> Self {
        Self { inner, reads: watch::Sender::new(0) }
    }

    async fn wait_for_claim(&self) {
        // The sender is ours, so the wait can't fail.
        let _ = self.reads.subscribe().wait_for(|reads| *reads >= READS).await;
    }
}

#[async_trait]
impl Records for LateLaneRecords {
    async fn commit(&self, tx: Tx) -> Result<Receipt, CommitError> {
        self.wait_for_claim().await;
        self.inner.commit(tx).await
    }

    async fn read(&self, select: Select) -> Result<Page, ReadError> {
        let page = self.inner.read(select).await;
        self.reads.send_modify(|reads| *reads += 1);
        page
    }

    fn lane(&self, affinity: u64) -> Option<HeldLane> {
        (*self.reads.borrow() >= READS).then(|| self.inner.lane(affinity)).flatten()
    }

    fn hold(&self) -> Option<Hold> {
        self.inner.hold()
    }

    async fn ready(&self) -> Result<(), Unavailable> {
        self.wait_for_claim().await;
        self.inner.ready().await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
