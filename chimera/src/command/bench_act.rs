//! `chimera bench act`: measures signed requests that each run one step, compared with the same runs on the
//! engine alone.
//!
//! A request passes everything but the socket: token, signature, freshness, rate, schema, idempotency key,
//! plan, scopes, risk, level, run, result. Both sides alternate on one store, so that a slow disk or a noisy
//! neighbour slows both. Bodies and signatures are made before the clock starts.

use super::bench_flow::select_store;
use super::{CommandContext, print};
use crate::cli::BenchStore;
use crate::compose::{Ambient, FlowBench, operator};
use crate::data_folder::DataFolder;
use crate::failure::{Failure, Outcome};
use bytes::Bytes;
use chimera_api::{Edge, InProcessClient};
use chimera_core::access::Level;
use chimera_core::error::Code;
use chimera_core::flow::run::RunStatus;
use chimera_engine::access::Permit;
use chimera_engine::flow::{self, Flow, StartRun};
use serde_json::json;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How often the two sides take turns.
const TURNS: usize = 10;

/// The workflow: one step.
const ONE: &str = r#"{"air_version": "1.0", "workflow_id": "one", "edges": [], "nodes": [
    {"id": "only", "type": "function", "fn": "local.echo", "inputs": {"value": "${inputs.n}"}}]}"#;

#[derive(Clone)]
enum BenchTarget {
    /// Sends a signed request to the router.
    Door { direct: InProcessClient, token: Arc<str>, requests: Arc<[(Bytes, String)]> },
    /// Starts a run.
    Engine { flow: Flow, permit: Permit },
}

/// Microseconds in total and per request.
#[derive(Default)]
struct Timings {
    whole: i64,
    each: Vec<i64>,
}

pub(crate) async fn act(
    scene: &CommandContext<'_>,
    runs: usize,
    concurrency: usize,
    store: Option<BenchStore>,
) -> Outcome<ExitCode> {
    let mut config = scene.loaded.config.clone();
    select_store(&mut config, store)?;
    let home = DataFolder::lock(&config.data_dir)?;
    home.remove_scratch()?;
    let ambient = Ambient::new();
    let bench = FlowBench::open(&config, &ambient, None).await?;
    let setting = bench.setting;
    let measured = measure(&bench, &ambient, runs, concurrency).await;
    bench.close().await;
    let (mut door, mut engine) = measured?;
    let [through, alone] = [&mut door, &mut engine].map(|took| {
        took.each.sort_unstable();
        let at = |part: f64| {
            let index = (took.each.len().saturating_sub(1) as f64 * part) as usize;
            took.each.get(index).map_or(0.0, |micros| *micros as f64 / 1_000.0)
        };
        let per_second = runs as f64 / (took.whole as f64 / 1e6).max(f64::EPSILON);
        (per_second.round(), at(0.5), at(0.99))
    });
    let ratio = (through.0 / alone.0.max(1.0) * 1_000.0).round() / 1_000.0;
    let side = |(per_second, p50, p99): (f64, f64, f64)| json!({"per_s": per_second, "p50_ms": p50, "p99_ms": p99});
    print(&if scene.json {
        let report = json!({
            "record_store": setting.record_store, "fsync": setting.fsync, "lanes": setting.lanes, "runs": runs,
            "concurrency": concurrency, "steps": 1, "act": side(through), "flow": side(alone), "ratio": ratio,
        });
        format!("{report}\n")
    } else {
        let disk = if setting.fsync { "each step on the disk" } else { "STEPS DO NOT WAIT FOR THE DISK" };
        let line = |name: &str, (per_second, p50, p99): (f64, f64, f64)| {
            format!("{name:<21} {per_second:>8}/s  p50 {p50:.2} ms  p99 {p99:.2} ms\n")
        };
        format!(
            "{}, {disk}\n{runs} of each, one step, {concurrency} at a time\n{}{}ratio {ratio:.2}\n",
            setting.record_store,
            line("through the door", through),
            line("the engine alone", alone)
        )
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn measure(bench: &FlowBench, ambient: &Ambient, runs: usize, concurrency: usize) -> Outcome<(Timings, Timings)> {
    let permit = operator();
    bench.flow.workflows().apply(&permit, "one", ONE).await?;
    let edge = Edge::new(ambient.clock.clone(), ambient.random.clone())
        .with_flow(bench.flow.clone())
        .with_actions(bench.actions.clone());
    let direct = InProcessClient::new(chimera_api::router(edge));
    let token: Arc<str> = crate::access::token(bench.actions.access(), &bench.actor.actor)?.into();
    let warm = runs.min(500);
    let request = |n: usize| {
        let body = json!({
            "workflow_id": "one", "inputs": {"n": n}, "idempotency_key": format!("bench_{n}"), "wait": 10,
        });
        let body = body.to_string();
        let signature = crate::access::sign(&bench.actor.hmac_key, &body);
        (Bytes::from(body), signature)
    };
    let requests: Arc<[(Bytes, String)]> = (0..warm + runs).map(request).collect();
    let sides =
        [BenchTarget::Door { direct, token, requests }, BenchTarget::Engine { flow: bench.flow.clone(), permit }];
    let mut took = [Timings::default(), Timings::default()];
    // Warm up caches and prepared statements.
    for side in &sides {
        drive(side, ambient, 0..warm, concurrency).await?;
    }
    for turn in 0..TURNS {
        let part = warm + runs * turn / TURNS..warm + runs * (turn + 1) / TURNS;
        // The order alternates, too.
        for at in if turn % 2 == 0 { [0, 1] } else { [1, 0] } {
            let Timings { whole, each } = drive(&sides[at], ambient, part.clone(), concurrency).await?;
            took[at].whole += whole;
            took[at].each.extend(each);
        }
    }
    let [door, engine] = took;
    Ok((door, engine))
}

/// A closed loop: each request that ends is followed by the next.
async fn drive(
    side: &BenchTarget,
    ambient: &Ambient,
    part: std::ops::Range<usize>,
    concurrency: usize,
) -> Outcome<Timings> {
    let next = Arc::new(AtomicUsize::new(part.start));
    let began = ambient.clock.steady().micros();
    let workers: Vec<_> = (0..concurrency.min(part.len()))
        .map(|_| {
            let (side, clock, next, end) = (side.clone(), Arc::clone(&ambient.clock), Arc::clone(&next), part.end);
            tokio::spawn(async move {
                let mut each = Vec::new();
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= end {
                        return Ok::<_, Failure>(each);
                    }
                    let began = clock.steady().micros();
                    one(&side, n).await?;
                    each.push(clock.steady().micros() - began);
                }
            })
        })
        .collect();
    let mut each = Vec::with_capacity(part.len());
    for worker in workers {
        each.extend(worker.await.map_err(|_| broken("a worker of the benchmark broke"))??);
    }
    Ok(Timings { whole: ambient.clock.steady().micros() - began, each })
}

async fn one(side: &BenchTarget, n: usize) -> Outcome {
    match side {
        BenchTarget::Door { direct, token, requests } => {
            let (body, signature) = requests.get(n).ok_or_else(|| broken("there is no such request"))?;
            let answer = direct.post("/act", token, signature, body.clone()).await;
            let done = |body: &[u8]| body.windows(11).any(|part| part == br#""completed""#);
            match answer {
                Some((200, body)) if done(&body) => Ok(()),
                Some((status, body)) => {
                    Err(broken(&format!("the door answered {status}: {}", String::from_utf8_lossy(&body))))
                }
                None => Err(broken("the door gave no answer")),
            }
        }
        BenchTarget::Engine { flow, permit } => {
            let ask = StartRun { level: Level::ExecuteNotify, ..StartRun::of("one", json!({ "n": n })) };
            let mut started = flow::start(flow, permit, ask).await?;
            match started.progress.wait_for(|progress| progress.is_resting).await.map(|progress| progress.status) {
                Ok(RunStatus::Completed) => Ok(()),
                _ => Err(broken("a run of the benchmark did not complete")),
            }
        }
    }
}

fn broken(what: &str) -> Failure {
    Failure::new(Code::Internal, what)
}
