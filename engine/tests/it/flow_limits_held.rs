//! Limits over time on calls that something else holds back first: a judge, a person, or a queue of workers.

use crate::work::{LEASE, by_workers, claim, complete, failure, items, lease, worker};
use chimera_core::access::Level;
use chimera_core::flow::call::Sent;
use chimera_core::flow::reservation::{RESERVATIONS, ReservationRow};
use chimera_core::flow::tables::EFFECTS;
use chimera_core::record::StoredRow;
use chimera_engine::act::rules::{Rule, Rules};
use chimera_engine::flow::work::{self, ClaimedCall, FailureReport};
use chimera_engine::flow::{self, Decision, OutcomeReport};
use chimera_testkit::flow::{Air, EngineFixture, id_of, stage, workflow};
use serde_json::{Value, json};
use std::time::Duration;
use uuid::Uuid;

const SILENT: Level = Level::ExecuteSilent;

/// One call of a tool per hour.
fn one_call(tool: &str) -> Rules {
    let at_most = json!({"count": 1, "per": "1h"});
    let rule = json!({"name": "one", "tool": tool, "effect": "limit", "at_most": at_most});
    Rules(vec![serde_json::from_value::<Rule>(rule).unwrap()])
}

/// How many calls are counted.
fn counted(stage: &EngineFixture) -> usize {
    let rows = stage.rows(&RESERVATIONS).into_iter().map(|row| ReservationRow::decode(row).expect("a window"));
    rows.map(|row| row.window().expect("entries").entries().len()).sum()
}

/// A write whose judge decides in the turn that has the input, or in one of its own.
fn judged_write(require: &str, on_fail: &str) -> Air {
    workflow("judged")
        .function("a", "once", json!({"to": "${inputs.to}"}))
        .with_node_member("judge", json!({"checks": [{"require": require, "on_fail": on_fail}]}))
}

async fn refused_by_limit(stage: &EngineFixture, run: Uuid) {
    let ended = stage.ended(run).await;
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("POLICY_DENIED")), "{ended:#}");
    assert_eq!(ended["error"]["details"]["rule"], "one");
}

#[tokio::test(start_paused = true)]
async fn a_judged_write_is_counted_when_it_is_sent_and_a_rejected_one_never() {
    for require in ["${input.to == 'team'}", "${['team'].exists(x, x == input.to)}"] {
        let stage = stage(1).policy(one_call("once")).open().await;
        let air = judged_write(require, "reject");
        let rejected = stage.run_with(&air, SILENT, json!({"to": "press"})).await;
        assert_eq!(stage.ended(rejected).await["error"]["code"], "VALIDATION_FAILED");
        assert_eq!(counted(&stage), 0, "{require}: what is never sent takes no place");

        let sent = stage.run_with(&air, SILENT, json!({"to": "team"})).await;
        assert_eq!(stage.ended(sent).await["status"], "completed");
        assert_eq!((counted(&stage), stage.world.outside.sent().len()), (1, 1), "{require}");
        let events = stage.events(sent).await;
        let position = |kind: &str| events.iter().position(|event| event == kind);
        assert!(position("step.judged") < position("step.dispatched"), "{events:?}");

        let refused = stage.run_with(&air, SILENT, json!({"to": "team"})).await;
        refused_by_limit(&stage, refused).await;
        assert_eq!(stage.world.outside.sent().len(), 1, "{require}");
    }
}

/// Whoever waits for a person takes no place: it is taken by the turn that sends.
#[tokio::test(start_paused = true)]
async fn an_escalated_write_takes_its_place_after_the_approval_and_may_find_none() {
    let stage = stage(1).policy(one_call("once")).open().await;
    let air = judged_write("${input.to == 'team'}", "escalate");
    let mut waiting = Vec::new();
    for _ in 0..2 {
        let run = stage.run_with(&air, SILENT, json!({"to": "press"})).await;
        waiting.push((run, stage.asks(run).await.remove(0)));
    }
    assert_eq!(counted(&stage), 0);
    for (run, asked) in &waiting {
        stage.decide("user_bob", *run, Decision::Approve, Some(asked)).await.unwrap();
        stage.ended(*run).await;
    }
    assert_eq!(stage.ended(waiting[0].0).await["status"], "completed");
    refused_by_limit(&stage, waiting[1].0).await;
    assert_eq!((counted(&stage), stage.world.outside.sent().len()), (1, 1));
    assert!(stage.rows_of(&EFFECTS, waiting[1].0).is_empty(), "nothing was dispatched");
}

/// A run whose worker is called by its first turn, or by a later one.
async fn pay(stage: &EngineFixture, delay_seconds: u32) -> Uuid {
    let air = workflow("w").function("a", "pay", json!({})).with_node_member("delay_seconds", json!(delay_seconds));
    stage.run(&air, SILENT).await
}

async fn fail_for_good(stage: &EngineFixture, claimed: &ClaimedCall, sent: Sent) {
    let report = FailureReport { retryable: Some(false), ..failure(sent) };
    work::fail(&stage.flow, &worker(stage), &lease(claimed), report).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_of_a_worker_is_counted_when_it_is_queued_and_given_back_when_it_failed_without_effect() {
    for delay in [0, 1] {
        let stage = by_workers().policy(one_call("pay")).open().await;
        let first = pay(&stage, delay).await;
        let claimed = claim(&stage).await;
        assert_eq!((counted(&stage), stage.flow.calls_under_way()), (1, 0), "counted, and without a slot");
        let entry = dispatched(&stage, first).await;
        assert_eq!((&entry["queue"], &entry["limits"]["rules"]), (&json!("desk"), &json!(["one"])));
        let second = pay(&stage, delay).await;
        refused_by_limit(&stage, second).await;
        assert_eq!(items(&stage).len(), 1, "a refused call is not offered to workers");

        fail_for_good(&stage, &claimed, Sent::No).await;
        assert_eq!(stage.ended(first).await["status"], "failed");
        let third = pay(&stage, delay).await;
        complete(&stage, &claim(&stage).await, json!({"n": 7})).await.unwrap();
        assert_eq!(stage.ended(third).await["status"], "completed");
        assert_eq!(counted(&stage), 1, "the place of the failed call");
        let fourth = pay(&stage, delay).await;
        refused_by_limit(&stage, fourth).await;
    }
}

async fn dispatched(stage: &EngineFixture, run: Uuid) -> Value {
    let events = flow::events(&stage.flow, &stage.permit("admin"), run, 0, 100).await.unwrap();
    let dispatched = events.into_iter().find(|event| event.event_type == "step.dispatched");
    dispatched.unwrap().data.unwrap().value().unwrap()
}

/// What no worker had took no effect. What a worker had may have, until somebody says that it did not.
#[tokio::test(start_paused = true)]
async fn a_call_that_was_withdrawn_gives_its_place_back_and_one_that_a_worker_lost_keeps_it() {
    let stage = by_workers().policy(one_call("pay")).open().await;
    let withdrawn = pay(&stage, 0).await;
    stage.step(withdrawn, "a", "running").await;
    flow::cancel(&stage.flow, &stage.permit("user_ann"), withdrawn, None).await.unwrap();
    assert_eq!(stage.ended(withdrawn).await["status"], "cancelled");

    let lost = pay(&stage, 0).await;
    claim(&stage).await;
    stage.pass(Duration::from_secs(2 * u64::from(LEASE))).await;
    let step = stage.step(lost, "a", "outcome_unknown").await;
    let refused = pay(&stage, 0).await;
    refused_by_limit(&stage, refused).await;

    let report = OutcomeReport::did_not_happen(id_of(&step["step_id"]));
    flow::report_outcome(&stage.flow, &stage.permit("user_ann"), lost, report).await.unwrap();
    complete(&stage, &claim(&stage).await, json!({"n": 7})).await.unwrap();
    assert_eq!(stage.ended(lost).await["status"], "completed", "it is sent again, in its own place");
    assert_eq!(counted(&stage), 1);
}
