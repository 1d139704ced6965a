//! The same random sequence of transactions gives the same answers on every store.

use crate::records::{fresh_database, one_lane, sqlite};
use chimera_core::flow::tables::{RUN_SIGNALS, RUNS};
use chimera_core::ledger::tables::{AUDIT_LOG_ENTRIES, IDEMPOTENCY_RECORDS};
use chimera_core::record::{
    Comparison, Condition, Direction, Insert, Row, RowCount, Scope, Select, Step, Table, Tx, Value,
};
use chimera_engine::port::{CommitError, Random, Records};
use chimera_testkit::build::{NOON, entry, run, run_update, signal};
use chimera_testkit::memory::MemoryRecords;
use chimera_testkit::seeded::Seeded;
use uuid::Uuid;

const TENANTS: [&str; 2] = ["acme", "globex"];
static TABLES: [&Table; 4] = [&RUNS, &RUN_SIGNALS, &IDEMPOTENCY_RECORDS, &AUDIT_LOG_ENTRIES];

/// Few ids and keys, so that transactions conflict.
struct RandomTransactions {
    seeded: Seeded,
    runs: Vec<chimera_testkit::build::RunBuilder>,
    keys: Vec<String>,
}

impl RandomTransactions {
    fn new(seed: u64) -> Self {
        let seeded = Seeded::new(seed);
        let keys: Vec<String> = (0..4).map(|_| seeded.opaque_id()).collect();
        let runs = (0..8)
            .map(|n| {
                let row = run(&seeded).of(TENANTS[n % 2]);
                if n % 3 == 0 { row.keyed(&keys[n % 4]) } else { row }
            })
            .collect();
        Self { seeded, runs, keys }
    }

    fn run_id(&self) -> Uuid {
        self.seeded.pick(&self.runs).id
    }

    fn tx(&self) -> Tx {
        let mut tx = Tx::default();
        for _ in 0..=self.seeded.below(3) {
            match self.seeded.below(7) {
                0 | 1 => tx.inserts.push(self.seeded.pick(&self.runs).insert().unwrap()),
                2 => {
                    let version = 1 + i64::try_from(self.seeded.below(3)).unwrap();
                    let status = *self.seeded.pick(&["running", "completed", "failed"]);
                    tx.updates.push(run_update(self.run_id(), version, status).unwrap());
                }
                3 => tx.inserts.push(signal(&self.seeded, self.run_id(), "tick").unwrap()),
                4 => tx.inserts.push(self.record()),
                5 => tx.steps.push(self.step()),
                _ => tx.entries.push(entry(&self.seeded, TENANTS[self.seeded.below(2) as usize], "told").unwrap()),
            }
        }
        tx
    }

    fn record(&self) -> Insert {
        let cells = vec![
            ("owner", (*self.seeded.pick(&["a", "B", "é"])).into()),
            ("key", self.seeded.pick(&self.keys).as_str().into()),
            ("fingerprint", vec![1_u8; 32].into()),
            ("state", "in_flight".into()),
            ("created_at", NOON.into()),
            ("expires_at", NOON.plus_seconds(60).into()),
        ];
        Insert::new(&IDEMPOTENCY_RECORDS, cells).unwrap()
    }

    fn step(&self) -> Step {
        let is = |column, value: Value| Condition { column, compare: Comparison::Is, value };
        let kind = |text: &str| vec![(RUN_SIGNALS.position("kind").unwrap(), text.into())];
        match self.seeded.below(4) {
            0 => Step::Delete {
                table: &RUN_SIGNALS,
                conditions: vec![is("run_id", self.run_id().into())],
                rows: RowCount::AtMost(self.seeded.below(3)),
            },
            1 => Step::Update {
                table: &RUN_SIGNALS,
                conditions: vec![is("run_id", self.run_id().into()), is("kind", "tick".into())],
                set: kind("tock"),
                rows: RowCount::AtMost(9),
            },
            2 => Step::Lock {
                table: &RUNS,
                conditions: vec![is("id", self.run_id().into())],
                rows: RowCount::Exactly(1),
            },
            _ => Step::Insert(signal(&self.seeded, self.run_id(), "step").unwrap()),
        }
    }

    fn select(&self) -> Select {
        let table = TABLES[self.seeded.below(4) as usize];
        let scope = match self.seeded.below(3) {
            0 => Scope::System,
            1 => Scope::Tenant("acme".to_owned()),
            _ => Scope::Tenant("globex".to_owned()),
        };
        let direction = *self.seeded.pick(&[Direction::Ascending, Direction::Descending]);
        let mut select = Select::from(table, scope).take(1 + self.seeded.below(6) as usize);
        select = match (table.name, self.seeded.below(3)) {
            ("runs", 0) => select.filter("status", Comparison::IsNot, "running").by(&["status"], direction),
            ("runs", 1) => select.with("idempotency_key", Value::Null).by(&["tenant_id"], direction),
            ("run_signals", 0) => select.with("run_id", self.run_id()).by(&["kind"], direction),
            ("idempotency_records", 0) => select.filter("owner", Comparison::AtLeast, "B").by(&[], direction),
            ("audit_log_entries", 0) => select.filter("seq", Comparison::AtMost, 5),
            _ => select.by(&[], direction),
        };
        select
    }
}

/// Inherent differences: the lane, and the wording of database errors.
fn comparable(answer: Result<chimera_engine::port::Receipt, CommitError>) -> Result<Option<i64>, CommitError> {
    match answer {
        Ok(receipt) => Ok(receipt.first_seq),
        Err(CommitError::Rejected { .. }) => Err(CommitError::Rejected { constraint: String::new() }),
        Err(other) => Err(other),
    }
}

async fn whole(store: &dyn Records, mut select: Select) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    loop {
        let page = store.read(select.clone()).await.map_err(|_| "refused".to_owned())?;
        rows.extend(page.rows);
        let Some(next) = page.next else { return Ok(rows) };
        select = select.continue_at(&next.encode()).unwrap();
    }
}

async fn compare_stores(seed: u64, stores: &[(&str, &dyn Records)]) {
    let story = RandomTransactions::new(seed);
    for chapter in 0..60 {
        if story.seeded.below(4) == 0 {
            let select = story.select();
            let first = whole(stores[0].1, select.clone()).await;
            if let (Scope::Tenant(tenant), Some(column), Ok(rows)) = (&select.scope, select.table.tenant, &first) {
                assert!(
                    rows.iter().all(|row| row.get(column).as_text() == Some(tenant.as_str())),
                    "seed {seed}: another tenant's row"
                );
            }
            for (name, store) in &stores[1..] {
                assert_eq!(
                    whole(*store, select.clone()).await,
                    first,
                    "seed {seed}, chapter {chapter}, {name}: {select:?}"
                );
            }
            continue;
        }
        let tx = story.tx();
        let first = comparable(stores[0].1.commit(tx.clone()).await);
        for (name, store) in &stores[1..] {
            let answer = comparable(store.commit(tx.clone()).await);
            assert_eq!(answer, first, "seed {seed}, chapter {chapter}, {name}: {tx:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_stories_end_the_same_on_every_store() {
    for seed in 0..12 {
        let folder = tempfile::tempdir().unwrap();
        let embedded = sqlite(folder.path()).unwrap();
        let shared = one_lane(&fresh_database()).await;
        let memory = MemoryRecords::new();
        compare_stores(seed, &[("sqlite", &embedded), ("postgres", &shared), ("memory", &memory)]).await;
        embedded.close().await;
        shared.close().await;
    }
}
