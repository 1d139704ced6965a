//! Workers that die or report late, runs that stop while a worker has their call, and stores that were restored.

use crate::work::{LEASE, SILENT, by_workers, claim, complete, fail, items, lease, start, worker};
use chimera_core::flow::call::Sent;
use chimera_core::flow::tables::RUN_SIGNALS;
use chimera_core::flow::work::WorkState;
use chimera_core::ledger::tables::STORE_STATE;
use chimera_core::limits;
use chimera_core::record::{Insert, Tx};
use chimera_core::time::Timestamp;
use chimera_engine::flow::work;
use chimera_engine::flow::{self, OutcomeReport, ResumeOptions};
use chimera_engine::port::{Hold, Records};
use chimera_testkit::flow::{EngineFixture, chain, code_of, id_of, workflow};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

const LONG: Duration = Duration::from_secs(LEASE as u64 + 5);

async fn resolve(stage: &EngineFixture, run: Uuid, happened: bool) {
    let step = id_of(&stage.step(run, "a", "outcome_unknown").await["step_id"]);
    let found = if happened { OutcomeReport::happened(step, None) } else { OutcomeReport::did_not_happen(step) };
    flow::report_outcome(&stage.flow, &stage.permit("user_ann"), run, found).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_renewed_does_not_end() {
    let stage = by_workers().open().await;
    let run = start(&stage, "pay").await;
    let claimed = claim(&stage).await;
    for _ in 0..5 {
        stage.pass(Duration::from_secs(40)).await;
        let renewed = work::renew(&stage.flow, &worker(&stage), &lease(&claimed)).await.unwrap();
        assert!(renewed.lease_until > claimed.lease_until && !renewed.cancelled);
    }
    complete(&stage, &claimed, json!({})).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_may_be_repeated_goes_to_another_worker_when_the_lease_ends() {
    for tool in ["look", "put"] {
        let stage = by_workers().open().await;
        let run = start(&stage, tool).await;
        let first = claim(&stage).await;
        stage.pass(LONG).await;
        let second = claim(&stage).await;
        assert_eq!((second.id, second.claims), (first.id, 2));
        assert_eq!(code_of(complete(&stage, &first, json!({"n": 1})).await), "LEASE_LOST", "it came too late");
        complete(&stage, &second, json!({"n": 2})).await.unwrap();
        stage.ended(run).await;
        assert_eq!(stage.steps(run).await[0]["outputs"]["n"], 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_report_counts_if_nobody_has_claimed_the_call_since() {
    let stage = by_workers().open().await;
    let run = start(&stage, "put").await;
    let claimed = claim(&stage).await;
    stage.pass(LONG).await;
    assert_eq!(items(&stage)[0].state, WorkState::Queued);
    work::renew(&stage.flow, &worker(&stage), &lease(&claimed)).await.unwrap();
    assert_eq!(items(&stage)[0].state, WorkState::Claimed);
    stage.pass(LONG).await;
    complete(&stage, &claimed, json!({"n": 1})).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_kills_every_worker_is_not_offered_forever() {
    let stage = by_workers().open().await;
    let (read, write) = (start(&stage, "look").await, stage.run(&chain("v", &[("a", "put")]), SILENT).await);
    for _ in 0..limits::WORK_CLAIMS_MAX {
        claim(&stage).await;
        claim(&stage).await;
        stage.pass(LONG).await;
    }
    let ended = stage.ended(read).await;
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("REQUEST_TIMEOUT")));
    stage.step(write, "a", "outcome_unknown").await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_must_not_be_repeated_is_in_doubt_when_the_lease_ends() {
    let stage = by_workers().open().await;
    let run = start(&stage, "pay").await;
    let claimed = claim(&stage).await;
    stage.pass(LONG).await;
    stage.step(run, "a", "outcome_unknown").await;
    assert!(work::claim(&stage.flow, &worker(&stage), &crate::work::ask(5, 0)).await.unwrap().is_empty());
    resolve(&stage, run, true).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(code_of(complete(&stage, &claimed, json!({})).await), "LEASE_LOST", "a person has settled it");
}

#[tokio::test(start_paused = true)]
async fn a_late_report_settles_a_call_in_doubt() {
    let stage = by_workers().open().await;
    let run = start(&stage, "pay").await;
    let claimed = claim(&stage).await;
    stage.pass(LONG).await;
    stage.step(run, "a", "outcome_unknown").await;
    complete(&stage, &claimed, json!({"n": 7})).await.unwrap();
    let ended = stage.ended(run).await;
    assert_eq!((&ended["status"], &ended["in_doubt_since"]), (&json!("completed"), &json!(null)), "{ended:#}");
    assert_eq!(stage.steps(run).await[0]["outputs"]["n"], 7);

    let run = stage.run(&chain("v", &[("a", "pay")]), SILENT).await;
    let claimed = claim(&stage).await;
    stage.pass(LONG).await;
    stage.step(run, "a", "outcome_unknown").await;
    fail(&stage, &claimed, Sent::No).await.unwrap();
    let again = claim(&stage).await;
    assert_eq!((again.attempt, &again.idempotency_key), (2, &claimed.idempotency_key), "it certainly never happened");
    complete(&stage, &again, json!({})).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_may_have_taken_effect_is_in_doubt_unless_it_may_be_repeated() {
    let stage = by_workers().open().await;
    let run = start(&stage, "pay").await;
    fail(&stage, &claim(&stage).await, Sent::Maybe).await.unwrap();
    resolve(&stage, run, false).await;
    complete(&stage, &claim(&stage).await, json!({})).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");

    let run = stage.run(&chain("v", &[("a", "put")]), SILENT).await;
    fail(&stage, &claim(&stage).await, Sent::Maybe).await.unwrap();
    complete(&stage, &claim(&stage).await, json!({})).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_no_worker_wants_fails_at_its_deadline() {
    let stage = by_workers().open().await;
    let run = start(&stage, "pay").await;
    let ended = stage.ended(run).await;
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("REQUEST_TIMEOUT")));
    assert_eq!(items(&stage)[0].state, WorkState::Cancelled);
    assert_eq!(stage.steps(run).await[0]["tool_calls"][0]["outcome"], "failed");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_a_worker_has_at_its_deadline_is_in_doubt_if_it_writes() {
    let stage = by_workers().open().await;
    let (pay, look) = (start(&stage, "pay").await, stage.run(&chain("v", &[("a", "look")]), SILENT).await);
    let claimed = [claim(&stage).await, claim(&stage).await];
    for _ in 0..90 {
        stage.pass(Duration::from_secs(40)).await;
        for claimed in &claimed {
            let _ = work::renew(&stage.flow, &worker(&stage), &lease(claimed)).await;
        }
    }
    stage.step(pay, "a", "outcome_unknown").await;
    let ended = stage.ended(look).await;
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("REQUEST_TIMEOUT")));
    let paid = claimed.iter().find(|claimed| claimed.tool == "pay").unwrap();
    complete(&stage, paid, json!({})).await.unwrap();
    assert_eq!(stage.ended(pay).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_cancelled_withdraws_what_no_worker_has() {
    let stage = by_workers().open().await;
    let run = start(&stage, "pay").await;
    stage.step(run, "a", "running").await;
    flow::cancel(&stage.flow, &stage.permit("user_ann"), run, None).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "cancelled");
    assert_eq!(stage.step_statuses(run).await, "a=cancelled b=cancelled");
    assert!(work::claim(&stage.flow, &worker(&stage), &crate::work::ask(5, 0)).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_cancelled_asks_its_worker_to_stop_and_waits_for_its_report() {
    let stage = by_workers().open().await;
    let run = start(&stage, "pay").await;
    let claimed = claim(&stage).await;
    flow::cancel(&stage.flow, &stage.permit("user_ann"), run, None).await.unwrap();
    let asked = chimera_testkit::flow::within(async {
        let mut commits = stage.records.commits();
        while !items(&stage)[0].cancel_requested {
            commits.changed().await.unwrap();
        }
    });
    asked.await.expect("the worker is asked to stop");
    let renewed = work::renew(&stage.flow, &worker(&stage), &lease(&claimed)).await.unwrap();
    assert!(renewed.cancelled);
    assert_eq!(stage.show(run).await["status"], "running");
    fail(&stage, &claimed, Sent::No).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "cancelled");

    let run = stage.run(&chain("v", &[("a", "pay")]), SILENT).await;
    claim(&stage).await;
    flow::cancel(&stage.flow, &stage.permit("user_ann"), run, None).await.unwrap();
    stage.pass(LONG).await;
    stage.step(run, "a", "outcome_unknown").await;
    resolve(&stage, run, true).await;
    assert_eq!(stage.ended(run).await["status"], "cancelled");
}

#[tokio::test(start_paused = true)]
async fn a_worker_outlives_the_process_that_gave_it_the_call() {
    let stage = by_workers().open().await;
    let run = start(&stage, "pay").await;
    let claimed = claim(&stage).await;
    let next = stage.restart(by_workers()).await;
    complete(&next, &claimed, json!({"n": 7})).await.unwrap();
    assert_eq!(next.ended(run).await["status"], "completed");
    assert!(next.rows(&RUN_SIGNALS).is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_workers_had_before_a_restore_is_not_given_to_others() {
    let stage = by_workers().open().await;
    let held = start(&stage, "put").await;
    let claimed = claim(&stage).await;
    let queued = stage.run(&chain("v", &[("a", "pay")]), SILENT).await;
    let reads = stage.run(&chain("u", &[("a", "look")]), SILENT).await;
    stage.step(queued, "a", "running").await;
    stage.step(reads, "a", "running").await;
    stage.flow.stop();
    let next = by_workers().world(stage.world.clone()).unkept().open_on(Arc::clone(&stage.records)).await;
    let state = Insert::new(&STORE_STATE, vec![("id", 1.into())]).unwrap();
    next.records.commit(Tx { inserts: vec![state], ..Tx::default() }).await.unwrap();
    let survey = flow::survey_restored(&next.flow).await.unwrap();
    let hold = Hold { reason: "it was restored".to_owned(), since: Timestamp::from_micros(0) };
    let resume = ResumeOptions { hold: &hold, end_sign_ins: false };
    flow::resume_store(&next.flow, &next.permit("admin"), &survey, &resume).await.unwrap();
    let keeper = next.flow.clone();
    tokio::spawn(async move { flow::run_keeper(&keeper).await });
    next.step(held, "a", "outcome_unknown").await;
    next.step(queued, "a", "outcome_unknown").await;
    assert_eq!(code_of(complete(&next, &claimed, json!({})).await), "LEASE_LOST");
    let again = claim(&next).await;
    assert_eq!((again.run_id, again.tool.as_str()), (reads, "look"), "a read is simply made again");
    complete(&next, &again, json!({})).await.unwrap();
    assert_eq!(next.ended(reads).await["status"], "completed");
    resolve(&next, held, false).await;
    complete(&next, &claim(&next).await, json!({})).await.unwrap();
    assert_eq!(next.ended(held).await["status"], "completed");
}

/// A child that cannot end in time is cancelled, and its parent waits for its end.
#[tokio::test(start_paused = true)]
async fn a_child_run_that_does_not_end_in_time_is_cancelled_by_its_parent() {
    let stage = by_workers().open().await;
    stage.apply(&chain("inner", &[("a", "pay")])).await;
    let outer = workflow("outer").child("c", "inner", json!({})).with_node_member("timeout_seconds", json!(600));
    let run = stage.run(&outer, SILENT).await;
    let claimed = claim(&stage).await;
    for _ in 0..60 {
        stage.pass(Duration::from_secs(40)).await;
        let _ = work::renew(&stage.flow, &worker(&stage), &lease(&claimed)).await;
    }
    assert_eq!(stage.show(run).await["status"], "running", "what the child did is not known yet");
    complete(&stage, &claimed, json!({})).await.unwrap();
    let ended = stage.ended(run).await;
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("REQUEST_TIMEOUT")), "{ended:#}");
}
