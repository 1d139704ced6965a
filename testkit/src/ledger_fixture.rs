//! Fixtures for tests of the ledger: a fake clock, seeded randomness, a checkpoint signer, and sample entries.

use crate::build::NOON;
use crate::seeded::{FakeClock, Seeded};
use chimera_core::ledger::checkpoint::{PublicKey, SignedCheckpoint, Signer};
use chimera_core::ledger::decision::{DecisionSource, Outcome};
use chimera_core::ledger::{ActorType, SubjectType};
use chimera_core::record::Tx;
use chimera_engine::ledger::audit::{DecisionRecord, EventRecord, Writer};
use chimera_engine::ledger::checkpoint::{CheckpointOutcome, make};
use chimera_engine::port::{Receipt, Records};
use serde_json::json;
use uuid::Uuid;

/// The name of the ledger under test.
pub const ORIGIN: &str = "test.example/ledger";

pub struct LedgerFixture {
    pub clock: FakeClock,
    pub random: Seeded,
    pub signer: Signer,
}

impl LedgerFixture {
    /// Different seeds give different ids.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { clock: FakeClock::at(NOON), random: Seeded::new(seed), signer: Signer::from_seed(&[7; 32]) }
    }

    /// The trusted public keys.
    #[must_use]
    pub fn keys(&self) -> [PublicKey; 1] {
        [self.signer.public_key()]
    }

    /// Advances the clock.
    pub fn advance_seconds(&self, seconds: i64) {
        self.clock.advance(seconds * 1_000_000);
    }

    #[must_use]
    pub fn writer(&self) -> Writer<'_> {
        Writer { random: &self.random, clock: &self.clock }
    }

    /// A transaction of `affinity` with `entries` entries of `tenant`.
    #[must_use]
    pub fn entries(&self, affinity: u64, tenant: &str, entries: usize) -> Tx {
        let mut tx = Tx { affinity, ..Tx::default() };
        for _ in 0..entries {
            self.writer().event(&mut tx, event(tenant)).unwrap();
        }
        tx
    }

    /// Commits `entries` entries of `tenant` together, in the lane of `affinity`.
    pub async fn write(&self, records: &dyn Records, affinity: u64, tenant: &str, entries: usize) -> Receipt {
        records.commit(self.entries(affinity, tenant, entries)).await.unwrap()
    }

    pub async fn try_checkpoint(&self, records: &dyn Records) -> CheckpointOutcome {
        make(records, &self.signer, &[], &self.clock, ORIGIN).await.unwrap()
    }

    /// Makes a checkpoint.
    pub async fn checkpoint(&self, records: &dyn Records) -> SignedCheckpoint {
        match self.try_checkpoint(records).await {
            CheckpointOutcome::Created(signed) => *signed,
            other => panic!("no checkpoint: {other:?}"),
        }
    }
}

/// A person's action in `tenant`.
#[must_use]
pub fn event(tenant: &str) -> EventRecord {
    EventRecord {
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
        operator_of: None,
    }
}

/// A policy's refusal in `tenant`.
#[must_use]
pub fn decision(tenant: &str) -> DecisionRecord {
    DecisionRecord {
        event: EventRecord { event_type: "intent.denied".into(), ..event(tenant) },
        source: DecisionSource::Policy,
        outcome: Outcome::Rejected,
        rationale: "the budget is spent".into(),
        agent_id: Some(Uuid::from_u128(5)),
        action_type: Some("publish".into()),
        action_data: Some(json!({"channel": "blog"})),
        policies: vec!["budget/v3".into()],
        campaign_id: Some("campaign-1".into()),
        task_id: Some("task-1".into()),
    }
}
