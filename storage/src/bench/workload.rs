//! The transactions of the benchmark and the writers that send them.

use chimera_core::flow::tables::{EFFECTS, RUNS, STEPS, TOOL_CALLS};
use chimera_core::ledger::{ActorType, ChainHead, ChainLink, Entry, EntryError, SubjectType, extend};
use chimera_core::record::{Insert, InvalidTx, Json, JsonError, Tx, Update, Value};
use chimera_core::{id, time::Timestamp};
use chimera_engine::port::{Clock, CommitError, Random, Records};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use uuid::Uuid;

/// Steps of a run before its writer starts the next run.
const STEPS_PER_RUN: usize = 8;

/// Builds the rows of the benchmark.
#[derive(Clone)]
pub struct Workload {
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

/// Why a benchmark stopped.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A transaction could not be built.
    #[error("a transaction can't be built")]
    Build(#[from] InvalidTx),
    /// A document could not be built.
    #[error("a document can't be built")]
    Json(#[from] JsonError),
    /// An entry could not be sealed.
    #[error("an entry can't be sealed")]
    Entry(#[from] EntryError),
    /// The store refused.
    #[error("the store refused a transaction")]
    Commit(#[from] CommitError),
    /// SQLite refused the bare loop.
    #[error("the bare loop failed")]
    Sqlite(#[from] rusqlite::Error),
    /// PostgreSQL refused the bare loop.
    #[error("the bare loop failed")]
    Postgres(#[from] tokio_postgres::Error),
    /// A store could not be opened.
    #[error("the store can't be opened")]
    Open(#[from] crate::records::OpenError),
    /// A writer died.
    #[error("a writer stopped")]
    Writer(#[from] tokio::task::JoinError),
}

impl Workload {
    #[must_use]
    pub const fn new(clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> Self {
        Self { clock, random }
    }

    /// A run for one writer.
    pub fn run(&self) -> Result<(Uuid, Tx), BenchError> {
        let now = self.clock.now();
        let run = self.random.row_id(now);
        let cells = vec![
            ("id", run.into()),
            ("actor", "bench".into()),
            ("request_payload", Value::Json(Json::encode(&json!({"goal": "measure"}))?)),
            ("status", "running".into()),
            ("trace_id", id::trace_id(run).into()),
            ("tenant_id", "bench".into()),
            ("state_version", Value::Int(1)),
        ];
        Ok((run, Tx { inserts: vec![Insert::new(&RUNS, cells)?], ..Tx::default() }))
    }

    /// One step of a run at `version`.
    pub fn step(&self, run: Uuid, version: i64) -> Result<Tx, BenchError> {
        let now = self.clock.now();
        let [step, call, effect] = [(); 3].map(|()| self.random.row_id(now));
        let ids = StepIds { run, step, call, effect };
        let input = json!({"text": "one two three four five six seven eight", "n": version});
        let input = Value::Json(Json::encode(&input)?);
        let inserts = vec![
            Insert::new(&STEPS, step_cells(&ids, version, input.clone(), now))?,
            Insert::new(&TOOL_CALLS, call_cells(&ids, input, now))?,
            Insert::new(&EFFECTS, effect_cells(&ids, now))?,
        ];
        let set = vec![("status", "running".into()), ("run_seq", Value::Int(version))];
        let updates = vec![Update::versioned(&RUNS, vec![run.into()], version, set)?];
        let entry = Entry {
            id: self.random.opaque_id(),
            tenant_id: "bench".to_owned(),
            subject_type: SubjectType::Task,
            subject_id: step.to_string(),
            event_type: "step_completed".to_owned(),
            actor_type: ActorType::System,
            actor_id: None,
            timestamp: now,
            data: json!({"tool": "local.echo", "attempt": 1, "input_digest": "00".repeat(32)}),
            run_id: Some(run),
            run_seq: Some(version),
            trace_id: Some(id::trace_id(run)),
        };
        let affinity = u64::from_be_bytes(*run.as_bytes().last_chunk().unwrap_or(&[0; 8]));
        Ok(Tx { inserts, updates, entries: vec![self.random.seal(entry)?], affinity, ..Tx::default() })
    }
}

type NamedCells = Vec<(&'static str, Value)>;

/// The ids of a step, its call and its effect.
struct StepIds {
    run: Uuid,
    step: Uuid,
    call: Uuid,
    effect: Uuid,
}

fn step_cells(ids: &StepIds, version: i64, input: Value, now: Timestamp) -> NamedCells {
    vec![
        ("id", ids.step.into()),
        ("run_id", ids.run.into()),
        ("tenant_id", "bench".into()),
        ("node_id", "echo".into()),
        ("position", Value::Int(version)),
        ("tool", "local.echo".into()),
        ("input", input),
        ("status", "completed".into()),
        ("created_at", now.into()),
        ("completed_at", now.into()),
    ]
}

fn call_cells(ids: &StepIds, input: Value, now: Timestamp) -> NamedCells {
    vec![
        ("id", ids.call.into()),
        ("step_id", ids.step.into()),
        ("tool_name", "local.echo".into()),
        ("tool_input", input.clone()),
        ("tool_output", input),
        ("duration_ms", Value::Int(3)),
        ("created_at", now.into()),
        ("actor", "bench".into()),
        ("tenant_id", "bench".into()),
        ("run_id", ids.run.into()),
        ("effect_id", ids.effect.into()),
    ]
}

fn effect_cells(ids: &StepIds, now: Timestamp) -> NamedCells {
    vec![
        ("id", ids.effect.into()),
        ("tenant_id", "bench".into()),
        ("run_id", ids.run.into()),
        ("step_id", ids.step.into()),
        ("tool", "local.echo".into()),
        ("status", "succeeded".into()),
        ("idempotency_key", ids.effect.simple().to_string().into()),
        ("input_digest", vec![0; 32].into()),
        ("created_at", now.into()),
    ]
}

/// The run, by index in a lane's list, and the version for step `n` of writer `w`. Runs that are written at the same
/// time were started at the same time, as on a server.
const fn place(writers: usize, w: usize, n: usize) -> (usize, i64) {
    (n / STEPS_PER_RUN * writers + w, (n % STEPS_PER_RUN) as i64 + 1)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BenchResult {
    pub txs: usize,
    /// Database commits that carried them.
    pub batches: usize,
}

/// Lets `writers` commit at least `txs` steps in total, each waiting for its receipt before it sends the next. Their
/// runs are started beforehand; `start` is called when the work begins.
pub async fn drive(
    store: &Arc<dyn Records>,
    workload: &Workload,
    writers: usize,
    txs: usize,
    start: impl FnOnce(),
) -> Result<BenchResult, BenchError> {
    let share = txs.div_ceil(writers);
    let mut runs = Vec::new();
    for _ in 0..share.div_ceil(STEPS_PER_RUN) {
        let started = (0..writers).map(|_| workload.run()).collect::<Result<Vec<_>, _>>()?;
        let (ids, txs): (Vec<Uuid>, Vec<Tx>) = started.into_iter().unzip();
        runs.extend(ids);
        futures::future::try_join_all(txs.into_iter().map(|tx| store.commit(tx))).await?;
    }
    start();
    let runs: Arc<[Uuid]> = runs.into();
    let writer = |w: usize| {
        let (store, workload, runs) = (Arc::clone(store), workload.clone(), Arc::clone(&runs));
        tokio::spawn(async move {
            let mut ends = Vec::with_capacity(share);
            for n in 0..share {
                let (run, version) = place(writers, w, n);
                let receipt = store.commit(workload.step(runs[run], version)?).await?;
                ends.push((receipt.lane, receipt.head_seq));
            }
            Ok::<_, BenchError>(ends)
        })
    };
    // All transactions of one batch get the same chain head.
    let mut batches = BTreeSet::new();
    for task in (0..writers).map(writer).collect::<Vec<_>>() {
        batches.extend(task.await??);
    }
    Ok(BenchResult { txs: share * writers, batches: batches.len() })
}

/// How much a bare loop commits on each of its lanes.
#[derive(Clone, Copy, Debug)]
pub struct BareLoad {
    /// Steps of one batch.
    pub batch: usize,
    pub batches: usize,
}

/// Batches of steps, built before the timed loop starts.
pub(super) struct PreparedBatches {
    /// The runs that the steps belong to.
    pub(super) runs: Vec<Tx>,
    /// Steps and the ledger links of their entries.
    pub(super) batches: Vec<(Vec<Tx>, Vec<ChainLink>)>,
}

impl PreparedBatches {
    pub(super) fn new(workload: &Workload, lane: i64, load: BareLoad) -> Result<Self, BenchError> {
        let BareLoad { batch, batches } = load;
        let runs = (0..batches.div_ceil(STEPS_PER_RUN) * batch).map(|_| workload.run());
        let runs: Vec<(Uuid, Tx)> = runs.collect::<Result<_, _>>()?;
        let mut head = ChainHead::EMPTY;
        let mut prepared = Vec::with_capacity(batches);
        for n in 0..batches {
            let step = |w: usize| {
                let (run, version) = place(batch, w, n);
                workload.step(runs[run].0, version)
            };
            let steps = (0..batch).map(step).collect::<Result<Vec<_>, _>>()?;
            let mut link = |tx: &Tx| {
                let link = extend(lane, head, tx.entries[0].content_digest);
                head = link.head();
                link
            };
            let links = steps.iter().map(&mut link).collect();
            prepared.push((steps, links));
        }
        Ok(Self { runs: runs.into_iter().map(|(_, tx)| tx).collect(), batches: prepared })
    }
}
