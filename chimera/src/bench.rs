//! The benchmark of the record store: one realistic transaction, many writers.
//!
//! A step of a run is one update with a version check, three inserts and a ledger entry. Each
//! writer owns one run and sends its next step when the last is durable, as the flow engine does.
//! The same statements in a bare hand-written loop are the ceiling that the result is held against.

use crate::compose::Ambient;
use crate::failure::{Failure, Outcome};
use async_trait::async_trait;
use chimera_core::error::Code;
use chimera_core::id;
use chimera_core::ledger::{ActorType, Entry, SubjectType};
use chimera_core::record::{Insert, InvalidTx, Json, Table, Tx, Update, Value, catalog};
use chimera_core::time::Timestamp;
use chimera_engine::port::Records;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use uuid::Uuid;

/// How many writers are measured.
pub(crate) const WRITERS: &[usize] = &[1, 64, 256];

/// The tenant of the benchmark's rows.
const TENANT: &str = "bench";

/// The same statements, written by hand against the database itself.
#[async_trait]
pub(crate) trait Ceiling: Send + Sync {
    /// Commits the transactions in batches of `batch` for this long; how many were committed.
    async fn run(&self, batch: usize, time: Duration) -> Outcome<u64>;
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Measured {
    /// Writers, or the batch size of the bare loop.
    pub(crate) writers: usize,
    /// Transactions that were durable in the end.
    pub(crate) transactions: u64,
    /// Transactions per second.
    pub(crate) per_second: f64,
}

impl Measured {
    pub(crate) fn new(writers: usize, transactions: u64, time: Duration) -> Self {
        let per_second = (transactions as f64 / time.as_secs_f64().max(f64::EPSILON)).round();
        Self { writers, transactions, per_second }
    }
}

/// Measures the store with this many writers.
pub(crate) async fn measure(
    records: &Arc<dyn Records>,
    ambient: &Ambient,
    writers: usize,
    time: Duration,
) -> Outcome<Measured> {
    let tables = Tables::find()?;
    let mut runs = Vec::with_capacity(writers);
    for _ in 0..writers {
        let run = ambient.random.row_id(ambient.clock.now());
        records.commit(tables.start(run, ambient).map_err(invalid)?).await?;
        runs.push(run);
    }
    let began = ambient.clock.now();
    let until =
        Timestamp::from_micros(began.micros().saturating_add(i64::try_from(time.as_micros()).unwrap_or(i64::MAX)));
    let mut tasks = JoinSet::new();
    for run in runs {
        let (records, ambient) = (records.clone(), ambient.clone());
        tasks.spawn(async move { write(&*records, &ambient, tables, run, until).await });
    }
    let mut transactions = 0;
    while let Some(ended) = tasks.join_next().await {
        transactions += ended.map_err(|_| Failure::new(Code::Internal, "a writer of the benchmark broke"))??;
    }
    let took = ambient.clock.now().micros() - began.micros();
    Ok(Measured::new(writers, transactions, Duration::from_micros(took.unsigned_abs())))
}

async fn write(records: &dyn Records, ambient: &Ambient, tables: Tables, run: Uuid, until: Timestamp) -> Outcome<u64> {
    let mut done = 0;
    while ambient.clock.now() < until {
        records.commit(tables.step(run, done, ambient).map_err(invalid)?).await?;
        done += 1;
    }
    Ok(u64::try_from(done).unwrap_or(0))
}

fn invalid(error: Box<dyn std::error::Error>) -> Failure {
    Failure::new(Code::Internal, format!("the benchmark's transaction is refused: {error}"))
}

/// The tables that a step touches.
#[derive(Clone, Copy)]
struct Tables {
    runs: &'static Table,
    steps: &'static Table,
    tool_calls: &'static Table,
    timers: &'static Table,
}

impl Tables {
    fn find() -> Outcome<Self> {
        let all = catalog();
        let find = |name: &str| {
            let found = all.iter().copied().find(|table| table.name == name);
            found.ok_or_else(|| Failure::new(Code::StoreUnavailable, format!("this build has no table {name}")))
        };
        Ok(Self {
            runs: find("runs")?,
            steps: find("steps")?,
            tool_calls: find("tool_calls")?,
            timers: find("timers")?,
        })
    }

    fn start(self, run: Uuid, ambient: &Ambient) -> Result<Tx, Box<dyn std::error::Error>> {
        let cells = vec![
            ("id", run.into()),
            ("actor", "bench".into()),
            ("request_payload", Json::of(&serde_json::json!({"goal": "measure"}))?.into()),
            ("status", "running".into()),
            ("trace_id", id::trace_id(run).into()),
            ("created_at", ambient.clock.now().into()),
            ("tenant_id", TENANT.into()),
            ("state_version", 0_i64.into()),
        ];
        Ok(Tx { inserts: vec![Insert::into(self.runs, cells)?], affinity: affinity(run), ..Tx::default() })
    }

    fn step(self, run: Uuid, number: i64, ambient: &Ambient) -> Result<Tx, Box<dyn std::error::Error>> {
        let now = ambient.clock.now();
        let (step, call, timer) = (ambient.random.row_id(now), ambient.random.row_id(now), ambient.random.row_id(now));
        let update = Update::versioned(self.runs, vec![run.into()], number, vec![("status", "running".into())])?;
        let entry = Entry {
            id: ambient.random.opaque_id(),
            tenant_id: TENANT.to_owned(),
            subject_type: SubjectType::Task,
            subject_id: step.to_string(),
            event_type: "StepCompleted".to_owned(),
            actor_type: ActorType::System,
            actor_id: None,
            timestamp: now,
            data: serde_json::json!({"node": "measure", "number": number}),
            run_id: Some(run),
            run_seq: Some(number + 1),
            trace_id: Some(id::trace_id(run)),
        };
        Ok(Tx {
            updates: vec![update],
            inserts: self.inserts(run, number, now, [step, call, timer])?,
            entries: vec![ambient.random.seal(entry)?],
            affinity: affinity(run),
            ..Tx::default()
        })
    }

    fn inserts(self, run: Uuid, number: i64, now: Timestamp, ids: [Uuid; 3]) -> Result<Vec<Insert>, InvalidTx> {
        let [step, call, timer] = ids;
        let shared: [(&'static str, Value); 2] = [("tenant_id", TENANT.into()), ("run_id", run.into())];
        let with = |cells: Vec<(&'static str, Value)>| shared.iter().cloned().chain(cells).collect::<Vec<_>>();
        let step_cells = vec![
            ("id", step.into()),
            ("node_id", "measure".into()),
            ("position", number.into()),
            ("status", "completed".into()),
            ("created_at", now.into()),
        ];
        let call_cells = vec![
            ("id", call.into()),
            ("step_id", step.into()),
            ("tool_name", "bench.measure".into()),
            ("tool_input", Json::stored("{\"n\":1}".to_owned()).into()),
            ("tool_output", Json::stored("{\"ok\":true}".to_owned()).into()),
            ("created_at", now.into()),
        ];
        let timer_cells =
            vec![("id", timer.into()), ("kind", "step".into()), ("due_at", now.into()), ("created_at", now.into())];
        Ok(vec![
            Insert::into(self.steps, with(step_cells))?,
            Insert::into(self.tool_calls, with(call_cells))?,
            Insert::into(self.timers, with(timer_cells))?,
        ])
    }
}

fn affinity(run: Uuid) -> u64 {
    u64::from_be_bytes(run.as_bytes()[8..].try_into().unwrap_or_default())
}
