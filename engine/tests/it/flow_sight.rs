//! Visibility of runs: events without gaps, and no tenant sees another's.

use chimera_core::access::Level;
use chimera_core::flow::run::RunStatus;
use chimera_core::flow::tables::RUNS;
use chimera_core::json::Digest32;
use chimera_core::secret::Secret;
use chimera_engine::access::Permit;
use chimera_engine::flow::{
    self, Decide, Decision, OutcomeReport, PatchRequest, ReplayOptions, RunFilter, RunKey, StartRun,
};
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{EngineFixture, chain, code_of, shown, stage, until, workflow};
use proptest::prelude::*;
use serde_json::{Value, json};
use sha2::Digest as _;
use uuid::Uuid;

const SILENT: Level = Level::ExecuteSilent;

/// Every event of a run, read in pages of this size.
async fn paged(stage: &EngineFixture, run: Uuid, page: usize) -> Vec<Value> {
    let mut events: Vec<Value> = Vec::new();
    loop {
        let after = events.last().map_or(0, |event| event["run_seq"].as_i64().unwrap());
        let more = flow::events(&stage.flow, &stage.permit("admin"), run, after, page).await.unwrap();
        if more.is_empty() {
            return events;
        }
        events.extend(more.into_iter().map(shown));
    }
}

#[tokio::test(start_paused = true)]
async fn events_are_complete_and_in_order_on_pages_of_any_size() {
    let stage = stage(1).open().await;
    let air = workflow("w")
        .function("a", "again", json!({}))
        .map("m", json!([1, 2, 3]), "pure", json!({"n": "${item}"}))
        .in_parallel(2)
        .node(json!({"id": "ask", "type": "hitl"}))
        .edge("a", "m")
        .edge("m", "ask");
    let run = stage.run(&air, SILENT).await;
    stage.approve("user_ann", run).await;
    stage.ended(run).await;
    let all = paged(&stage, run, 1_000).await;
    let numbers: Vec<i64> = all.iter().map(|event| event["run_seq"].as_i64().unwrap()).collect();
    assert_eq!(numbers, (1..=i64::try_from(all.len()).unwrap()).collect::<Vec<_>>());
    let words: Vec<_> = all.iter().map(|event| event["event_type"].as_str().unwrap()).collect();
    assert_eq!((words.first(), words.last()), (Some(&"run.started"), Some(&"run.completed")));
    assert_eq!(words.iter().filter(|word| **word == "step.completed").count(), 6);
    for size in [1, 2, 3, 7] {
        assert_eq!(paged(&stage, run, size).await, all);
    }
}

#[tokio::test(start_paused = true)]
async fn events_have_no_gap_when_a_run_moves_to_another_lane() {
    let first = stage(1).open().await;
    let air = chain("w", &[("a", "again"), ("b", "again")]);
    let run = first.run(&air, Level::Ask).await;
    first.approve("user_ann", run).await;
    first.until(run, |shown| shown["approvals"][0]["node_id"] == "b").await;
    first.flow.stop();
    // The lane of a process that crashed is not reused at once: the next process gets another.
    let records = std::sync::Arc::new(first.records.second_node());
    let second = stage(1).world(first.world.clone()).open_on(records).await;
    second.approve("user_ann", run).await;
    second.ended(run).await;
    let all = paged(&second, run, 2).await;
    let mut lanes: Vec<_> = all.iter().map(|event| event["lane"].as_i64().unwrap()).collect();
    lanes.dedup();
    assert_eq!(lanes.len(), 2, "{all:#?}");
    let numbers: Vec<i64> = all.iter().map(|event| event["run_seq"].as_i64().unwrap()).collect();
    assert_eq!(numbers, (1..=i64::try_from(all.len()).unwrap()).collect::<Vec<_>>());
}

/// CORE-138, CORE-139, CORE-140
#[tokio::test(start_paused = true)]
async fn failed_runs_are_listed_and_their_steps_tell_what_was_done() {
    let stage = stage(1).tool(broken()).open().await;
    let good = stage.run(&chain("good", &[("a", "again")]), SILENT).await;
    let bad = stage.run(&chain("bad", &[("a", "again"), ("b", "broken"), ("c", "again")]), SILENT).await;
    stage.ended(good).await;
    stage.ended(bad).await;
    let filter = RunFilter { status: Some(RunStatus::Failed), limit: 10, ..RunFilter::default() };
    let listed = shown(flow::list_runs(&stage.flow, &stage.permit("admin"), filter).await.unwrap());
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    assert_eq!(listed["items"][0]["run_id"], json!(bad));
    let steps = stage.steps(bad).await;
    let calls: Vec<_> = steps.as_array().unwrap().iter().map(|step| step["tool_calls"][0]["outcome"].clone()).collect();
    assert_eq!(calls, [json!("succeeded"), json!("failed"), Value::Null]);
    assert_eq!(steps[0]["tool_calls"][0]["tool_output"]["tool"], "again");
}

fn broken() -> std::sync::Arc<dyn chimera_engine::flow::port::Tool> {
    use chimera_core::error::Code;
    use chimera_core::tool::EffectKind;
    let no = |_: &_, _: &Value| Err(chimera_engine::flow::port::ToolError::not_sent(Code::ValidationFailed, "no"));
    chimera_testkit::flow::ScriptedTool::new("broken", EffectKind::Write).answers(no).build()
}

/// CORE-048, CORE-054
#[tokio::test(start_paused = true)]
async fn a_key_is_one_actors_own_and_never_shows_anothers_run() {
    let stage = stage(1).open().await;
    stage.apply(&chain("w", &[("a", "pure")])).await;
    let text = chain("w", &[("a", "pure")]).document().to_string();
    stage.flow.workflows().apply(&stage.permit_of("other", "admin"), "w", &text).await.unwrap();
    let seal = Secret::new("the seal");
    let key = |permit: &Permit| RunKey::new(&seal, permit, "k").unwrap();
    let ask = |permit: &Permit| StartRun { idempotency_key: Some(key(permit)), ..StartRun::of("w", json!({})) };
    let people = [("acme", "user_ann"), ("acme", "user_bob"), ("other", "user_ann")];
    let mut runs = Vec::new();
    for (tenant, actor) in people {
        let permit = stage.permit_of(tenant, actor);
        runs.push(flow::start(&stage.flow, &permit, ask(&permit)).await.unwrap().run_id);
    }
    for ((tenant, actor), run) in people.iter().zip(&runs) {
        let permit = stage.permit_of(tenant, actor);
        let refused = flow::start(&stage.flow, &permit, ask(&permit)).await.err().unwrap().body();
        assert_eq!((refused.code.as_str(), &refused.details["run_id"]), ("CONFLICT_IDEMPOTENCY", &json!(run)));
        assert_eq!(flow::find_run_by_key(&stage.flow, &permit, &key(&permit)).await.unwrap().unwrap().id, *run);
    }
    assert_eq!(stage.rows(&RUNS).len(), 3);
    let ann = stage.permit("user_ann");
    for said in ["", &"k".repeat(257), "a\0"] {
        assert!(RunKey::new(&seal, &ann, said).is_err(), "{said:?}");
    }
}

/// Knowing another actor's name and key is not enough to claim both of its forms.
#[tokio::test(start_paused = true)]
async fn nobody_takes_the_key_that_another_would_get() {
    let stage = stage(1).open().await;
    stage.apply(&chain("w", &[("a", "pure")])).await;
    let seal = Secret::new("the seal");
    let start = async |actor: &str, said: &str| {
        let permit = stage.permit(actor);
        let key = RunKey::new(&seal, &permit, said).unwrap();
        flow::start(&stage.flow, &permit, StartRun { idempotency_key: Some(key), ..StartRun::of("w", json!({})) }).await
    };
    let guessed = format!("own:{}", hex::encode(sha2::Sha256::digest("acme\0user_ann\0order-17")));
    for said in ["order-17", guessed.as_str()] {
        start("user_bob", said).await.unwrap();
    }
    let run = start("user_ann", "order-17").await.unwrap().run_id;
    let again = start("user_ann", "order-17").await.err().unwrap().body();
    assert_eq!((again.code.as_str(), &again.details["run_id"]), ("CONFLICT_IDEMPOTENCY", &json!(run)));
    let rows = stage.rows(&RUNS);
    let kept: Vec<&str> = rows.iter().map(|row| row.text("idempotency_key")).collect();
    assert!(!kept.contains(&guessed.as_str()), "nobody says such a key, and nobody gets one: {kept:?}");
    assert_eq!(kept.iter().filter(|key| key.starts_with("own:")).count(), 2, "{kept:?}");
    for said in [guessed.as_str(), "order-17"] {
        assert_eq!(start("user_bob", said).await.err().unwrap().body().code, "CONFLICT_IDEMPOTENCY", "{said}");
    }
    assert_eq!(stage.rows(&RUNS).len(), 3);
}

/// What one tenant attempts on another tenant's run.
async fn intrude(stage: &EngineFixture, tenant: &str, run: Uuid, step: Uuid, digest: Digest32) -> Vec<String> {
    let (flow, permit) = (&stage.flow, stage.permit_of(tenant, "admin"));
    let decide = |digest| Decide { run, decision: Decision::Approve, approval: None, step: None, digest, reason: None };
    let patch = json!({
        "patch_version": "0.1", "justification": "x", "add_edges": [{"from": "CURRENT_NODE", "to": "x"}],
        "add_nodes": [{"id": "x", "type": "function", "fn": "pure", "inputs": {}}],
    });
    let replay =
        chimera_core::flow::run::Replay { of: run, mode: chimera_core::flow::run::ReplayMode::Freeze, from: None };
    vec![
        code_of(flow::show_run(flow, &permit, run).await),
        code_of(flow::list_steps(flow, &permit, run, 10, None).await),
        code_of(flow::find_step(flow, &permit, run, "a").await),
        code_of(flow::cancel(flow, &permit, run, None).await),
        code_of(flow::pause(flow, &permit, run).await),
        code_of(flow::decide(flow, &permit, decide(None)).await),
        code_of(flow::decide(flow, &permit, decide(Some(digest))).await),
        code_of(flow::edit_step(flow, &permit, run, step, json!({})).await),
        code_of(flow::report_outcome(flow, &permit, run, OutcomeReport::happened(step, None)).await),
        code_of(flow::rollback(flow, &permit, run, None, None).await),
        code_of(flow::mark_rolled_back(flow, &permit, run, None).await),
        code_of(flow::patch(flow, &permit, PatchRequest::new(run, patch)).await),
        code_of(flow::withdraw_patch(flow, &permit, run, 1).await),
        code_of(flow::replay(flow, &permit, replay, ReplayOptions::default()).await),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn tenants_never_see_each_others_runs(seed in any::<u64>(), levels in prop::collection::vec((0..2_usize, 0..4_usize), 1..6)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async move {
            let stage = stage(seed).open().await;
            let tenants = ["acme", "other"];
            let text = chain("w", &[("a", "again"), ("b", "pure")]).document().to_string();
            for tenant in tenants {
                stage.flow.workflows().apply(&stage.permit_of(tenant, "admin"), "w", &text).await.unwrap();
            }
            let all = [Level::Ask, Level::Draft, Level::ExecuteNotify, Level::ExecuteSilent];
            let mut runs: Vec<(usize, Uuid)> = Vec::new();
            for (tenant, level) in levels {
                let ask = StartRun { level: all[level], ..StartRun::of("w", json!({})) };
                let started = flow::start(&stage.flow, &stage.permit_of(tenants[tenant], "user_ann"), ask).await.unwrap();
                runs.push((tenant, started.run_id));
            }
            until("no run is driven", || stage.flow.active_runs() == 0).await;
            for (tenant, run) in &runs {
                let (own, foreign) = (stage.permit_of(tenants[*tenant], "admin"), tenants[1 - *tenant]);
                let before = shown(flow::show_run(&stage.flow, &own, *run).await.unwrap());
                let hex = before["approvals"][0]["digest"].as_str().map(str::to_owned).unwrap_or_else(|| "00".repeat(32));
                let digest = Digest32::from_hex(&hex).unwrap();
                let step = before["approvals"][0]["step_id"].as_str().and_then(|id| Uuid::parse_str(id).ok()).unwrap_or_default();
                let codes = intrude(&stage, foreign, *run, step, digest).await;
                assert!(codes.iter().all(|code| code == "NOT_FOUND"), "{codes:?}");
                let stranger = stage.permit_of(foreign, "admin");
                assert!(flow::events(&stage.flow, &stranger, *run, 0, 1_000).await.unwrap().is_empty());
                assert_eq!(shown(flow::show_run(&stage.flow, &own, *run).await.unwrap()), before, "nothing of it changed");
            }
            for (at, tenant) in tenants.iter().enumerate() {
                let filter = RunFilter { limit: 100, ..RunFilter::default() };
                let listed = shown(flow::list_runs(&stage.flow, &stage.permit_of(tenant, "admin"), filter).await.unwrap());
                assert_eq!(listed["items"].as_array().unwrap().len(), runs.iter().filter(|(owner, _)| *owner == at).count());
            }
        });
    }
}
