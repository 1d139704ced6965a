//! Calls that workers outside execute: claim, renew, complete, fail.

use chimera_core::access::{ActorEntry, Level};
use chimera_core::error::Code;
use chimera_core::flow::call::Sent;
use chimera_core::flow::run::{Replay, ReplayMode};
use chimera_core::flow::tables::{EffectRow, RunBrief, WORK_ITEMS, WorkItemRow};
use chimera_core::flow::work::WorkState;
use chimera_core::limits;
use chimera_core::record::StoredRow;
use chimera_core::tool::EffectKind;
use chimera_engine::EngineError;
use chimera_engine::access::Permit;
use chimera_engine::flow::work::{self, ClaimRequest, ClaimedCall, FailureReport, Lease, WorkFilter};
use chimera_engine::flow::{self, ReplayOptions, StartRun};
use chimera_testkit::flow::{EngineFixture, EngineSetup, ScriptedTool, TENANT, chain, code_of, id_of, stage, workflow};
use serde_json::{Value, json};
use std::time::Duration;
use uuid::Uuid;

pub(crate) const SILENT: Level = Level::ExecuteSilent;

/// A minute, in seconds.
pub(crate) const LEASE: u32 = 60;

/// Tools that workers execute: `look` reads, `put` is an idempotent write, `pay` a write that must not be repeated.
pub(crate) fn by_workers() -> EngineSetup {
    let tool = |name, effect, idempotent| {
        let scripted = ScriptedTool::new(name, effect).by_workers("desk", LEASE).with_declaration(|declared| {
            declared.timeout_ms = 3_600_000;
            declared.metadata.idempotent = idempotent;
            declared.metadata.dry_run_supported = false;
            declared.output = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
        });
        scripted.build()
    };
    stage(1).tool(tool("look", EffectKind::Read, true)).tool(tool("put", EffectKind::Write, true)).tool(tool(
        "pay",
        EffectKind::Write,
        false,
    ))
}

pub(crate) fn ask(limit: usize, wait_seconds: u32) -> ClaimRequest {
    ClaimRequest {
        queue: "desk".to_owned(),
        limit,
        worker: Some("box-7".to_owned()),
        wait_seconds,
        wait_max: Duration::MAX,
        claim_id: None,
    }
}

pub(crate) fn worker(stage: &EngineFixture) -> Permit {
    stage.permit("worker_1")
}

/// Claims the next call, and waits for it.
pub(crate) async fn claim(stage: &EngineFixture) -> ClaimedCall {
    let mut claimed = work::claim(&stage.flow, &worker(stage), &ask(1, 20)).await.expect("a claim");
    assert_eq!(claimed.len(), 1, "there is a call to claim");
    claimed.remove(0)
}

pub(crate) fn lease(claimed: &ClaimedCall) -> Lease {
    Lease { item: claimed.id, token: claimed.lease_token.clone() }
}

pub(crate) async fn complete(stage: &EngineFixture, claimed: &ClaimedCall, output: Value) -> Result<(), EngineError> {
    work::complete(&stage.flow, &worker(stage), &lease(claimed), output).await
}

pub(crate) fn failure(sent: Sent) -> FailureReport {
    FailureReport {
        code: Code::ExternalServiceUnavailable,
        message: "no paper".to_owned(),
        retryable: None,
        retry_after_seconds: None,
        sent,
    }
}

pub(crate) async fn fail(stage: &EngineFixture, claimed: &ClaimedCall, sent: Sent) -> Result<(), EngineError> {
    work::fail(&stage.flow, &worker(stage), &lease(claimed), failure(sent)).await
}

pub(crate) fn items(stage: &EngineFixture) -> Vec<WorkItemRow> {
    stage.rows(&WORK_ITEMS).into_iter().map(|row| WorkItemRow::decode(row).expect("an item")).collect()
}

pub(crate) async fn start(stage: &EngineFixture, tool: &str) -> Uuid {
    stage.run(&chain("w", &[("a", tool), ("b", "pure")]), SILENT).await
}

#[tokio::test(start_paused = true)]
async fn a_worker_executes_a_call_while_its_run_is_parked() {
    let stage = by_workers().open().await;
    let run = start(&stage, "pay").await;
    stage.flow.rest(run).await;
    stage.until(run, |shown| shown["status"] == "running").await;
    assert_eq!((stage.flow.active_runs(), stage.flow.calls_under_way()), (0, 0), "no place and no slot is held");
    let row: RunBrief = stage.records.list::<RunBrief>().into_iter().next().unwrap();
    assert!(row.owner_lane.is_none() && row.next_deadline.is_some(), "parked, with a deadline");

    let claimed = claim(&stage).await;
    assert_eq!((claimed.tool.as_str(), claimed.run_id, claimed.attempt), ("pay", run, 1));
    assert_eq!(claimed.input.value().unwrap(), json!({"n": "a"}));
    let effect: EffectRow = stage.records.list::<EffectRow>().into_iter().next().unwrap();
    assert_eq!(claimed.idempotency_key, effect.idempotency_key);
    let item = &items(&stage)[0];
    assert_eq!((item.claimed_by.as_deref(), item.worker.as_deref()), (Some("worker_1"), Some("box-7")));
    assert!(!format!("{item:?}").contains(&claimed.lease_token), "the token is not stored");

    complete(&stage, &claimed, json!({"n": 7})).await.unwrap();
    let ended = stage.ended(run).await;
    assert_eq!(ended["status"], "completed", "{ended:#}");
    assert_eq!(stage.step_statuses(run).await, "a=completed b=completed");
    assert_eq!(stage.steps(run).await[0]["outputs"]["n"], 7);
    let item = &items(&stage)[0];
    assert_eq!((item.state, item.input.is_none()), (WorkState::Done, true));
}

#[tokio::test(start_paused = true)]
async fn a_claim_waits_for_a_call_and_returns_without_one_in_the_end() {
    let stage = by_workers().open().await;
    let none = work::claim(&stage.flow, &worker(&stage), &ask(5, 3)).await.unwrap();
    assert!(none.is_empty());
    let (waiting, starting) = tokio::join!(claim(&stage), start(&stage, "look"));
    assert_eq!(waiting.run_id, starting);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_repeated_under_its_id_gets_the_same_calls() {
    let stage = by_workers().open().await;
    let run = start(&stage, "pay").await;
    stage.run(&chain("v", &[("a", "pay")]), SILENT).await;
    let under = |id: &str| ClaimRequest { claim_id: Some(id.repeat(10)), ..ask(1, 20) };
    let first = work::claim(&stage.flow, &worker(&stage), &under("abc")).await.unwrap().remove(0);
    let again = work::claim(&stage.flow, &worker(&stage), &under("abc")).await.unwrap().remove(0);
    assert_eq!((again.id, &again.lease_token, again.claims), (first.id, &first.lease_token, 1));
    let other = work::claim(&stage.flow, &worker(&stage), &under("xyz")).await.unwrap().remove(0);
    assert_ne!(other.id, first.id);
    let (colleague, at_once) = (stage.permit("worker_2"), ClaimRequest { wait_seconds: 0, ..under("abc") });
    let claimed = work::claim(&stage.flow, &colleague, &at_once).await;
    assert!(claimed.unwrap().is_empty(), "an id is its actor's own");
    complete(&stage, &again, json!({})).await.unwrap();
    complete(&stage, &other, json!({})).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
    let short = ClaimRequest { claim_id: Some("short".to_owned()), ..ask(1, 0) };
    assert_eq!(code_of(work::claim(&stage.flow, &worker(&stage), &short).await), "VALIDATION_FAILED");
}

#[tokio::test(start_paused = true)]
async fn urgent_calls_come_first_and_then_the_oldest() {
    let stage = by_workers().open().await;
    stage.apply(&chain("w", &[("a", "look")])).await;
    let mut runs = Vec::new();
    for priority in [5, 9, 5, 1] {
        runs.push(stage.start(StartRun { level: SILENT, priority, ..StartRun::of("w", json!({})) }).await);
        stage.step(runs[runs.len() - 1], "a", "running").await;
        stage.pass(Duration::from_millis(5)).await;
    }
    let first = work::claim(&stage.flow, &worker(&stage), &ask(3, 0)).await.unwrap();
    let order: Vec<Uuid> = first.iter().map(|claimed| claimed.run_id).collect();
    assert_eq!(order, [runs[3], runs[0], runs[2]]);
    assert_eq!(work::claim(&stage.flow, &worker(&stage), &ask(3, 0)).await.unwrap().len(), 1, "none is given twice");
}

#[tokio::test(start_paused = true)]
async fn only_workers_of_the_queue_and_the_tenant_get_its_calls() {
    let stage = by_workers().open().await;
    start(&stage, "pay").await;
    let claimed = claim(&stage).await;
    let other = stage.permit_of("other", "worker_1");
    assert!(work::claim(&stage.flow, &other, &ask(5, 0)).await.unwrap().is_empty());
    let refused = work::complete(&stage.flow, &other, &lease(&claimed), json!({})).await;
    assert_eq!(code_of(refused), "NOT_FOUND", "another tenant's item does not exist");

    let entry = ActorEntry { scopes: vec!["work.claim.post".to_owned()], ..ActorEntry::default_for("w2", TENANT) };
    let post = Permit::for_entry(entry);
    let refused = work::claim(&stage.flow, &post, &ask(1, 0)).await.unwrap_err().body();
    assert_eq!(
        (refused.code.as_str(), &refused.details["required_scope"]),
        ("RBAC_FORBIDDEN", &json!("work.claim.desk"))
    );
    assert_eq!(code_of(work::renew(&stage.flow, &post, &lease(&claimed)).await), "RBAC_FORBIDDEN");
    let ann = stage.permit("user_ann");
    assert_eq!(code_of(work::claim(&stage.flow, &ann, &ask(1, 0)).await), "RBAC_FORBIDDEN", "a person is no worker");
    let colleague = stage.permit("worker_2");
    let refused = work::complete(&stage.flow, &colleague, &lease(&claimed), json!({})).await;
    assert_eq!(code_of(refused), "LEASE_LOST", "the token alone is not enough");
    let wrong = Lease { token: "x".to_owned(), ..lease(&claimed) };
    assert_eq!(code_of(work::renew(&stage.flow, &worker(&stage), &wrong).await), "LEASE_LOST");
    for request in [ask(0, 0), ask(limits::WORK_CLAIM_ITEMS_MAX + 1, 0), ask(1, limits::WORK_WAIT_SECONDS_MAX + 1)] {
        assert_eq!(code_of(work::claim(&stage.flow, &worker(&stage), &request).await), "VALIDATION_FAILED");
    }
}

#[tokio::test(start_paused = true)]
async fn an_output_of_the_wrong_shape_is_refused_and_may_be_corrected() {
    let stage = by_workers().open().await;
    let run = start(&stage, "pay").await;
    let claimed = claim(&stage).await;
    let refused = complete(&stage, &claimed, json!({"n": "seven"})).await.unwrap_err().body();
    assert_eq!((refused.code.as_str(), &refused.details["faults"][0]["pointer"]), ("VALIDATION_FAILED", &json!("/n")));
    complete(&stage, &claimed, json!({"n": 7})).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn reporting_an_outcome_again_changes_nothing_and_another_one_is_refused() {
    let stage = by_workers().open().await;
    let run = start(&stage, "pay").await;
    let claimed = claim(&stage).await;
    complete(&stage, &claimed, json!({"n": 7})).await.unwrap();
    complete(&stage, &claimed, json!({"n": 7})).await.unwrap();
    assert_eq!(code_of(complete(&stage, &claimed, json!({"n": 8})).await), "LEASE_LOST");
    assert_eq!(code_of(fail(&stage, &claimed, Sent::No).await), "LEASE_LOST");
    assert_eq!(code_of(work::renew(&stage.flow, &worker(&stage), &lease(&claimed)).await), "LEASE_LOST");
    stage.ended(run).await;
    complete(&stage, &claimed, json!({"n": 7})).await.unwrap();
    let ends = stage.events(run).await.into_iter().filter(|event| event == "step.completed").count();
    assert_eq!(ends, 2, "one for each step");
}

#[tokio::test(start_paused = true)]
async fn a_failed_call_is_made_again_under_the_same_key_if_the_run_allows_it() {
    let stage = by_workers().open().await;
    let run = start(&stage, "pay").await;
    let first = claim(&stage).await;
    fail(&stage, &first, Sent::No).await.unwrap();
    let second = claim(&stage).await;
    assert_eq!((second.attempt, &second.idempotency_key), (2, &first.idempotency_key));
    assert_ne!(second.id, first.id);
    assert_eq!(code_of(complete(&stage, &first, json!({})).await), "LEASE_LOST");
    complete(&stage, &second, json!({})).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_no_retry_helps_fails_the_step() {
    let stage = by_workers().open().await;
    let run = start(&stage, "look").await;
    let claimed = claim(&stage).await;
    let failure = FailureReport { retryable: Some(false), ..failure(Sent::Maybe) };
    work::fail(&stage.flow, &worker(&stage), &lease(&claimed), failure).await.unwrap();
    let ended = stage.ended(run).await;
    assert_eq!((&ended["status"], &ended["error"]["message"]), (&json!("failed"), &json!("no paper")));
}

#[tokio::test(start_paused = true)]
async fn a_dry_call_and_a_replay_reach_no_worker() {
    let stage = by_workers().open().await;
    stage.apply(&chain("w", &[("a", "pay")])).await;
    let dry = stage.start(StartRun { level: SILENT, dry_run: true, ..StartRun::of("w", json!({})) }).await;
    assert_eq!(stage.ended(dry).await["status"], "completed");
    let own = workflow("own").function("a", "pay", json!({"dry_run": true}));
    let own = stage.run(&own, SILENT).await;
    assert_eq!(stage.ended(own).await["status"], "completed");
    assert!(items(&stage).is_empty(), "{:?}", items(&stage));

    let run = stage.start(StartRun { level: SILENT, ..StartRun::of("w", json!({})) }).await;
    complete(&stage, &claim(&stage).await, json!({"n": 7})).await.unwrap();
    stage.ended(run).await;
    let ann = stage.permit("user_ann");
    let replay = Replay { of: run, mode: ReplayMode::Freeze, from: None };
    let again = flow::replay(&stage.flow, &ann, replay, ReplayOptions::default()).await.unwrap().run_id;
    assert_eq!(stage.ended(again).await["status"], "completed");
    assert_eq!(items(&stage).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn every_item_of_a_map_is_a_call_and_at_l0_one_step_is_asked_for_at_a_time() {
    let stage = by_workers().open().await;
    let each = workflow("each").map("m", json!([1, 2, 3]), "look", json!({"i": "${item}"})).in_parallel(2);
    let run = stage.run(&each, SILENT).await;
    stage.step(run, "m", "running").await;
    for _ in 0..3 {
        complete(&stage, &claim(&stage).await, json!({"n": 1})).await.unwrap();
    }
    let ended = stage.ended(run).await;
    assert_eq!(ended["result"]["m"]["items"].as_array().map(Vec::len), Some(3), "{ended:#}");

    let two = workflow("two").function("a", "pay", json!({})).function("b", "pay", json!({}));
    let run = stage.run(&two, Level::Ask).await;
    stage.approve("admin", run).await;
    stage.until(run, |shown| shown["status"] == "running").await;
    let claimed = claim(&stage).await;
    assert_eq!(stage.show(run).await["approvals"].as_array().map(Vec::len), Some(0), "b waits for a");
    complete(&stage, &claimed, json!({})).await.unwrap();
    stage.approve("admin", run).await;
    complete(&stage, &claim(&stage).await, json!({})).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_paused_run_starts_nothing_after_its_worker_is_done() {
    let stage = by_workers().open().await;
    let run = start(&stage, "pay").await;
    let claimed = claim(&stage).await;
    flow::pause(&stage.flow, &stage.permit("user_ann"), run).await.unwrap();
    complete(&stage, &claimed, json!({})).await.unwrap();
    stage.step(run, "a", "completed").await;
    assert_eq!(stage.step_statuses(run).await, "a=completed b=pending");
    flow::resume(&stage.flow, &stage.permit("user_ann"), run).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn people_see_what_waits_and_who_holds_what() {
    let stage = by_workers().open().await;
    let run = start(&stage, "look").await;
    stage.step(run, "a", "running").await;
    let filter =
        |state, queue: Option<&str>| WorkFilter { state, queue: queue.map(str::to_owned), limit: 10, cursor: None };
    let admin = stage.permit("admin");
    let queued = work::list(&stage.flow, &admin, filter(WorkState::Queued, None)).await.unwrap();
    assert_eq!((queued.items.len(), queued.items[0].run_id), (1, run));
    claim(&stage).await;
    let held = work::list(&stage.flow, &admin, filter(WorkState::Claimed, Some("desk"))).await.unwrap();
    assert_eq!((held.items.len(), held.items[0].claimed_by.as_deref()), (1, Some("worker_1")));
    assert!(work::list(&stage.flow, &admin, filter(WorkState::Claimed, Some("x"))).await.unwrap().items.is_empty());
    let other = stage.permit_of("other", "admin");
    assert!(work::list(&stage.flow, &other, filter(WorkState::Claimed, None)).await.unwrap().items.is_empty());
    let plain = Permit::for_entry(ActorEntry { scopes: Vec::new(), ..ActorEntry::default_for("w3", TENANT) });
    assert_eq!(code_of(work::list(&stage.flow, &plain, filter(WorkState::Queued, None)).await), "RBAC_FORBIDDEN");
    assert_eq!(id_of(&stage.steps(run).await[0]["step_id"]), held.items[0].step_id);
    stage.pass(Duration::from_secs(1)).await;
}
