//! `chimera bench flow`: throughput and latency of runs with three durable steps.
//!
//! A closed loop: each run that ends is followed by the next. Each step's result is on disk before the next
//! step starts.

use super::{CommandContext, print};
use crate::bench::BenchConditions;
use crate::cli::{BenchLimit, BenchStore};
use crate::compose::{Ambient, FlowBench, operator};
use crate::config::Config;
use crate::data_folder::DataFolder;
use crate::failure::{Failure, Outcome};
use chimera_core::access::Level;
use chimera_core::error::Code;
use chimera_core::flow::run::RunStatus;
use chimera_engine::EngineError;
use chimera_engine::access::Permit;
use chimera_engine::flow::{self, Flow, StartRun};
use chimera_engine::port::Clock;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Concurrent runs while the store is filled.
const FILL_CONCURRENCY: usize = 256;

/// Page size that `/proc` uses.
const PAGE_BYTES: u64 = 4_096;

pub(crate) struct BenchLoad {
    pub(crate) runs: usize,
    pub(crate) concurrency: usize,
    /// Finished runs in the store before measuring.
    pub(crate) finished: usize,
    /// Runs that wait for approval while measuring.
    pub(crate) waiting: usize,
    /// Measure again with such a limit.
    pub(crate) limit: Option<BenchLimit>,
}

struct FlowMeasurement {
    /// Memory that each waiting run costs, if there are any.
    waiting_bytes: Option<f64>,
    seconds: f64,
    /// How long each run took, in microseconds, shortest first.
    took: Vec<i64>,
}

pub(crate) async fn flow(scene: &CommandContext<'_>, load: &BenchLoad, store: Option<BenchStore>) -> Outcome<ExitCode> {
    let mut config = scene.loaded.config.clone();
    select_store(&mut config, store)?;
    let home = DataFolder::lock(&config.data_dir)?;
    home.remove_scratch()?;
    let ambient = Ambient::new();
    let (setting, measured) = measure_on(&config, &ambient, load, None).await?;
    let limited = match load.limit {
        None => None,
        limit => Some(measure_on(&config, &ambient, load, limit).await?.1),
    };
    let BenchLoad { runs, concurrency, finished, waiting, .. } = *load;
    let (per_second, p50, p99) = (measured.per_second(), measured.millis_at(0.5), measured.millis_at(0.99));
    let ratio = limited.as_ref().map(|limited| limited.per_second() / per_second.max(f64::EPSILON));
    let text = if scene.json {
        let limited = limited.as_ref().map(|limited| {
            let (p50, p99) = (limited.millis_at(0.5), limited.millis_at(0.99));
            json!({"per_s": limited.per_second(), "p50_ms": p50, "p99_ms": p99, "ratio": ratio})
        });
        let report = json!({
            "record_store": setting.record_store, "fsync": setting.fsync, "lanes": setting.lanes, "runs": runs,
            "concurrency": concurrency, "steps": 3, "per_s": per_second, "p50_ms": p50, "p99_ms": p99,
            "finished_before": finished, "waiting": waiting, "bytes_per_waiting_run": measured.waiting_bytes,
            "limited": limited,
        });
        report.to_string() + "\n"
    } else {
        let disk = if setting.fsync { "each step on the disk" } else { "STEPS DO NOT WAIT FOR THE DISK" };
        let waits =
            measured.waiting_bytes.map(|bytes| format!("{waiting} runs wait, {bytes:.0} bytes of memory each\n"));
        let limited = limited.zip(ratio).map(|(limited, ratio)| {
            let (p50, p99) = (limited.millis_at(0.5), limited.millis_at(0.99));
            format!(
                "with a limit: {} runs/s, p50 {p50:.2} ms, p99 {p99:.2} ms, ratio {ratio:.2}\n",
                limited.per_second()
            )
        });
        format!(
            "{}, {disk}\n{runs} runs of three steps, {concurrency} at a time: {per_second} runs/s, p50 {p50:.2} ms, p99 {p99:.2} ms\n{}{}",
            setting.record_store,
            waits.unwrap_or_default(),
            limited.unwrap_or_default()
        )
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

impl FlowMeasurement {
    fn per_second(&self) -> f64 {
        (self.took.len() as f64 / self.seconds.max(f64::EPSILON)).round()
    }

    /// How long a run took that is slower than this part of all.
    fn millis_at(&self, part: f64) -> f64 {
        let index = (self.took.len().saturating_sub(1) as f64 * part) as usize;
        self.took.get(index).map_or(0.0, |micros| *micros as f64 / 1_000.0)
    }
}

/// Measures on a store of its own.
async fn measure_on(
    config: &Config,
    ambient: &Ambient,
    load: &BenchLoad,
    limit: Option<BenchLimit>,
) -> Outcome<(BenchConditions, FlowMeasurement)> {
    let bench = FlowBench::open(config, ambient, limit).await?;
    let setting = bench.setting;
    let measured = measure(&bench.flow, ambient, load).await;
    bench.close().await;
    Ok((setting, measured.map_err(|error| Failure::new(Code::Internal, error.to_string()))?))
}

pub(super) fn select_store(config: &mut Config, store: Option<BenchStore>) -> Outcome<()> {
    match store {
        Some(BenchStore::Sqlite) => config.database_url = None,
        Some(BenchStore::Postgres) if config.database_url.is_none() => {
            let failure = Failure::new(Code::ConfigInvalid, "no PostgreSQL is configured");
            return Err(failure.hint("set CHIMERA_DATABASE_URL"));
        }
        _ => {}
    }
    Ok(())
}

/// Three steps, each using the output of the previous one.
pub(crate) fn workflow() -> Value {
    let step =
        |id: &str, value: &str| json!({"id": id, "type": "function", "fn": "local.echo", "inputs": {"value": value}});
    json!({
        "air_version": "1.0",
        "workflow_id": "three",
        "nodes": [
            step("first", "${inputs.n}"),
            step("second", "${nodes.first.outputs.value}"),
            step("third", "${nodes.second.outputs.value}"),
        ],
        "edges": [{"from": "first", "to": "second"}, {"from": "second", "to": "third"}],
    })
}

async fn measure(flow: &Flow, ambient: &Ambient, load: &BenchLoad) -> Result<FlowMeasurement, EngineError> {
    let BenchLoad { runs, concurrency, finished, waiting, .. } = *load;
    let bench = ClosedLoop { flow: flow.clone(), permit: operator(), clock: Arc::clone(&ambient.clock) };
    flow.workflows().apply(&bench.permit, "three", &workflow().to_string()).await?;
    // Warm up caches and prepared statements.
    bench.drive(runs.min(500), concurrency, Level::ExecuteSilent).await?;
    bench.drive(finished, FILL_CONCURRENCY, Level::ExecuteSilent).await?;
    let before = resident_bytes();
    bench.drive(waiting, FILL_CONCURRENCY, Level::Ask).await?;
    let waiting_bytes = (waiting > 0).then(|| resident_bytes().saturating_sub(before) as f64 / waiting as f64);
    let began = ambient.clock.steady().micros();
    let mut took = bench.drive(runs, concurrency, Level::ExecuteSilent).await?;
    let seconds = (ambient.clock.steady().micros() - began) as f64 / 1e6;
    took.sort_unstable();
    Ok(FlowMeasurement { waiting_bytes, seconds, took })
}

/// Resident memory of this process.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = status.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * PAGE_BYTES
}

/// Starts the next run whenever one ends.
#[derive(Clone)]
struct ClosedLoop {
    flow: Flow,
    permit: Permit,
    clock: Arc<dyn Clock>,
}

impl ClosedLoop {
    /// How long each run took, in microseconds.
    async fn drive(&self, runs: usize, concurrency: usize, level: Level) -> Result<Vec<i64>, EngineError> {
        let next = Arc::new(AtomicUsize::new(0));
        let workers: Vec<_> = (0..concurrency.min(runs))
            .map(|_| {
                let (bench, next) = (self.clone(), Arc::clone(&next));
                tokio::spawn(async move {
                    let mut took = Vec::new();
                    loop {
                        let n = next.fetch_add(1, Ordering::Relaxed);
                        if n >= runs {
                            return Ok::<_, EngineError>(took);
                        }
                        let began = bench.clock.steady().micros();
                        bench.one(n, level).await?;
                        took.push(bench.clock.steady().micros() - began);
                    }
                })
            })
            .collect();
        let mut took = Vec::with_capacity(runs);
        for worker in workers {
            let worker =
                worker.await.map_err(|_| EngineError::refused(Code::Internal, "a worker of the benchmark broke"))?;
            took.extend(worker?);
        }
        Ok(took)
    }

    async fn one(&self, n: usize, level: Level) -> Result<(), EngineError> {
        let ask = StartRun { level, ..StartRun::of("three", json!({ "n": n })) };
        let mut started = flow::start(&self.flow, &self.permit, ask).await?;
        let progress = started.progress.wait_for(|progress| progress.is_resting).await.map(|progress| progress.status);
        match progress {
            Ok(status) if status == RunStatus::Completed || level == Level::Ask => Ok(()),
            _ => Err(EngineError::refused(Code::Internal, "a run of the benchmark did not complete")),
        }
    }
}
