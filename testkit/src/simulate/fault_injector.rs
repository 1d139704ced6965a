//! Fault injection for the simulator: which faults occur, decided by the seed.

use crate::memory::LaneClaimOutcome;
use crate::seeded::Seeded;
use async_trait::async_trait;
use chimera_core::ledger::ChainHead;
use chimera_core::record::{Page, Select, Tx};
use chimera_engine::commit::{Batch, BatchOutcome};
use chimera_engine::port::{CommitError, HeldLane, Hold, Outage, ReadError, Receipt, Records, Unavailable};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The probability of each fault, per mille.
#[derive(Clone, Copy, Debug)]
pub struct FaultOdds {
    /// The store rejects a batch as unavailable.
    pub refused: u64,
    /// A batch is committed, but its answer is lost.
    pub unsure: u64,
    /// A lane is fenced.
    pub fenced: u64,
    /// A batch fails with a serialisation conflict.
    pub contended: u64,
    pub unread: u64,
    /// Claiming a lane takes longer.
    pub claim_slow: u64,
    /// Claiming a lane fails.
    pub claim_fails: u64,
    /// A tool call misbehaves.
    pub odd_call: u64,
}

/// The fault injector of one simulation.
pub struct FaultInjector {
    pub dice: Seeded,
    odds: FaultOdds,
    calm: AtomicBool,
    outage: AtomicBool,
}

impl FaultInjector {
    /// Draws the probabilities from a seed; some seeds have more faults than others.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let dice = Seeded::new(seed ^ 0x5eed_0fda_7a5e_ed00);
        // Each kind of fault is often absent, so that one kind does not mask the others.
        let odd = |of: u64| *dice.pick(&[0, 0, 1, 3]) * dice.below(of + 1);
        let odds = FaultOdds {
            refused: odd(20),
            unsure: odd(20),
            fenced: odd(8),
            contended: odd(20),
            unread: odd(20),
            claim_slow: *dice.pick(&[0, 0, 500, 900]),
            claim_fails: *dice.pick(&[0, 0, 300, 600]),
            odd_call: *dice.pick(&[0, 100, 300, 600]),
        };
        Self { dice, odds, calm: AtomicBool::new(true), outage: AtomicBool::new(false) }
    }

    /// Turns fault injection off (`true`) or on.
    pub fn calm(&self, calm: bool) {
        self.calm.store(calm, Ordering::Relaxed);
    }

    /// Whether fault injection is off.
    #[must_use]
    pub fn is_disabled(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    /// Begins or ends an outage of the store.
    pub fn set_outage(&self, outage: bool) {
        self.outage.store(outage, Ordering::Relaxed);
    }

    fn has_outage(&self) -> bool {
        !self.is_disabled() && self.outage.load(Ordering::Relaxed)
    }

    /// Draws whether a fault with this probability occurs now.
    pub fn draw(&self, per_mille: u64) -> bool {
        !self.is_disabled() && self.dice.below(1_000) < per_mille
    }

    /// Draws whether a tool call misbehaves.
    pub fn draw_call_fault(&self) -> bool {
        self.draw(self.odds.odd_call)
    }

    /// Waits a random short time, so that nothing can rely on an order.
    pub async fn delay(&self) {
        match self.dice.below(16) {
            0 => tokio::time::sleep(Duration::from_millis(1 + self.dice.below(40))).await,
            1..=4 => {
                for _ in 0..=self.dice.below(3) {
                    tokio::task::yield_now().await;
                }
            }
            _ => {}
        }
    }

    /// Draws the outcome of an attempt to claim a lane.
    pub fn draw_claim(&self) -> LaneClaimOutcome {
        if self.has_outage() || self.draw(self.odds.claim_fails) {
            LaneClaimOutcome::Failed
        } else if self.draw(self.odds.claim_slow) {
            LaneClaimOutcome::Pending
        } else {
            LaneClaimOutcome::Taken
        }
    }

    /// Draws the outcome of a batch; `None` applies it.
    pub fn draw_batch(&self, _batch: &Batch) -> Option<BatchOutcome> {
        let down = || BatchOutcome::Unavailable(unavailable());
        if self.has_outage() || self.draw(self.odds.refused) {
            return Some(down());
        }
        if self.draw(self.odds.unsure) {
            return Some(BatchOutcome::Committed { head: ChainHead::EMPTY, lost: Vec::new() });
        }
        if self.draw(self.odds.fenced) {
            return Some(BatchOutcome::Fenced);
        }
        self.draw(self.odds.contended).then_some(BatchOutcome::Contended)
    }
}

fn unavailable() -> Unavailable {
    Unavailable::new(Outage::Transient, "injected outage")
}

/// Records under fault injection: calls take time, and reads may fail.
pub struct FaultyRecords {
    inner: Arc<dyn Records>,
    weather: Arc<FaultInjector>,
    /// This node is partitioned from the store.
    away: Arc<AtomicBool>,
}

impl FaultyRecords {
    #[must_use]
    pub fn new(inner: Arc<dyn Records>, weather: Arc<FaultInjector>, away: Arc<AtomicBool>) -> Self {
        Self { inner, weather, away }
    }

    fn is_partitioned(&self) -> bool {
        !self.weather.is_disabled() && self.away.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Records for FaultyRecords {
    async fn commit(&self, tx: Tx) -> Result<Receipt, CommitError> {
        self.weather.delay().await;
        if self.is_partitioned() {
            return Err(unavailable().into());
        }
        let receipt = self.inner.commit(tx).await;
        self.weather.delay().await;
        receipt
    }

    async fn read(&self, select: Select) -> Result<Page, ReadError> {
        self.weather.delay().await;
        if self.is_partitioned() || self.weather.has_outage() || self.weather.draw(self.weather.odds.unread) {
            return Err(unavailable().into());
        }
        let page = self.inner.read(select).await;
        self.weather.delay().await;
        page
    }

    fn lane(&self, affinity: u64) -> Option<HeldLane> {
        self.inner.lane(affinity)
    }

    fn hold(&self) -> Option<Hold> {
        self.inner.hold()
    }

    async fn ready(&self) -> Result<(), Unavailable> {
        self.inner.ready().await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
