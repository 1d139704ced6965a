//! Wait nodes: until a time, and for an event from outside. A waiting run is parked, no event is missed, and none
//! counts twice.

use chimera_core::access::Level;
use chimera_core::flow::run::{Replay, ReplayMode};
use chimera_core::flow::tables::{EVENT_CHANNELS, EVENT_WAITS, EXTERNAL_EVENTS, RUN_SIGNALS, RUNS};
use chimera_core::limits;
use chimera_engine::EngineError;
use chimera_engine::flow::{
    self, Decision, EventFilter, KeeperState, PatchRequest, PublishEvent, PublishedEvent, ReplayOptions, StartRun,
    list_events, publish_event,
};
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{Air, EngineFixture, code_of, stage, workflow};
use serde_json::{Value, json};
use std::time::Duration;
use uuid::Uuid;

const SILENT: Level = Level::ExecuteSilent;

/// `pay` waits for the payment of the order; then `ship` says what was paid.
fn waits_for_payment() -> Air {
    let event = json!({"name": "payment.received", "key": "${inputs.order}"});
    workflow("order")
        .node(json!({"id": "pay", "type": "wait", "event": event}))
        .function("ship", "pure", json!({"n": "${nodes.pay.outputs.payload.amount}"}))
        .edge("pay", "ship")
}

fn payment(order: &str, amount: i64) -> PublishEvent {
    PublishEvent {
        name: "payment.received".to_owned(),
        key: order.to_owned(),
        payload: json!({"amount": amount}),
        event_id: None,
        ttl_seconds: None,
    }
}

async fn publish(stage: &EngineFixture, who: &str, event: PublishEvent) -> Result<PublishedEvent, EngineError> {
    publish_event(&stage.flow, &stage.permit(who), event).await
}

/// Waits until a run has no owner.
async fn parked(stage: &EngineFixture, run: Uuid) {
    let mut commits = stage.records.commits();
    loop {
        commits.borrow_and_update();
        let rows = stage.rows(&RUNS);
        let row = rows.iter().find(|row| row.get("id").as_uuid() == Some(run)).expect("a run");
        if row.get("owner_lane").is_null() {
            assert!(!row.get("next_deadline").is_null(), "a parked run has a deadline");
            return;
        }
        commits.changed().await.expect("the store is open");
    }
}

async fn waiting(stage: &EngineFixture, order: &str) -> Uuid {
    let run = stage.run_with(&waits_for_payment(), SILENT, json!({"order": order})).await;
    stage.step(run, "pay", "waiting").await;
    parked(stage, run).await;
    run
}

fn output<'a>(steps: &'a Value, node: &str) -> &'a Value {
    &steps.as_array().unwrap().iter().find(|step| step["node_id"] == node).expect("a step")["outputs"]
}

#[tokio::test(start_paused = true)]
async fn a_run_waits_for_a_time_without_an_owner() {
    let stage = stage(1).open().await;
    let started = tokio::time::Instant::now();
    let air = workflow("w").node(json!({"id": "nap", "type": "wait", "for_seconds": 3_600}));
    let air = air.function("after", "pure", json!({"n": "${nodes.nap.outputs.until}"})).edge("nap", "after");
    let run = stage.run(&air, SILENT).await;
    stage.step(run, "nap", "waiting").await;
    parked(&stage, run).await;
    let stage = stage.restart(chimera_testkit::flow::stage(1)).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert!(started.elapsed() >= Duration::from_secs(3_600) && started.elapsed() < Duration::from_secs(3_660));
    let events = stage.events(run).await;
    assert!(events.contains(&"step.wait_started".to_owned()), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_time_may_be_computed_and_one_that_has_passed_is_not_waited_for() {
    let stage = stage(1).open().await;
    let air = workflow("w").node(json!({"id": "nap", "type": "wait", "until": "${inputs.at}"}));
    let run = stage.run_with(&air, SILENT, json!({"at": "2001-01-01T00:00:00+02:00"})).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    let steps = stage.steps(run).await;
    assert_eq!(output(&steps, "nap"), &json!({"until": "2000-12-31T22:00:00.000000Z", "success": true}));
    for bad in [json!("tomorrow"), json!(7), json!(null)] {
        let run = stage.run_with(&air, SILENT, json!({"at": bad})).await;
        assert_eq!(stage.ended(run).await["error"]["code"], "VALIDATION_FAILED", "{bad}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_wakes_every_run_that_waits_for_its_name_and_key() {
    let stage = stage(1).open().await;
    let (first, second, other) =
        (waiting(&stage, "o1").await, waiting(&stage, "o1").await, waiting(&stage, "o2").await);
    let sent = publish(&stage, "agent_bank", payment("o1", 12)).await.unwrap();
    assert_eq!((sent.event.runs, sent.is_duplicate), (2, false));
    for run in [first, second] {
        assert_eq!(stage.ended(run).await["status"], "completed");
        let steps = stage.steps(run).await;
        let pay = output(&steps, "pay");
        assert_eq!((&pay["payload"], &pay["sent_by"]), (&json!({"amount": 12}), &json!("agent_bank")));
        assert_eq!((&pay["timed_out"], &pay["event_id"]), (&json!(false), &json!(sent.event.event_id)));
    }
    stage.step(other, "pay", "waiting").await;
    assert_eq!(stage.rows(&EVENT_WAITS).len(), 1, "only the other run still waits");
    let late = publish(&stage, "agent_bank", payment("o2", 1)).await.unwrap();
    assert_eq!(late.event.runs, 1);
    assert_eq!(stage.ended(other).await["status"], "completed");
    assert!(stage.rows(&EVENT_WAITS).is_empty() && stage.rows(&RUN_SIGNALS).is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_event_that_comes_first_is_kept_until_it_expires() {
    let stage = stage(1).open().await;
    publish(&stage, "agent_bank", payment("o1", 1)).await.unwrap();
    publish(&stage, "agent_bank", PublishEvent { ttl_seconds: Some(60), ..payment("o2", 2) }).await.unwrap();
    stage.pass(Duration::from_secs(61)).await;
    let early = stage.run_with(&waits_for_payment(), SILENT, json!({"order": "o1"})).await;
    assert_eq!(stage.ended(early).await["status"], "completed");
    let late = stage.run_with(&waits_for_payment(), SILENT, json!({"order": "o2"})).await;
    parked(&stage, late).await;
    stage.step(late, "pay", "waiting").await;
}

/// Expired events and the marks of channels do not stay, and a wait is found without its mark.
#[tokio::test(start_paused = true)]
async fn what_has_expired_is_deleted() {
    let stage = stage(1).unkept().open().await;
    publish(&stage, "agent_bank", payment("o1", 1)).await.unwrap();
    let run = waiting(&stage, "o2").await;
    let mut keeper = KeeperState::default();
    flow::run_keeper_once(&stage.flow, &mut keeper).await.unwrap();
    stage.pass(Duration::from_secs(3_600)).await;
    flow::run_keeper_once(&stage.flow, &mut keeper).await.unwrap();
    assert_eq!((stage.rows(&EXTERNAL_EVENTS).len(), stage.rows(&EVENT_CHANNELS).len()), (1, 1));
    stage.pass(Duration::from_secs(2 * 86_400)).await;
    flow::run_keeper_once(&stage.flow, &mut keeper).await.unwrap();
    assert!(stage.rows(&EXTERNAL_EVENTS).is_empty() && stage.rows(&EVENT_CHANNELS).is_empty());
    publish(&stage, "agent_bank", payment("o2", 3)).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn an_event_id_counts_once() {
    let stage = stage(1).open().await;
    let run = waiting(&stage, "o1").await;
    let event = PublishEvent { event_id: Some("evt_1".to_owned()), ..payment("o1", 5) };
    assert!(!publish(&stage, "agent_bank", event.clone()).await.unwrap().is_duplicate);
    let again = publish(&stage, "agent_bank", event.clone()).await.unwrap();
    assert_eq!((again.is_duplicate, again.event.event_id.as_str()), (true, "evt_1"));
    let other = PublishEvent { payload: json!({"amount": 6}), ..event };
    assert_eq!(code_of(publish(&stage, "agent_bank", other).await), "CONFLICT_IDEMPOTENCY");
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(stage.rows(&EXTERNAL_EVENTS).len(), 1);
}

/// Its row stays until it is swept.
#[tokio::test(start_paused = true)]
async fn the_id_of_an_expired_event_is_free() {
    let stage = stage(1).open().await;
    let event = |ttl| PublishEvent { event_id: Some("evt_1".to_owned()), ttl_seconds: Some(ttl), ..payment("o1", 5) };
    publish(&stage, "agent_bank", event(1)).await.unwrap();
    stage.pass(Duration::from_secs(3)).await;
    let filter = EventFilter { limit: 10, ..EventFilter::default() };
    assert!(list_events(&stage.flow, &stage.permit("agent_bank"), filter).await.unwrap().items.is_empty());
    let run = waiting(&stage, "o1").await;
    let other = PublishEvent { payload: json!({"amount": 6}), ..event(600) };
    assert!(!publish(&stage, "agent_bank", other).await.unwrap().is_duplicate);
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(stage.rows(&EXTERNAL_EVENTS).len(), 1);
}

/// Two waits of one run on one channel take two events, in the order in which they came.
#[tokio::test(start_paused = true)]
async fn each_wait_of_a_run_takes_an_event_of_its_own() {
    let stage = stage(1).open().await;
    for (chained, early) in [(false, 0), (false, 1), (false, 2), (true, 0), (true, 1), (true, 2)] {
        let order = format!("{chained}-{early}");
        let event = json!({"name": "payment.received", "key": order});
        let wait = |id: &str| json!({"id": id, "type": "wait", "event": event});
        let air = workflow("both").node(wait("a")).node(wait("b"));
        let air = if chained { air.edge("a", "b") } else { air };
        for amount in 0..early {
            publish(&stage, "agent_bank", payment(&order, amount)).await.unwrap();
            stage.pass(Duration::from_secs(1)).await;
        }
        let run = stage.run(&air, SILENT).await;
        for amount in early..2 {
            publish(&stage, "agent_bank", payment(&order, amount)).await.unwrap();
            stage.pass(Duration::from_secs(1)).await;
        }
        assert_eq!(stage.ended(run).await["status"], "completed", "{order}");
        let steps = stage.steps(run).await;
        let amounts = ["a", "b"].map(|node| output(&steps, node)["payload"]["amount"].as_i64());
        assert_eq!(amounts, [Some(0), Some(1)], "{order}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_times_out_fails_or_goes_on() {
    let stage = stage(1).open().await;
    let event = json!({"name": "never", "key": "k"});
    let fails = workflow("fails")
        .node(json!({"id": "pay", "type": "wait", "event": event, "timeout_seconds": 60}))
        .function("rescue", "pure", json!({"n": "${nodes.pay.outputs.error.code}"}))
        .edge_if("pay", "rescue", "${nodes.pay.outputs.success == false}");
    let run = stage.run(&fails, SILENT).await;
    assert_eq!(stage.ended(run).await["status"], "completed", "an edge may handle it");
    let step = stage.step(run, "pay", "failed").await;
    assert_eq!(step["error"]["code"], "REQUEST_TIMEOUT");
    let goes_on = workflow("on")
        .node(json!({"id": "pay", "type": "wait", "event": event, "timeout_seconds": 60, "on_timeout": "continue"}));
    let run = stage.run(&goes_on, SILENT).await;
    parked(&stage, run).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    let steps = stage.steps(run).await;
    assert_eq!((&output(&steps, "pay")["timed_out"], &output(&steps, "pay")["payload"]), (&json!(true), &json!(null)));
    assert!(stage.rows(&EVENT_WAITS).is_empty());
}

/// Without a timeout of its own, a wait ends with the run.
#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_the_timeout_or_the_cancellation_of_its_run() {
    let stage = stage(1).open().await;
    let air = waits_for_payment().with("timeout_seconds", json!(120));
    let run = stage.run_with(&air, SILENT, json!({"order": "o1"})).await;
    assert_eq!(stage.ended(run).await["error"]["code"], "REQUEST_TIMEOUT");
    assert_eq!(stage.step_statuses(run).await, "pay=cancelled ship=cancelled");
    let run = waiting(&stage, "o2").await;
    flow::cancel(&stage.flow, &stage.permit("user_ann"), run, None).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "cancelled");
    assert!(stage.rows(&EVENT_WAITS).is_empty(), "nobody waits any more");
    assert_eq!(publish(&stage, "agent_bank", payment("o2", 1)).await.unwrap().event.runs, 0);
}

#[tokio::test(start_paused = true)]
async fn a_paused_run_takes_its_event_and_starts_nothing() {
    let stage = stage(1).open().await;
    let run = waiting(&stage, "o1").await;
    flow::pause(&stage.flow, &stage.permit("user_ann"), run).await.unwrap();
    stage.until(run, |shown| shown["paused"] == true).await;
    publish(&stage, "agent_bank", payment("o1", 1)).await.unwrap();
    stage.step(run, "pay", "completed").await;
    stage.pass(Duration::from_secs(10)).await;
    assert_eq!(stage.step_statuses(run).await, "pay=completed ship=pending");
    flow::resume(&stage.flow, &stage.permit("user_ann"), run).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
}

/// Whoever sends data that a run uses has a part in what it does next.
#[tokio::test(start_paused = true)]
async fn the_sender_of_an_event_does_not_decide_about_what_follows() {
    let stage = stage(1).open().await;
    let air = waits_for_payment().with_node_member("requires_approval", json!({"other_than_requester": true}));
    let run = stage.run_with(&air, Level::ExecuteNotify, json!({"order": "o1"})).await;
    stage.step(run, "pay", "waiting").await;
    publish(&stage, "user_bob", payment("o1", 1)).await.unwrap();
    let asked = stage.asks(run).await.remove(0);
    let stage = stage.restart(chimera_testkit::flow::stage(1)).await;
    for who in ["user_ann", "user_bob"] {
        let decided = stage.decide(who, run, Decision::Approve, Some(&asked)).await;
        assert_eq!(code_of(decided), "RBAC_FORBIDDEN", "{who}");
    }
    stage.decide("user_cat", run, Decision::Approve, Some(&asked)).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn replays_use_the_recorded_event_and_retries_wait_again() {
    let stage = stage(1).open().await;
    let run = waiting(&stage, "o1").await;
    let first = PublishEvent { ttl_seconds: Some(1), ..payment("o1", 1) };
    publish(&stage, "agent_bank", first).await.unwrap();
    stage.ended(run).await;
    stage.pass(Duration::from_secs(5)).await;
    for mode in [ReplayMode::Freeze, ReplayMode::Shadow] {
        let replayed = replay(&stage, run, mode, None).await;
        assert_eq!(stage.ended(replayed).await["status"], "completed", "{mode:?}");
        let steps = stage.steps(replayed).await;
        assert_eq!(output(&steps, "pay")["payload"], json!({"amount": 1}), "{mode:?}");
    }
    let retried = replay(&stage, run, ReplayMode::Retry, Some("pay")).await;
    stage.step(retried, "pay", "waiting").await;
    publish(&stage, "agent_bank", payment("o1", 2)).await.unwrap();
    assert_eq!(stage.ended(retried).await["status"], "completed");
    let later = replay(&stage, run, ReplayMode::Retry, Some("ship")).await;
    assert_eq!(stage.ended(later).await["status"], "completed");
    let steps = stage.steps(later).await;
    assert_eq!(output(&steps, "pay")["payload"], json!({"amount": 1}), "before the node, the recording counts");
}

async fn replay(stage: &EngineFixture, run: Uuid, mode: ReplayMode, from: Option<&str>) -> Uuid {
    let replay = Replay { of: run, mode, from: from.map(str::to_owned) };
    flow::replay(&stage.flow, &stage.permit("user_ann"), replay, ReplayOptions::default()).await.unwrap().run_id
}

#[tokio::test(start_paused = true)]
async fn a_draft_shows_what_a_run_would_wait_for() {
    let stage = stage(1).open().await;
    let run = stage.run_with(&waits_for_payment(), Level::Draft, json!({"order": "o1"})).await;
    let asked = stage.asks(run).await.remove(0);
    assert!(stage.rows(&EVENT_WAITS).is_empty(), "a draft waits for nothing");
    let review = asked["review"].to_string() + &asked.to_string();
    assert!(review.contains("payment.received"), "{asked:#}");
    stage.decide("user_ann", run, Decision::Approve, Some(&asked)).await.unwrap();
    stage.step(run, "pay", "waiting").await;
    publish(&stage, "agent_bank", payment("o1", 1)).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn children_and_maps_wait_on_their_own() {
    let stage = stage(1).open().await;
    stage.apply(&waits_for_payment()).await;
    let each = json!({"type": "workflow", "workflow_id": "order", "inputs": {"order": "${item}"}});
    let air = workflow("all").node(json!({"id": "each", "type": "map", "over": ["m1", "m2"], "do": each}));
    let run = stage.run(&air, SILENT).await;
    let mut commits = stage.records.commits();
    while stage.rows(&EVENT_WAITS).len() < 2 {
        commits.changed().await.unwrap();
    }
    for order in ["m1", "m2"] {
        publish(&stage, "agent_bank", payment(order, 1)).await.unwrap();
    }
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_run_with_a_wait_can_be_patched_and_rolled_back() {
    let stage = stage(1).open().await;
    let run = waiting(&stage, "o1").await;
    let patch = json!({
        "patch_version": "0.1", "justification": "also wait for the parcel",
        "add_nodes": [{"id": "parcel", "type": "wait", "event": {"name": "parcel.sent", "key": "p1"}}],
        "add_edges": [{"from": "pay", "to": "parcel"}],
    });
    flow::patch(&stage.flow, &stage.permit("user_ann"), PatchRequest::new(run, patch)).await.unwrap();
    publish(&stage, "agent_bank", payment("o1", 1)).await.unwrap();
    stage.step(run, "parcel", "waiting").await;
    let sent = PublishEvent { name: "parcel.sent".to_owned(), key: "p1".to_owned(), ..payment("", 0) };
    publish(&stage, "agent_bank", sent).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
    flow::rollback(&stage.flow, &stage.permit("user_ann"), run, None, None).await.unwrap();
    assert_eq!(stage.status(run, "rolled_back").await["status"], "rolled_back");
}

#[tokio::test(start_paused = true)]
async fn what_can_not_be_published_is_refused() {
    let stage = stage(1).open().await;
    let code = |event| async { code_of(publish(&stage, "agent_bank", event).await) };
    assert_eq!(code(PublishEvent { name: "no spaces".to_owned(), ..payment("o", 1) }).await, "VALIDATION_FAILED");
    assert_eq!(code(payment("", 1)).await, "VALIDATION_FAILED");
    assert_eq!(code(PublishEvent { ttl_seconds: Some(0), ..payment("o", 1) }).await, "VALIDATION_FAILED");
    let large = json!("x".repeat(limits::EVENT_PAYLOAD_BYTES_MAX));
    assert_eq!(code(PublishEvent { payload: large, ..payment("o", 1) }).await, "PAYLOAD_TOO_LARGE");
    let nul = json!("a\u{0}b");
    assert_eq!(code(PublishEvent { payload: nul, ..payment("o", 1) }).await, "VALIDATION_FAILED");
    for _ in 0..limits::EVENTS_PER_KEY_MAX {
        assert_eq!(code(payment("full", 1)).await, "none");
    }
    assert_eq!(code(payment("full", 1)).await, "OVERLOADED");
    let narrow = stage.permit("agent_bank").narrowed(&["runs.read"]);
    assert_eq!(code_of(publish_event(&stage.flow, &narrow, payment("o", 1)).await), "RBAC_FORBIDDEN");
}

#[tokio::test(start_paused = true)]
async fn events_stay_in_their_tenant() {
    let stage = stage(1).open().await;
    let run = waiting(&stage, "o1").await;
    let stranger = stage.permit_of("other", "agent_bank");
    let sent = publish_event(&stage.flow, &stranger, payment("o1", 1)).await.unwrap();
    assert_eq!(sent.event.runs, 0);
    stage.pass(Duration::from_secs(5)).await;
    assert_eq!(stage.step(run, "pay", "waiting").await["node_type"], "wait");
    let filter = EventFilter { limit: 10, ..EventFilter::default() };
    assert!(list_events(&stage.flow, &stage.permit("admin"), filter).await.unwrap().items.is_empty());
    assert_eq!(list_events(&stage.flow, &stranger, filter).await.unwrap().items.len(), 1);
    let named = EventFilter { name: Some("payment.received"), key: Some("o2"), ..filter };
    assert!(list_events(&stage.flow, &stranger, named).await.unwrap().items.is_empty());
    let others = stage.permit_of("other", "agent_shop").narrowed(&["events.publish"]);
    assert!(list_events(&stage.flow, &others, filter).await.unwrap().items.is_empty(), "only what one sent oneself");
    let entries = stage.rows(&chimera_core::ledger::tables::AUDIT_LOG_ENTRIES);
    let published = entries.iter().find(|entry| entry.text("event_type") == "event.published").expect("an entry");
    assert!(published.get("content").as_json().is_none_or(|json| !json.as_str().contains("amount")));
}

/// However a wait and an event race, the wait gets the event.
#[tokio::test(start_paused = true)]
async fn a_wait_that_begins_while_its_event_is_published_gets_it() {
    let stage = stage(1).open().await;
    stage.apply(&waits_for_payment()).await;
    for n in 0..40 {
        let order = format!("race-{n}");
        let start = StartRun { level: SILENT, ..StartRun::of("order", json!({"order": order})) };
        let (run, sent) = tokio::join!(stage.start(start), async {
            for _ in 0..n {
                tokio::task::yield_now().await;
            }
            publish(&stage, "agent_bank", payment(&order, 1)).await
        });
        sent.unwrap();
        assert_eq!(stage.ended(run).await["status"], "completed", "{order}");
    }
    assert!(stage.rows(&EVENT_WAITS).is_empty());
}

/// However many places wait, no more lookups are in flight than calls may be, and each gets its event.
#[tokio::test(start_paused = true)]
async fn many_places_wait_at_once() {
    let stage = stage(1).open().await;
    let count = limits::RUN_CALLS_MAX * 3;
    let air = (0..count).fold(workflow("many"), |air, n| {
        let event = json!({"name": "payment.received", "key": format!("o{n}")});
        air.node(json!({"id": format!("n{n}"), "type": "wait", "event": event}))
    });
    for n in 0..count / 2 {
        publish(&stage, "agent_bank", payment(&format!("o{n}"), 1)).await.unwrap();
    }
    let run = stage.run(&air, SILENT).await;
    parked(&stage, run).await;
    let stage = stage.restart(chimera_testkit::flow::stage(1)).await;
    assert_eq!(stage.rows(&EVENT_WAITS).len(), count - count / 2);
    for n in count / 2..count {
        publish(&stage, "agent_bank", payment(&format!("o{n}"), 1)).await.unwrap();
    }
    assert_eq!(stage.ended(run).await["status"], "completed");
}
