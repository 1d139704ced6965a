//! Queued calls are judged again when a worker claims them.

use crate::flow_four_eyes::{approve, newer};
use crate::flow_left::DepartedPolicy;
use crate::work::{LEASE, SILENT, ask, by_workers, claim, complete, items, start, worker};
use chimera_core::access::Level;
use chimera_core::flow::work::WorkState;
use chimera_engine::flow::work;
use chimera_engine::flow::{self, StartRun};
use chimera_testkit::flow::{chain, id_of};
use serde_json::json;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn a_queued_call_whose_requester_lost_their_rights_is_not_handed_out() {
    for tool in ["look", "put", "pay"] {
        let left = DepartedPolicy::default();
        let stage = by_workers().policy(left.clone()).open().await;
        let run = start(&stage, tool).await;
        stage.step(run, "a", "running").await;
        left.leaves(&items(&stage)[0].actor);
        assert!(work::claim(&stage.flow, &worker(&stage), &ask(5, 0)).await.unwrap().is_empty());
        let ended = stage.ended(run).await;
        assert_eq!(
            (&ended["status"], &ended["error"]["code"]),
            (&json!("failed"), &json!("POLICY_DENIED")),
            "{ended:#}"
        );
        let items = items(&stage);
        assert_eq!((items.len(), items[0].state, items[0].claims), (1, WorkState::Failed, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_call_does_not_block_those_behind_it() {
    let left = DepartedPolicy::default();
    let stage = by_workers().policy(left.clone()).open().await;
    let refused = start(&stage, "pay").await;
    stage.step(refused, "a", "running").await;
    left.leaves(&items(&stage)[0].actor);
    stage.pass(Duration::from_millis(5)).await;
    stage.apply(&chain("v", &[("a", "pay")])).await;
    let request = StartRun { level: SILENT, ..StartRun::of("v", json!({})) };
    let run = flow::start(&stage.flow, &stage.permit("user_mal"), request).await.unwrap().run_id;
    stage.step(run, "a", "running").await;
    let claimed = claim(&stage).await;
    assert_eq!(claimed.run_id, run);
    complete(&stage, &claimed, json!({})).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(stage.ended(refused).await["error"]["code"], "POLICY_DENIED");
}

#[tokio::test(start_paused = true)]
async fn a_call_of_a_paused_run_is_handed_out_once_the_run_goes_on() {
    let stage = by_workers().open().await;
    let (run, ann) = (start(&stage, "pay").await, stage.permit("user_ann"));
    stage.step(run, "a", "running").await;
    flow::pause(&stage.flow, &ann, run).await.unwrap();
    stage.until(run, |shown| shown["paused"] == true).await;
    assert!(work::claim(&stage.flow, &worker(&stage), &ask(5, 0)).await.unwrap().is_empty());
    flow::resume(&stage.flow, &ann, run).await.unwrap();
    complete(&stage, &claim(&stage).await, json!({})).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
}

/// Approvals that were enough when the call was queued may not be any more.
#[tokio::test(start_paused = true)]
async fn a_queued_call_whose_approver_may_no_longer_decide_is_asked_for_again() {
    let left = DepartedPolicy::default();
    let stage = by_workers().policy(left.clone()).open().await;
    let run = stage.run(&chain("w", &[("a", "pay")]), Level::Ask).await;
    stage.status(run, "awaiting_approval").await;
    stage.approve("user_bob", run).await;
    stage.step(run, "a", "running").await;
    left.leaves("user_bob");
    assert!(work::claim(&stage.flow, &worker(&stage), &ask(5, 0)).await.unwrap().is_empty());
    stage.status(run, "awaiting_approval").await;
    stage.approve("user_cat", run).await;
    complete(&stage, &claim(&stage).await, json!({})).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_somebody_edited_who_left_is_not_handed_out() {
    let left = DepartedPolicy::default();
    let stage = by_workers().policy(left.clone()).open().await;
    let run = stage.run(&chain("w", &[("a", "pay")]), Level::Ask).await;
    stage.status(run, "awaiting_approval").await;
    let asked = stage.asks(run).await.remove(0);
    let step = id_of(&asked["step_id"]);
    flow::edit_step(&stage.flow, &stage.permit("user_bob"), run, step, json!({"n": 9})).await.unwrap();
    let asked = newer(&stage, run, &asked).await;
    assert_eq!(approve(&stage, "user_cat", run, &asked).await, "none");
    stage.step(run, "a", "running").await;
    left.leaves("user_bob");
    assert!(work::claim(&stage.flow, &worker(&stage), &ask(5, 0)).await.unwrap().is_empty());
    assert_eq!(stage.ended(run).await["error"]["code"], "POLICY_DENIED");
}

/// A worker that had the call before it was taken out of the queue is the only one who knows what happened.
#[tokio::test(start_paused = true)]
async fn the_only_worker_that_had_a_call_may_report_it_after_it_was_taken_back() {
    let left = DepartedPolicy::default();
    let stage = by_workers().policy(left.clone()).open().await;
    let run = start(&stage, "put").await;
    let claimed = claim(&stage).await;
    stage.pass(Duration::from_secs(u64::from(LEASE) + 5)).await;
    left.leaves(&claimed.actor);
    assert!(work::claim(&stage.flow, &worker(&stage), &ask(5, 0)).await.unwrap().is_empty());
    assert_eq!(items(&stage)[0].state, WorkState::Lost);
    stage.pass(Duration::from_secs(60)).await;
    complete(&stage, &claimed, json!({"n": 7})).await.unwrap();
    assert_eq!(stage.step(run, "a", "completed").await["outputs"]["n"], 7);
}
