//! Queued calls are judged again when a worker claims them.

use crate::flow_left::DepartedPolicy;
use crate::work::{SILENT, ask, by_workers, claim, complete, items, start, worker};
use chimera_core::flow::work::WorkState;
use chimera_engine::flow::work;
use chimera_engine::flow::{self, StartRun};
use chimera_testkit::flow::chain;
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
