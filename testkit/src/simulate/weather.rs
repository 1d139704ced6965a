//! How badly the world behaves, and the dice that decide.

use crate::memory::ClaimFate;
use crate::seeded::Seeded;
use async_trait::async_trait;
use chimera_core::ledger::ChainHead;
use chimera_core::record::{Page, Select, Tx};
use chimera_engine::commit::{Batch, BatchOutcome};
use chimera_engine::port::{CommitError, HeldLane, Hold, Outage, ReadError, Receipt, Records, Unavailable};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How likely a thing is, in parts of a thousand.
#[derive(Clone, Copy, Debug)]
pub struct Odds {
    /// A batch is refused.
    pub refused: u64,
    /// A batch is committed and its answer lost.
    pub unsure: u64,
    /// A lane is taken away.
    pub fenced: u64,
    /// A batch can't be serialised.
    pub contended: u64,
    /// A read fails.
    pub unread: u64,
    /// A lane can't be claimed yet: everybody waits.
    pub claim_slow: u64,
    /// An attempt to claim a lane fails.
    pub claim_fails: u64,
    /// A call does not simply work.
    pub odd_call: u64,
}

/// The weather of one world.
pub struct Weather {
    /// The dice.
    pub dice: Seeded,
    odds: Odds,
    calm: AtomicBool,
    outage: AtomicBool,
}

impl Weather {
    /// Weather after a seed; some worlds are worse than others.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let dice = Seeded::new(seed ^ 0x5eed_0fda_7a5e_ed00);
        // Some kinds of trouble stay away from a world, so that the others are not drowned in them.
        let odd = |of: u64| *dice.pick(&[0, 0, 1, 3]) * dice.below(of + 1);
        let odds = Odds {
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

    /// Nothing goes wrong from now on, or everything may.
    pub fn calm(&self, calm: bool) {
        self.calm.store(calm, Ordering::Relaxed);
    }

    /// Whether nothing goes wrong.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    /// The store takes nothing for a while.
    pub fn outage(&self, outage: bool) {
        self.outage.store(outage, Ordering::Relaxed);
    }

    fn is_out(&self) -> bool {
        !self.is_calm() && self.outage.load(Ordering::Relaxed)
    }

    /// Whether something of these odds happens now.
    pub fn strikes(&self, per_mille: u64) -> bool {
        !self.is_calm() && self.dice.below(1_000) < per_mille
    }

    /// Whether a call does something else than its work.
    pub fn odd_call(&self) -> bool {
        self.strikes(self.odds.odd_call)
    }

    /// Time that anything takes, so that nobody can rely on an order.
    pub async fn linger(&self) {
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

    /// What becomes of an attempt to claim a lane.
    pub fn claim(&self) -> ClaimFate {
        if self.is_out() || self.strikes(self.odds.claim_fails) {
            ClaimFate::Failed
        } else if self.strikes(self.odds.claim_slow) {
            ClaimFate::Pending
        } else {
            ClaimFate::Taken
        }
    }

    /// What becomes of a batch.
    pub fn judge(&self, _batch: &Batch) -> Option<BatchOutcome> {
        let down = || BatchOutcome::Unavailable(unavailable());
        if self.is_out() || self.strikes(self.odds.refused) {
            return Some(down());
        }
        if self.strikes(self.odds.unsure) {
            return Some(BatchOutcome::Committed { head: ChainHead::EMPTY, lost: Vec::new() });
        }
        if self.strikes(self.odds.fenced) {
            return Some(BatchOutcome::Fenced);
        }
        self.strikes(self.odds.contended).then_some(BatchOutcome::Contended)
    }
}

fn unavailable() -> Unavailable {
    Unavailable::new(Outage::Transient, "the weather is bad")
}

/// Records in the weather: calls take time, and reads may fail.
pub struct Weathered {
    inner: Arc<dyn Records>,
    weather: Arc<Weather>,
    /// This node alone can't reach the store.
    away: Arc<AtomicBool>,
}

impl Weathered {
    /// The records as a node sees them; `away` says that it can't reach them.
    #[must_use]
    pub fn new(inner: Arc<dyn Records>, weather: Arc<Weather>, away: Arc<AtomicBool>) -> Self {
        Self { inner, weather, away }
    }

    fn is_away(&self) -> bool {
        !self.weather.is_calm() && self.away.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Records for Weathered {
    async fn commit(&self, tx: Tx) -> Result<Receipt, CommitError> {
        self.weather.linger().await;
        if self.is_away() {
            return Err(unavailable().into());
        }
        let receipt = self.inner.commit(tx).await;
        self.weather.linger().await;
        receipt
    }

    async fn read(&self, select: Select) -> Result<Page, ReadError> {
        self.weather.linger().await;
        if self.is_away() || self.weather.is_out() || self.weather.strikes(self.weather.odds.unread) {
            return Err(unavailable().into());
        }
        let page = self.inner.read(select).await;
        self.weather.linger().await;
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
