//! Runs with large values: their memory is bounded in total, and processing them blocks nobody.

use chimera_core::access::{Guest, Level, SharedResources};
use chimera_core::act::risk;
use chimera_core::flow::plan::Plan;
use chimera_core::flow::policy::{Action, Policy, PolicyVerdict};
use chimera_core::flow::risk::Score;
use chimera_core::flow::tables::RUNS;
use chimera_core::limits;
use chimera_core::tool::{EffectKind, Spec};
use chimera_engine::access::port::Tenancy;
use chimera_engine::flow::{self, Flow, RunLimits, StartRun};
use chimera_testkit::flow::{Air, EngineFixture, ScriptedTool, chain, stage, until, workflow};
use serde_json::{Value, json};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use uuid::Uuid;

const SILENT: Level = Level::ExecuteSilent;
const MB: usize = 1024 * 1024;
/// The number of values in a large output: about two megabytes of memory.
const VALUES: usize = 20_000;
const OUTPUT_BYTES: usize = (VALUES + 3) * limits::JSON_VALUE_MEMORY_BYTES;
const RUNS_AT_ONCE: usize = 10;

fn many() -> Value {
    json!({"many": vec![1; VALUES]})
}

/// A tool that returns many values, and records how much memory all runs held at each call.
fn noting(most: &Arc<AtomicUsize>, flow: &Arc<OnceLock<Flow>>) -> ScriptedTool {
    let (most, flow) = (Arc::clone(most), Arc::clone(flow));
    ScriptedTool::new("many", EffectKind::Read).answers(move |_, _| {
        most.fetch_max(flow.get().map_or(0, Flow::memory_held), Ordering::SeqCst);
        Ok(many())
    })
}

fn steps(count: usize) -> Air {
    let names: Vec<String> = (0..count).map(|n| format!("n{n}")).collect();
    let nodes: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "many")).collect();
    chain("w", &nodes)
}

async fn begin(stage: &EngineFixture, workflow: &str) -> Uuid {
    stage.start(StartRun { level: SILENT, ..StartRun::of(workflow, json!({})) }).await
}

#[tokio::test(start_paused = true)]
async fn runs_that_hold_much_wait_in_the_store_and_all_end() {
    let (most, flow) = (Arc::default(), Arc::default());
    let places = RunLimits { memory_bytes: 8 * MB, ..RunLimits::default() };
    let stage = stage(1).run_limits(places).tool(noting(&most, &flow).build()).open().await;
    assert!(flow.set(stage.flow.clone()).is_ok());
    stage.apply(&steps(9)).await;
    let mut runs = Vec::new();
    for _ in 0..RUNS_AT_ONCE {
        runs.push(begin(&stage, "w").await);
    }
    for run in &runs {
        assert_eq!(stage.ended(*run).await["status"], "completed");
    }
    until("all are gone", || stage.flow.active_runs() == 0).await;
    // Each may have had one call in flight when the limit was reached.
    let most = most.load(Ordering::SeqCst);
    assert!(most <= 8 * MB + (RUNS_AT_ONCE + 9) * OUTPUT_BYTES, "{} MB at once", most / MB);
    assert_eq!(stage.flow.memory_held(), 0);
    assert!(stage.rows(&RUNS).iter().all(|row| row.get("owner_lane").is_null()));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_alone_goes_on_whatever_it_holds() {
    let many = ScriptedTool::new("many", EffectKind::Read).answers(|_, _| Ok(many()));
    let places = RunLimits { memory_bytes: MB, ..RunLimits::default() };
    let stage = stage(1).run_limits(places).tool(many.build()).open().await;
    let run = stage.run(&steps(5), SILENT).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

/// Several tenants that share all tools.
struct SeveralTenants;

impl Tenancy for SeveralTenants {
    fn guest(&self, tenant: &str) -> Option<Arc<Guest>> {
        let shared = SharedResources { tools: vec!["*".to_owned()], ..SharedResources::default() };
        Some(Arc::new(Guest { id: tenant.to_owned(), slug: tenant.to_owned(), shared }))
    }

    fn is_shared(&self) -> bool {
        true
    }
}

#[tokio::test(start_paused = true)]
async fn one_tenant_does_not_take_the_memory_of_another() {
    let (done, _) = watch::channel(false);
    let waits = done.subscribe();
    let hangs =
        ScriptedTool::new("hangs", EffectKind::Read).with_declaration(|declared| declared.timeout_ms = 3_600_000);
    let hangs = hangs.on_execute(move |_, _| {
        let mut waits = waits.clone();
        async move {
            let _ = waits.wait_for(|done| *done).await;
            Ok(json!({}))
        }
    });
    let many = ScriptedTool::new("many", EffectKind::Read).answers(|_, _| Ok(many()));
    let places = RunLimits { memory_bytes: 8 * MB, ..RunLimits::default() };
    let stage = stage(1)
        .run_limits(places)
        .tenancy(Arc::new(SeveralTenants))
        .tool(hangs.build())
        .tool(many.build())
        .open()
        .await;
    stage.apply(&chain("w", &[("a", "many"), ("b", "hangs")])).await;
    let ask = || StartRun { level: SILENT, ..StartRun::of("w", json!({})) };
    let mut runs = Vec::new();
    for _ in 0..RUNS_AT_ONCE {
        runs.push(begin(&stage, "w").await);
    }
    stage.pass(Duration::from_secs(1)).await;
    let air = steps(3);
    stage.flow.workflows().apply(&stage.permit_of("other", "admin"), "w", &air.document().to_string()).await.unwrap();
    let run = flow::start(&stage.flow, &stage.permit_of("other", "user_ann"), ask()).await.unwrap().run_id;
    stage.wait_for_in("other", run, |shown| shown["status"] == "completed").await;
    done.send_replace(true);
    for run in runs {
        assert_eq!(stage.ended(run).await["status"], "completed");
    }
}

/// Records whether a node was judged off the request threads: a thread may block nowhere else.
struct OffloadProbe(Arc<AtomicBool>);

impl Policy for OffloadProbe {
    fn evaluate(&self, action: &Action<'_>) -> PolicyVerdict {
        if action.node == "after" {
            let waits = catch_unwind(AssertUnwindSafe(|| Handle::current().block_on(async {})));
            self.0.store(waits.is_ok(), Ordering::SeqCst);
        }
        PolicyVerdict::Allow
    }

    fn score_call(&self, _: &Spec, _: &Value) -> Score {
        Score::default()
    }

    fn score(&self, plan: &Plan, tools: &[&Spec]) -> Score {
        risk::score_with(plan, tools)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_answer_is_taken_in_where_it_holds_up_nobody() {
    for (values, aside) in [(10, false), (VALUES, true)] {
        let placed = Arc::new(AtomicBool::new(!aside));
        let many =
            ScriptedTool::new("many", EffectKind::Read).answers(move |_, _| Ok(json!({"many": vec![1; values]})));
        let stage = stage(1).policy(OffloadProbe(Arc::clone(&placed))).tool(many.build()).open().await;
        let air = workflow("w").function("first", "many", json!({})).function("after", "many", json!({}));
        let run = stage.run(&air.edge("first", "after"), SILENT).await;
        assert_eq!(stage.ended(run).await["status"], "completed");
        assert_eq!(placed.load(Ordering::SeqCst), aside, "{values} values");
    }
}
