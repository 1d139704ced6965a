//! A schedule uses no more than its owner may, and no tenant's ticks hold up another's.

use super::access_server::{AccessServer, entry};
use super::schedules::{server, server_of};
use chimera_core::access::{ActorEntry, Level};
use chimera_core::ledger::tables::AUDIT_LOG_ENTRIES;
use chimera_core::limits::{SCHEDULE_REFUSALS_MAX, SCHEDULE_SUMMARY_SECONDS, SCHEDULE_TICKS_AT_ONCE_MAX};
use chimera_engine::act::schedule;
use chimera_testkit::access::settings;
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{TENANT, workflow};
use reqwest::Method;
use serde_json::{Value, json};

/// The data of the ledger entries of a type.
fn entries(server: &AccessServer, event_type: &str) -> Vec<Value> {
    let rows = server.house.stage.rows(&AUDIT_LOG_ENTRIES);
    let found = rows.iter().filter(|row| row.text("event_type") == event_type);
    found.map(|row| row.get("data_json").as_json().unwrap().value().unwrap()).collect()
}

#[tokio::test]
async fn many_schedules_of_one_tenant_do_not_hold_up_another_tenants() {
    let server = server().await;
    for n in 0..4 * SCHEDULE_TICKS_AT_ONCE_MAX {
        server.schedule(json!({"name": format!("s{n}")})).await;
    }
    assert_eq!(server.ask("admin", Method::POST, "/tenants", json!({"slug": "globex"})).await.status, 201);
    let waits = workflow("theirs").node(json!({"id": "review", "type": "hitl", "prompt": "May it?"}));
    let path = "/workflows/theirs?for_tenant=globex";
    assert_eq!(server.ask("admin", Method::PUT, path, waits.document().clone()).await.status, 200);
    server.clock.wait(1);
    let theirs = json!({"name": "theirs", "workflow_id": "theirs", "every": "1m"});
    assert_eq!(server.ask("admin", Method::POST, "/schedules?for_tenant=globex", theirs).await.status, 201);
    // Everything is due, and one look is taken.
    schedule::run_due(&server.schedules).await.unwrap();
    assert!(server.runs() <= SCHEDULE_TICKS_AT_ONCE_MAX, "{}", server.runs());
    let shown = server.get("admin", "/schedules/theirs?for_tenant=globex").await.body;
    assert_eq!(shown["last_tick"]["outcome"], "started", "{shown}");
}

#[tokio::test]
async fn a_tick_counts_in_the_rate_limit_of_its_owner() {
    let ann = ActorEntry { level: Some(Level::ExecuteNotify), quota_per_minute: 5, ..entry("user_ann", &["local.*"]) };
    let server = server_of(settings(TENANT, vec![ann, entry("user_bob", &["runs.manage"])])).await;
    // One request: four are left.
    server.schedule(json!({"every": "1s", "overlap": "allow"})).await;
    for _ in 0..50 {
        server.tick().await;
        server.clock.wait(1);
    }
    assert_eq!(server.runs(), 4);
    let shown = server.get("user_bob", "/schedules/often").await.body;
    assert_eq!((&shown["status"], &shown["last_tick"]["outcome"]), (&json!("active"), &json!("skipped")), "{shown}");
    assert_eq!(shown["last_tick"]["error"]["code"], "RATE_LIMITED");
    assert_eq!(entries(&server, "schedule.tick_skipped").len(), 1);
    server.clock.wait(60);
    server.tick().await;
    assert_eq!(server.runs(), 4 + 5, "in the next window it goes on, and what is on time starts");
    let summed = entries(&server, "schedule.ticks_not_started");
    assert!(summed.iter().map(|data| data["count"].as_u64().unwrap()).sum::<u64>() > 40, "{summed:?}");
}

#[tokio::test]
async fn refused_ticks_are_summed_up_tried_less_often_and_then_the_schedule_is_paused() {
    let server = server().await;
    server.schedule(json!({"every": "1s", "overlap": "allow"})).await;
    let narrowed = json!({"kind": "human", "scopes": ["notion.*"]});
    assert_eq!(server.ask("admin", Method::PUT, "/actors/user_ann", narrowed).await.status, 200);
    let mut seconds = 0;
    while server.shown().await["status"] == "active" {
        server.tick().await;
        server.clock.wait(1);
        seconds += 1;
        assert!(seconds < 2_000);
    }
    assert_eq!(server.runs(), 0);
    let shown = server.shown().await;
    assert_eq!(shown["paused_by"], "system", "{shown}");
    let refused = entries(&server, "schedule.tick_refused").len();
    assert_eq!(refused, 2, "the first one and the last one");
    let summed = entries(&server, "schedule.ticks_not_started");
    assert!(i64::try_from(summed.len()).unwrap() <= seconds / SCHEDULE_SUMMARY_SECONDS + 1, "{summed:?}");
    let ticks: u64 = summed.iter().map(|data| data["count"].as_u64().unwrap()).sum();
    assert!(ticks > u64::from(SCHEDULE_REFUSALS_MAX), "{ticks} of {seconds}");
    let inbox = server.get("user_ann", "/inbox").await.body;
    let message = &inbox["items"][0];
    assert_eq!((&message["type"], &message["run_id"]), (&json!("schedule.paused"), &Value::Null), "{inbox}");
    assert_eq!(message["data"]["name"], "often");
}

#[tokio::test]
async fn queued_ticks_that_a_pause_or_a_change_drops_are_named_in_the_ledger() {
    let server = server().await;
    let terms = json!({"workflow_id": "waits", "overlap": "queue", "every": "1m"});
    server.schedule(terms.clone()).await;
    server.tick().await;
    let queued = server.tick_after(60).await["queued"].clone();
    assert_eq!(queued.as_array().unwrap().len(), 1);
    assert_eq!(server.ask("user_ann", Method::PUT, "/schedules/often", terms).await.status, 200);
    assert_eq!(entries(&server, "schedule.changed")[0]["dropped_ticks"], queued);
    let queued = server.tick_after(60).await["queued"].clone();
    assert_eq!(queued.as_array().unwrap().len(), 1);
    assert_eq!(server.ask("user_ann", Method::POST, "/schedules/often/pause", json!({})).await.status, 200);
    assert_eq!(entries(&server, "schedule.paused")[0]["dropped_ticks"], queued);
}
