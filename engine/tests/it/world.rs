//! What every test needs: a clock that stands, randomness that repeats, entries by the handful.

use chimera_core::ledger::checkpoint::Signer;
use chimera_core::ledger::{ActorType, SubjectType};
use chimera_core::record::Tx;
use chimera_core::time::Timestamp;
use chimera_engine::ledger::audit::{Event, Writer};
use chimera_engine::ledger::checkpoint::{Made, make};
use chimera_engine::port::{Clock, Random, Records};
use serde_json::json;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

pub(crate) const ORIGIN: &str = "test.example/ledger";

pub(crate) struct FakeClock(AtomicI64);

impl FakeClock {
    pub(crate) const fn new() -> Self {
        Self(AtomicI64::new(1_770_000_000_000_000))
    }

    pub(crate) fn advance(&self, seconds: i64) {
        self.0.fetch_add(seconds * 1_000_000, Ordering::SeqCst);
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}

pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }
}

impl Random for Counter {
    fn fill(&self, bytes: &mut [u8]) {
        let number = self.0.fetch_add(1, Ordering::SeqCst).to_be_bytes();
        let tail = bytes.len() - number.len();
        bytes[tail..].copy_from_slice(&number);
    }
}

pub(crate) struct World {
    pub(crate) clock: FakeClock,
    pub(crate) random: Counter,
    pub(crate) signer: Signer,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { clock: FakeClock::new(), random: Counter::new(), signer: Signer::from_seed(&[7; 32]) }
    }

    pub(crate) fn writer(&self) -> Writer<'_> {
        Writer { random: &self.random, clock: &self.clock }
    }

    /// Commits `entries` entries of `tenant` together, in the lane of `affinity`.
    pub(crate) async fn write(&self, records: &dyn Records, affinity: u64, tenant: &str, entries: usize) {
        let mut tx = Tx { affinity, ..Tx::default() };
        for _ in 0..entries {
            self.writer().event(&mut tx, event(tenant)).unwrap();
        }
        records.commit(tx).await.unwrap();
    }

    pub(crate) async fn checkpoint(&self, records: &dyn Records) -> Made {
        make(records, &self.signer, &self.clock, ORIGIN).await.unwrap()
    }
}

pub(crate) fn event(tenant: &str) -> Event {
    Event {
        tenant_id: tenant.into(),
        subject_type: SubjectType::Task,
        subject_id: "task-1".into(),
        event_type: "task.created".into(),
        actor_type: ActorType::Human,
        actor_id: Some("ann".into()),
        data: json!({"ratio": 0.1, "note": "größer"}),
        run_id: None,
        run_seq: None,
        trace_id: Some("0af7651916cd43dd8448eb211c80319c".into()),
    }
}
