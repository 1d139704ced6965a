//! Builders for complete rows and ledger entries, each with ids of its own.

use crate::seeded::Seeded;
use chimera_core::access::Level;
use chimera_core::flow::tables::{RUN_SIGNALS, RUNS, STEPS, run_signals, runs, steps};
use chimera_core::id;
use chimera_core::ledger::{ActorType, Entry, SealedEntry, SubjectType};
use chimera_core::record::{Insert, InvalidTx, Json, JsonError, Tx, Update, Value};
use chimera_core::time::Timestamp;
use chimera_engine::port::Random;
use serde_json::json;
use uuid::Uuid;

/// The time at which tests run: 2026-02-06T12:00:00Z.
pub const NOON: Timestamp = Timestamp::from_micros(1_770_379_200_000_000);

/// A builder's result; an error is a mistake in the test.
pub type BuildResult<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Builds the row of a run.
#[derive(Clone, Debug)]
pub struct RunBuilder {
    pub id: Uuid,
    tenant: String,
    key: Option<String>,
    status: &'static str,
}

/// A pending run of tenant `acme`.
pub fn run(seeded: &Seeded) -> RunBuilder {
    RunBuilder { id: seeded.row_id(NOON), tenant: "acme".to_owned(), key: None, status: "pending" }
}

impl RunBuilder {
    #[must_use]
    pub fn of(mut self, tenant: &str) -> Self {
        tenant.clone_into(&mut self.tenant);
        self
    }

    #[must_use]
    pub fn keyed(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }

    #[must_use]
    pub const fn status(mut self, status: &'static str) -> Self {
        self.status = status;
        self
    }

    pub fn insert(&self) -> BuildResult<Insert> {
        let cells = vec![
            (runs::id, self.id.into()),
            (runs::actor, "user_1".into()),
            (runs::request_payload, json(&json!({"goal": "test", "n": [1, 2.5, null]}))?),
            (runs::status, self.status.into()),
            (runs::autonomy_level, Level::ExecuteNotify.into()),
            (runs::trace_id, id::trace_id(self.id).into()),
            (runs::idempotency_key, self.key.clone().into()),
            (runs::created_at, NOON.into()),
            (runs::tenant_id, self.tenant.as_str().into()),
            (runs::state_version, Value::Int(1)),
            (runs::source, "act".into()),
            (runs::patches, Value::Int(0)),
            (runs::priority, Value::Int(5)),
            (runs::dry_run, Value::Bool(false)),
            (runs::cancel_requested, Value::Bool(false)),
            (runs::pause_requested, Value::Bool(false)),
            (runs::run_seq, Value::Int(0)),
        ];
        Ok(Insert::new(&RUNS, cells)?)
    }

    pub fn tx(&self) -> BuildResult<Tx> {
        Ok(Tx { inserts: vec![self.insert()?], ..Tx::default() })
    }
}

/// An update of a run's status that expects `version`.
pub fn run_update(id: Uuid, version: i64, status: &str) -> Result<Update, InvalidTx> {
    Update::versioned(&RUNS, vec![id.into()], version, vec![(runs::status, status.into())])
}

pub fn signal(seeded: &Seeded, run: Uuid, kind: &str) -> BuildResult<Insert> {
    let cells = vec![
        (run_signals::run_id, run.into()),
        (run_signals::id, seeded.row_id(NOON).into()),
        (run_signals::tenant_id, "acme".into()),
        (run_signals::kind, kind.into()),
        (run_signals::payload, json(&json!({"kind": kind}))?),
        (run_signals::created_at, NOON.into()),
    ];
    Ok(Insert::new(&RUN_SIGNALS, cells)?)
}

/// A pending step of a run. The run must exist or be inserted in the same transaction.
pub fn step(seeded: &Seeded, run: Uuid) -> Result<Insert, InvalidTx> {
    let cells = vec![
        (steps::id, seeded.row_id(NOON).into()),
        (steps::run_id, run.into()),
        (steps::tenant_id, "acme".into()),
        (steps::node_id, "first".into()),
        (steps::node_type, "function".into()),
        (steps::position, Value::Int(0)),
        (steps::status, "pending".into()),
        (steps::attempt, Value::Int(0)),
        (steps::created_at, NOON.into()),
        (steps::state_version, Value::Int(1)),
    ];
    Insert::new(&STEPS, cells)
}

pub fn entry(seeded: &Seeded, tenant: &str, event: &str) -> BuildResult<SealedEntry> {
    let entry = Entry {
        id: seeded.opaque_id(),
        tenant_id: tenant.to_owned(),
        subject_type: SubjectType::Other,
        subject_id: "subject".to_owned(),
        event_type: event.to_owned(),
        actor_type: ActorType::Human,
        actor_id: Some("user_1".to_owned()),
        timestamp: NOON,
        data: json!({"text": "é \" \\ \u{1F600}", "n": 1.5, "list": [null, true]}),
        run_id: None,
        run_seq: None,
        trace_id: None,
    };
    Ok(seeded.seal(entry)?)
}

fn json(value: &serde_json::Value) -> Result<Value, JsonError> {
    Json::encode(value).map(Value::Json)
}
