//! `chimera bench flow`: how many runs of three durable steps the engine does, and how fast one is.
//!
//! A closed loop: so many runs are under way, and each that ends is followed by the next. Each
//! step's result is on the disk before the next step begins.

use super::{Scene, print};
use crate::cli::BenchStore;
use crate::compose::{Ambient, DEFAULT_TENANT, FlowBench};
use crate::config::Config;
use crate::failure::{Failure, Outcome};
use crate::home::Home;
use chimera_core::access::Level;
use chimera_core::error::Code;
use chimera_core::flow::run::RunStatus;
use chimera_engine::access::{Doorkeeper, Permit};
use chimera_engine::flow::{Flow, FlowError, StartRun};
use chimera_engine::port::Clock;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What was measured.
struct Measured {
    runs: usize,
    seconds: f64,
    /// How long each run took, in microseconds, shortest first.
    took: Vec<i64>,
}

pub(crate) async fn flow(
    scene: &Scene<'_>,
    runs: usize,
    concurrency: usize,
    store: Option<BenchStore>,
) -> Outcome<ExitCode> {
    let mut config = scene.loaded.config.clone();
    choose(&mut config, store)?;
    let home = Home::take(&config.data_dir)?;
    home.remove_scratch()?;
    let ambient = Ambient::new();
    let bench = FlowBench::open(&config, &ambient).await?;
    let setting = bench.setting;
    let measured = measure(&bench.flow, &ambient, runs, concurrency).await;
    bench.close().await;
    let measured = measured.map_err(|error| Failure::new(Code::Internal, error.to_string()))?;
    let per_second = (measured.runs as f64 / measured.seconds.max(f64::EPSILON)).round();
    let at = |part: f64| {
        let index = (measured.took.len().saturating_sub(1) as f64 * part) as usize;
        measured.took.get(index).map_or(0.0, |micros| *micros as f64 / 1_000.0)
    };
    let (p50, p99) = (at(0.5), at(0.99));
    let text = if scene.json {
        let report = json!({
            "record_store": setting.record_store, "fsync": setting.fsync, "lanes": setting.lanes, "runs": measured.runs,
            "concurrency": concurrency, "steps": 3, "per_s": per_second, "p50_ms": p50, "p99_ms": p99,
        });
        report.to_string() + "\n"
    } else {
        let disk = if setting.fsync { "each step on the disk" } else { "STEPS DO NOT WAIT FOR THE DISK" };
        format!(
            "{}, {disk}\n{} runs of three steps, {concurrency} at a time: {per_second} runs/s, p50 {p50:.2} ms, p99 {p99:.2} ms\n",
            setting.record_store, measured.runs
        )
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn choose(config: &mut Config, store: Option<BenchStore>) -> Outcome<()> {
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

/// Three steps, each of which works on what the one before gave.
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

async fn measure(flow: &Flow, ambient: &Ambient, runs: usize, concurrency: usize) -> Result<Measured, FlowError> {
    let permit = Doorkeeper::operator(DEFAULT_TENANT);
    flow.workflows().apply(&permit, "three", &workflow().to_string()).await?;
    // A first handful warms caches and the store's statements.
    drive(flow, &permit, &ambient.clock, runs.min(500), concurrency).await?;
    let began = ambient.clock.now().micros();
    let mut took = drive(flow, &permit, &ambient.clock, runs, concurrency).await?;
    let seconds = (ambient.clock.now().micros() - began) as f64 / 1e6;
    took.sort_unstable();
    Ok(Measured { runs, seconds, took })
}

async fn drive(
    flow: &Flow,
    permit: &Permit,
    clock: &Arc<dyn Clock>,
    runs: usize,
    concurrency: usize,
) -> Result<Vec<i64>, FlowError> {
    let next = Arc::new(AtomicUsize::new(0));
    let workers: Vec<_> = (0..concurrency.min(runs))
        .map(|_| {
            let (flow, permit, clock, next) = (flow.clone(), permit.clone(), Arc::clone(clock), Arc::clone(&next));
            tokio::spawn(async move {
                let mut took = Vec::new();
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= runs {
                        return Ok::<_, FlowError>(took);
                    }
                    let began = clock.now().micros();
                    one(&flow, &permit, n).await?;
                    took.push(clock.now().micros() - began);
                }
            })
        })
        .collect();
    let mut took = Vec::with_capacity(runs);
    for worker in workers {
        let worker = worker.await.map_err(|_| FlowError::refused(Code::Internal, "a worker of the benchmark broke"))?;
        took.extend(worker?);
    }
    Ok(took)
}

async fn one(flow: &Flow, permit: &Permit, n: usize) -> Result<(), FlowError> {
    let ask = StartRun { level: Level::ExecuteSilent, ..StartRun::of("three", json!({ "n": n })) };
    let mut started = flow.start(permit, ask).await?;
    let standing = started.standing.wait_for(|standing| standing.rests).await.map(|standing| *standing);
    match standing {
        Ok(standing) if standing.status == RunStatus::Completed => Ok(()),
        _ => Err(FlowError::refused(Code::Internal, "a run of the benchmark did not complete")),
    }
}
