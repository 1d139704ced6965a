//! The in-memory record store: the real committer on tables in memory.
//!
//! A commit is queued when its future is first polled and executed when it is polled again. So concurrent
//! calls share a batch, as on the real stores, and a single thread is deterministic. A fault hook may
//! replace the outcome of any batch, and `tamper` changes rows directly. The catalogue's keys, defaults
//! and views are modelled; checks, foreign keys and append-only guards of the databases are not.

mod defaults;
mod lane;
mod order;
mod tables;
mod views;

pub use defaults::default_of;
pub use tables::RowChange;

use async_trait::async_trait;
use chimera_core::ledger::SealedEntry;
use chimera_core::record::{Page, Row, Select, StoredRow, Table, Tx, Value};
use chimera_engine::commit::{Batch, BatchOutcome, PreparedTx};
use chimera_engine::port::{
    Blocked, Clock, CommitError, HeldLane, Hold, Outage, ReadError, Receipt, Records, Unavailable,
};
use lane::LaneLoop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tables::Tables;
use tokio::sync::{oneshot, watch};

/// Decides the outcome of a batch before it is applied. `None` applies it. `Committed` applies it but loses the
/// answer.
pub type BatchFault = Box<dyn FnMut(&Batch) -> Option<BatchOutcome> + Send>;

/// The outcome of an attempt to claim a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneClaimOutcome {
    /// The lane is claimed.
    Taken,
    /// The claim takes longer. Commits wait, and the next transaction or renewal retries it.
    Pending,
    /// The claim fails. Waiting commits fail, and the next transaction or renewal retries it.
    Failed,
}

/// Decides the outcome of each attempt to claim a lane.
pub type LaneClaimFault = Box<dyn FnMut() -> LaneClaimOutcome + Send>;

/// Observes every committed batch, in order: its changed rows, its entries, then `committed`.
pub trait CommitObserver: Send {
    fn changed(&mut self, changed: RowChange<'_>);

    fn entered(&mut self, sealed: &SealedEntry);

    fn committed(&mut self);
}

/// One node of an in-memory store.
pub struct MemoryRecords {
    disk: Arc<SharedState>,
    lanes: Vec<Mutex<LaneLoop>>,
}

/// What all nodes share and what survives them.
#[derive(Default)]
struct SharedState {
    tables: Mutex<Tables>,
    fault: Mutex<Option<BatchFault>>,
    claims: Mutex<Option<LaneClaimFault>>,
    commits: watch::Sender<u64>,
    watcher: Mutex<Option<Box<dyn CommitObserver>>>,
    clock: Option<Arc<dyn Clock>>,
    hold: Mutex<Option<Hold>>,
    refuses_reads: AtomicBool,
    slow_reads_ms: AtomicU64,
    /// Every read, once a test has asked for them.
    reads: Mutex<Option<Vec<Select>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for MemoryRecords {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryRecords {
    /// An empty store of one lane, without faults.
    #[must_use]
    pub fn new() -> Self {
        Self::with_lanes(1)
    }

    /// An empty store of several lanes, chosen by affinity.
    #[must_use]
    pub fn with_lanes(lanes: usize) -> Self {
        Self::with_state(Arc::default(), lanes)
    }

    /// An empty store of several lanes whose leases expire by this clock unless they are renewed.
    #[must_use]
    pub fn leased(lanes: usize, clock: Arc<dyn Clock>) -> Self {
        Self::with_state(Arc::new(SharedState { clock: Some(clock), ..SharedState::default() }), lanes)
    }

    /// Another node on the same tables. It claims lanes that a closed node released. A node that was only dropped
    /// still holds its lanes, as after a crash.
    #[must_use]
    pub fn second_node(&self) -> Self {
        Self::with_state(Arc::clone(&self.disk), self.lanes.len())
    }

    /// The next node on the same tables when no other can be alive: every lane is free at once.
    #[must_use]
    pub fn replacement_node(&self) -> Self {
        lane::free_all(&mut lock(&self.disk.tables));
        self.second_node()
    }

    /// A separate store with the current content of this one, like a restored backup.
    #[must_use]
    pub fn copy(&self) -> Self {
        let mut tables = lock(&self.disk.tables).copy();
        lane::free_all(&mut tables);
        Self::with_state(
            Arc::new(SharedState { tables: Mutex::new(tables), ..SharedState::default() }),
            self.lanes.len(),
        )
    }

    /// Renews the leases of this node.
    pub fn renew(&self) {
        self.lanes.iter().for_each(|lane| lock(lane).renew(&self.disk));
    }

    pub fn watch(&self, watcher: Box<dyn CommitObserver>) {
        *lock(&self.disk.watcher) = Some(watcher);
    }

    fn with_state(disk: Arc<SharedState>, lanes: usize) -> Self {
        let lanes = (0..lanes.max(1)).map(|_| Mutex::new(LaneLoop::claim(&disk))).collect();
        Self { disk, lanes }
    }

    /// Lets `fault` decide about every batch from now on.
    pub fn inject_batch_fault(&self, fault: BatchFault) {
        *lock(&self.disk.fault) = Some(fault);
    }

    /// Lets `fault` decide about every claim of a lane from now on.
    pub fn inject_claim_fault(&self, fault: LaneClaimFault) {
        *lock(&self.disk.claims) = Some(fault);
    }

    /// Fails every batch from now on, like a full disk.
    pub fn refuse_writes(&self) {
        let full = || Unavailable::new(Outage::Full, "the disk is full");
        self.inject_batch_fault(Box::new(move |_| Some(BatchOutcome::Unavailable(full()))));
    }

    /// Fails every read from now on, like a lost server.
    pub fn refuse_reads(&self) {
        self.disk.refuses_reads.store(true, Ordering::SeqCst);
    }

    /// Delays the answer of every read, so that rows can change before it arrives.
    pub fn slow_reads(&self, by: Duration) {
        self.disk.slow_reads_ms.store(u64::try_from(by.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// All reads since the last call, in order, by any node. The first call only begins to record them.
    pub fn take_reads(&self) -> Vec<Select> {
        lock(&self.disk.reads).replace(Vec::new()).unwrap_or_default()
    }

    /// Ends injected failures of batches and reads.
    pub fn clear_faults(&self) {
        self.disk.refuses_reads.store(false, Ordering::SeqCst);
        *lock(&self.disk.fault) = None;
    }

    /// Holds the store against changes, or lifts the hold.
    pub fn set_hold(&self, hold: Option<Hold>) {
        *lock(&self.disk.hold) = hold;
    }

    /// The number of committed transactions; tests wait for it to change.
    #[must_use]
    pub fn commits(&self) -> watch::Receiver<u64> {
        self.disk.commits.subscribe()
    }

    /// Every row of a table or view, in the order of its key.
    #[must_use]
    pub fn rows(&self, table: &'static Table) -> Vec<Row> {
        lock(&self.disk.tables).all(table)
    }

    /// All rows of a table, decoded.
    #[must_use]
    pub fn list<R: StoredRow>(&self) -> Vec<R> {
        self.rows(R::TABLE).into_iter().map(|row| R::decode(row).expect("a row that can be read")).collect()
    }

    #[must_use]
    pub fn row(&self, table: &'static Table, key: Vec<Value>) -> Option<Row> {
        lock(&self.disk.tables).find(table, key).cloned()
    }

    /// Changes a table directly, like an intruder with the database's password.
    pub fn tamper(&self, table: &'static Table, change: impl FnOnce(&mut Vec<Row>)) {
        let mut tables = lock(&self.disk.tables);
        let mut rows = tables.all(table);
        change(&mut rows);
        tables.replace(table, rows);
    }
}

#[async_trait]
impl Records for MemoryRecords {
    async fn commit(&self, tx: Tx) -> Result<Receipt, CommitError> {
        if let Some(hold) = self.hold() {
            return Err(Blocked::from(hold).into());
        }
        let at = usize::try_from(tx.affinity % self.lanes.len() as u64).unwrap_or_default();
        let tx = PreparedTx::new(tx)?;
        let (waiter, answer) = oneshot::channel();
        lock(&self.lanes[at]).submit(tx, waiter);
        tokio::task::yield_now().await;
        lock(&self.lanes[at]).run(&self.disk);
        answer.await.unwrap_or_else(|_| Err(Unavailable::new(Outage::Transient, "the store is stopped").into()))
    }

    async fn read(&self, select: Select) -> Result<Page, ReadError> {
        tokio::task::yield_now().await;
        if self.disk.refuses_reads.load(Ordering::SeqCst) {
            return Err(Unavailable::new(Outage::Transient, "the server is gone").into());
        }
        if let Some(reads) = &mut *lock(&self.disk.reads) {
            reads.push(select.clone());
        }
        let page = lock(&self.disk.tables).read(&select);
        let slow = self.disk.slow_reads_ms.load(Ordering::SeqCst);
        if slow > 0 {
            tokio::time::sleep(Duration::from_millis(slow)).await;
        }
        page
    }

    fn lane(&self, affinity: u64) -> Option<HeldLane> {
        let at = usize::try_from(affinity % self.lanes.len() as u64).unwrap_or_default();
        self.lanes.get(at).filter(|_| self.hold().is_none()).and_then(|lane| lock(lane).held())
    }

    fn hold(&self) -> Option<Hold> {
        lock(&self.disk.hold).clone()
    }

    async fn ready(&self) -> Result<(), Unavailable> {
        for affinity in 0..self.lanes.len() as u64 {
            let answer = self.commit(Tx { affinity, ..Tx::default() }).await;
            answer.map_err(|error| Unavailable::new(Outage::Transient, error.to_string()))?;
        }
        Ok(())
    }

    async fn close(&self) {
        self.lanes.iter().for_each(|lane| lock(lane).close(&self.disk));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger_fixture::LedgerFixture;
    use chimera_core::ledger::ChainHead;
    use chimera_core::ledger::tables::{AUDIT_LOG_ENTRIES, LEDGER_LANES};
    use chimera_engine::commit::TxRejection;
    use futures::future::join_all;

    #[tokio::test]
    async fn a_commit_whose_answer_is_lost_ends_in_a_receipt_and_happens_once() {
        let (world, store) = (LedgerFixture::new(1), MemoryRecords::new());
        let mut first = true;
        let committed = || BatchOutcome::Committed { head: ChainHead::EMPTY, lost: Vec::<(usize, TxRejection)>::new() };
        store.inject_batch_fault(Box::new(move |_| std::mem::take(&mut first).then(committed)));
        assert_eq!(world.write(&store, 0, "acme", 2).await.first_seq, Some(1));
        let receipt = world.write(&store, 0, "acme", 1).await;
        assert_eq!((receipt.lane, receipt.epoch, receipt.first_seq), (1, 2, Some(3)));
        assert_eq!(store.rows(&AUDIT_LOG_ENTRIES).len(), 3);
    }

    #[tokio::test]
    async fn calls_that_are_made_together_share_a_batch() {
        let (world, store) = (LedgerFixture::new(1), MemoryRecords::new());
        let batches = Arc::new(Mutex::new(0));
        let count = Arc::clone(&batches);
        store.inject_batch_fault(Box::new(move |_| {
            *lock(&count) += 1;
            None
        }));
        join_all((0..5).map(|_| world.write(&store, 0, "acme", 1))).await;
        assert_eq!((*lock(&batches), *store.commits().borrow()), (1, 5));
    }

    #[tokio::test]
    async fn a_node_takes_lanes_that_were_given_back_and_no_others() {
        let (world, one) = (LedgerFixture::new(1), MemoryRecords::with_lanes(2));
        let two = one.second_node();
        assert_eq!(world.write(&two, 0, "acme", 1).await.lane, 3);
        one.close().await;
        assert!(matches!(one.commit(Tx::default()).await, Err(CommitError::Unavailable(_))));
        let three = one.second_node();
        let receipt = world.write(&three, 1, "acme", 1).await;
        assert_eq!((receipt.lane, receipt.epoch), (2, 2));
        store_is_fenced(&world, &three).await;
        assert_eq!(three.rows(&LEDGER_LANES).len(), 5, "a lane that was taken away is left alone");
    }

    async fn store_is_fenced(world: &LedgerFixture, store: &MemoryRecords) {
        let epoch = LEDGER_LANES.position("epoch").unwrap();
        store.tamper(&LEDGER_LANES, |rows| rows[0].cells[epoch] = 9.into());
        assert_eq!(store.commit(world.entries(0, "acme", 1)).await, Err(CommitError::Fenced));
        world.write(store, 0, "acme", 1).await;
    }
}
