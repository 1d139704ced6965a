//! Schedules: a tick is a request of the schedule's owner, decided with the rights of that moment, and starts one run.

use super::access_server::{AccessServer, ApiResponse, entry, porch_with, sent};
use chimera_core::access::{ActorEntry, Level};
use chimera_core::act::tables::SCHEDULES;
use chimera_core::flow::tables::RUNS;
use chimera_core::ledger::tables::AUDIT_LOG_ENTRIES;
use chimera_core::limits::SCHEDULE_SCAN_INTERVAL;
use chimera_engine::access::Settings;
use chimera_engine::act::schedule;
use chimera_engine::commit::BatchOutcome;
use chimera_engine::port::{Hold, Outage, Unavailable};
use chimera_testkit::access::settings;
use chimera_testkit::build::NOON;
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{TENANT, workflow};
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

fn people() -> Vec<ActorEntry> {
    let ann = entry("user_ann", &["local.*", "notion.*"]);
    vec![ActorEntry { level: Some(Level::ExecuteNotify), ..ann }, entry("user_bob", &["runs.manage"])]
}

/// A server whose time a test advances, with two workflows: one that ends at once, and one that waits for a person.
pub(super) async fn server() -> AccessServer {
    server_of(settings(TENANT, people())).await
}

pub(super) async fn server_of(settings: Settings) -> AccessServer {
    let server = porch_with(settings, None).await;
    server.clock.stand();
    let summary = workflow("summary").function("a", "local.summarize", json!({"text": "One. Two."}));
    let waits = workflow("waits").node(json!({"id": "review", "type": "hitl", "prompt": "May it?", "show": {"n": 1}}));
    for air in [&summary, &waits] {
        server.house.stage.apply_as("user_ann", air).await;
    }
    server
}

impl AccessServer {
    pub(super) async fn schedule(&self, terms: Value) -> Value {
        let mut body = json!({"name": "often", "workflow_id": "summary", "every": "1m"});
        body.as_object_mut().unwrap().extend(terms.as_object().unwrap().clone());
        let made = self.ask("user_ann", Method::POST, "/schedules", body).await;
        assert_eq!(made.status, 201, "{made:?}");
        made.body
    }

    pub(super) async fn shown(&self) -> Value {
        self.get("user_ann", "/schedules/often").await.body
    }

    /// Looks at due schedules until nothing is due.
    pub(super) async fn tick(&self) {
        while schedule::run_due(&self.schedules).await.unwrap() == Duration::ZERO {}
    }

    pub(super) async fn tick_after(&self, seconds: i64) -> Value {
        self.clock.wait(seconds);
        self.tick().await;
        self.shown().await
    }

    /// The runs, and the ledger entries about schedules.
    pub(super) fn runs(&self) -> usize {
        self.house.stage.rows(&RUNS).len()
    }

    pub(super) fn events(&self) -> Vec<String> {
        let entries = self.house.stage.rows(&AUDIT_LOG_ENTRIES);
        let types = entries.iter().map(|row| row.text("event_type").to_owned());
        types.filter(|name| name.starts_with("schedule.")).collect()
    }

    pub(super) async fn until_ended(&self, shown: &Value) {
        self.house.until(&json!({"run_id": shown["last_tick"]["run_id"]}), "completed").await;
    }
}

fn code(answer: &ApiResponse) -> (u16, &str) {
    (answer.status, answer.code())
}

#[tokio::test]
async fn a_tick_starts_a_run_of_the_owner_that_names_its_cause() {
    let server = server().await;
    let made = server.schedule(json!({"inputs": {"n": 7}})).await;
    assert_eq!((&made["status"], &made["owner"]), (&json!("active"), &json!("user_ann")));
    server.tick().await;
    assert_eq!(server.runs(), 1, "the anchor itself is a tick");
    let shown = server.tick_after(59).await;
    assert_eq!((server.runs(), &shown["last_tick"]["outcome"]), (1, &json!("started")));
    let shown = server.tick_after(1).await;
    assert_eq!(server.runs(), 2);
    let run = server.get("user_ann", &format!("/runs/{}", shown["last_tick"]["run_id"].as_str().unwrap())).await.body;
    assert_eq!((&run["actor"], &run["inputs"]), (&json!("user_ann"), &json!({"n": 7})), "{run}");
    let stored = server.house.stage.rows(&RUNS);
    let cause = stored.last().unwrap().get("request_payload").as_json().unwrap().value().unwrap();
    assert_eq!(cause["schedule"]["schedule_id"], made["schedule_id"], "{cause}");
    assert_eq!(server.events(), ["schedule.created", "schedule.tick_started", "schedule.tick_started"]);
}

#[tokio::test]
async fn of_two_nodes_one_starts_the_run_of_a_tick() {
    let one = server().await;
    let other = one.second_node(settings(TENANT, people()), None).await;
    one.schedule(json!({"overlap": "allow"})).await;
    for ticks in 1..=10 {
        let (first, second) = tokio::join!(schedule::run_due(&one.schedules), schedule::run_due(&other.schedules));
        assert!(first.is_ok() && second.is_ok());
        one.tick().await;
        other.tick().await;
        assert_eq!(one.runs(), ticks);
        one.clock.wait(60);
    }
    let started = one.events().into_iter().filter(|event| event == "schedule.tick_started").count();
    assert_eq!(started, 10);
}

#[tokio::test]
async fn an_owner_who_lost_a_right_is_refused_and_everybody_can_see_it() {
    let server = server().await;
    server.schedule(json!({})).await;
    server.tick().await;
    let narrowed = json!({"scopes": ["notion.*"]});
    assert_eq!(server.ask("admin", Method::PUT, "/actors/user_ann", narrowed).await.status, 200);
    let shown = server.tick_after(60).await;
    assert_eq!((server.runs(), &shown["last_tick"]["outcome"]), (1, &json!("refused")));
    assert_eq!(shown["last_tick"]["error"]["code"], "RBAC_FORBIDDEN", "{shown}");
    let disabled = json!({"scopes": ["local.*"], "disabled": true});
    assert_eq!(server.ask("admin", Method::PUT, "/actors/user_ann", disabled).await.status, 200);
    server.clock.wait(60);
    server.tick().await;
    let shown = server.get("user_bob", "/schedules/often").await.body;
    assert_eq!((&shown["last_tick"]["error"]["message"], server.runs()), (&json!("user_ann is disabled"), 1));
    assert_eq!(server.events().iter().filter(|event| *event == "schedule.tick_refused").count(), 2);
    assert!(shown["next_at"].is_string(), "it goes on");
}

#[tokio::test]
async fn a_removed_owner_starts_nothing() {
    let server = server().await;
    let cat = json!({"kind": "human", "scopes": ["local.*"]});
    assert_eq!(server.ask("admin", Method::PUT, "/actors/user_cat", cat).await.status, 200);
    let body = json!({"name": "cats", "workflow_id": "summary", "every": "1m"});
    let made = server.ask("user_cat", Method::POST, "/schedules", body).await;
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(server.ask("admin", Method::DELETE, "/actors/user_cat", json!(null)).await.status, 200);
    server.tick().await;
    let shown = server.get("user_bob", "/schedules/cats").await.body;
    assert_eq!(shown["last_tick"]["error"]["message"], "user_cat was removed", "{shown}");
    assert_eq!(server.runs(), 0);
}

#[tokio::test]
async fn a_schedule_never_has_more_rights_than_the_token_that_made_it() {
    let server = server().await;
    let body = json!({"name": "often", "workflow_id": "summary", "every": "1m", "follow_latest": true});
    let token = server.token_with("user_ann", |claims| claims.scopes = Some(vec!["local.*".to_owned()]));
    let url = server.house.server.url("/schedules");
    let request = server.house.client.post(url).bearer_auth(token);
    let made =
        sent(crate::flow::signed(request, chimera_engine::port::Clock::now(&*server.clock), "user_ann", &body)).await;
    assert_eq!(made.status, 201, "{made:?}");
    let grown = workflow("summary").function("a", "notion.note", json!({"n": 1}));
    server.house.stage.apply_as("user_ann", &grown).await;
    server.tick().await;
    let shown = server.shown().await;
    assert_eq!((server.runs(), &shown["last_tick"]["error"]["code"]), (0, &json!("RBAC_FORBIDDEN")), "{shown}");
}

#[tokio::test]
async fn what_a_tick_does_while_a_run_is_not_finished_is_the_schedules_choice() {
    let policies =
        [("skip", 1, "skipped"), ("queue", 1, "queued"), ("allow", 2, "started"), ("cancel_previous", 2, "started")];
    for (overlap, runs, outcome) in policies {
        let server = server().await;
        server.schedule(json!({"workflow_id": "waits", "overlap": overlap})).await;
        server.tick().await;
        let first = server.shown().await;
        let shown = server.tick_after(60).await;
        assert_eq!((server.runs(), &shown["last_tick"]["outcome"]), (runs, &json!(outcome)), "{overlap}");
        let second = shown["last_tick"]["run_id"].as_str().unwrap_or_default();
        if overlap == "cancel_previous" {
            let run = first["last_tick"]["run_id"].as_str().unwrap();
            server.house.until(&json!({ "run_id": run }), "cancelled").await;
            let ended = server.get("user_ann", &format!("/runs/{run}")).await.body;
            assert_eq!(ended["error"]["message"], "schedule often has started its next tick", "{ended}");
            server.house.until(&json!({ "run_id": second }), "awaiting_approval").await;
        }
        if overlap == "queue" {
            let full = server.tick_after(60).await;
            assert_eq!((&full["last_tick"]["outcome"], server.runs()), (&json!("skipped"), 1), "the queue holds one");
            let run = first["last_tick"]["run_id"].as_str().unwrap();
            let ended = server.ask("user_ann", Method::POST, &format!("/runs/{run}/cancel"), json!({})).await;
            assert_eq!(ended.status, 202, "{ended:?}");
            server.house.until(&json!({ "run_id": run }), "cancelled").await;
            let freed = server.tick_after(1).await;
            assert_eq!((server.runs(), &freed["queued"]), (2, &json!([])), "{freed}");
        }
    }
}

#[tokio::test]
async fn after_a_downtime_the_catch_up_policy_decides() {
    for (catch_up, runs) in [("skip", 1), ("last", 2), ("all", 1 + 30)] {
        let server = server().await;
        let terms = json!({"catch_up": catch_up, "overlap": "allow", "catch_up_window_seconds": 1_800});
        server.schedule(terms).await;
        server.tick().await;
        // One day, and half a minute.
        let shown = server.tick_after(86_430).await;
        assert_eq!(server.runs(), runs, "{catch_up}: {shown}");
        assert!(server.events().contains(&"schedule.ticks_missed".to_owned()));
        server.tick_after(30).await;
        assert_eq!(server.runs(), runs + 1, "{catch_up}: on time again");
    }
}

#[tokio::test]
async fn a_clock_that_jumps_and_comes_back_starts_no_flood() {
    let server = server().await;
    server.schedule(json!({})).await;
    server.tick().await;
    server.until_ended(&server.shown().await).await;
    server.clock.jump(86_400);
    server.tick().await;
    assert_eq!(server.runs(), 2, "the last one");
    server.clock.jump(0);
    server.tick_after(120).await;
    assert_eq!(server.runs(), 2, "those ticks have been");
}

#[tokio::test]
async fn a_held_store_starts_nothing() {
    let server = server().await;
    server.schedule(json!({})).await;
    let hold = Hold { reason: "restored".to_owned(), since: NOON };
    server.house.stage.records.set_hold(Some(hold));
    server.tick().await;
    assert_eq!(server.runs(), 0);
    server.house.stage.records.set_hold(None);
    server.tick().await;
    assert_eq!(server.runs(), 1);
}

#[tokio::test]
async fn a_tick_that_could_not_be_written_is_left_for_the_next_look_and_started_once() {
    let server = server().await;
    let before = server.schedule(json!({})).await;
    server.house.stage.records.refuse_writes();
    assert_eq!(schedule::run_due(&server.schedules).await.unwrap(), SCHEDULE_SCAN_INTERVAL);
    assert_eq!((server.runs(), server.shown().await), (0, before), "neither the run nor the tick");
    server.house.stage.records.clear_faults();
    server.clock.wait(10);
    server.tick().await;
    assert_eq!((server.runs(), server.events().len()), (1, 2));
    let shown = server.shown().await;
    assert_eq!((&shown["last_tick"]["outcome"], &shown["state_version"]), (&json!("started"), &json!(2)));
}

#[tokio::test]
async fn its_owner_says_what_it_does_and_a_manager_may_stop_it() {
    let server = server().await;
    server.schedule(json!({})).await;
    let change = json!({"workflow_id": "summary", "cron": "0 7 * * MON-FRI", "time_zone": "Europe/Berlin"});
    let refused = server.ask("user_bob", Method::PUT, "/schedules/often", change.clone()).await;
    assert_eq!(code(&refused), (403, "RBAC_FORBIDDEN"));
    let changed = server.ask("user_ann", Method::PUT, "/schedules/often", change).await;
    assert_eq!((changed.status, &changed.body["every"]), (200, &Value::Null), "{changed:?}");
    let next = server.get("user_ann", "/schedules/often/next?count=2").await.body;
    assert_eq!(next["ticks"].as_array().unwrap().len(), 2);
    let paused = server.ask("user_bob", Method::POST, "/schedules/often/pause", json!({"reason": "moving"})).await;
    assert_eq!((&paused.body["status"], &paused.body["paused_by"]), (&json!("paused"), &json!("user_bob")));
    assert_eq!(code(&server.ask("user_bob", Method::POST, "/schedules/often/pause", json!({})).await).0, 409);
    server.clock.wait(30 * 86_400);
    server.tick().await;
    assert_eq!(server.runs(), 0, "paused");
    let resumed = server.ask("user_ann", Method::POST, "/schedules/often/resume", json!(null)).await;
    assert_eq!((resumed.status, &resumed.body["status"]), (200, &json!("active")));
    server.tick().await;
    assert_eq!(server.runs(), 0, "what passed meanwhile is not caught up");
    let now = server.ask("user_ann", Method::POST, "/schedules/often/run", json!({"wait": 10})).await;
    assert_eq!((now.status, &now.body["status"]), (200, &json!("completed")), "{now:?}");
    let removed = server.ask("user_bob", Method::DELETE, "/schedules/often", json!(null)).await;
    assert_eq!((removed.status, server.house.stage.rows(&SCHEDULES).len()), (200, 0));
    let kinds = ["created", "changed", "paused", "resumed", "run_requested", "removed"];
    assert_eq!(server.events(), kinds.map(|kind| format!("schedule.{kind}")));
}

#[tokio::test]
async fn a_definition_that_makes_no_sense_is_refused_with_the_member_that_is_wrong() {
    let server = server().await;
    let base = json!({"name": "x", "workflow_id": "summary"});
    for (terms, pointer) in [
        (json!({}), ""),
        (json!({"every": "1m", "cron": "* * * * *"}), ""),
        (json!({"every": "soon"}), "/every"),
        (json!({"every": "0s"}), "/every"),
        (json!({"cron": "* * * *"}), "/cron"),
        (json!({"cron": "0 0 31 2 *"}), "/cron"),
        (json!({"cron": "* * * * *", "time_zone": "Berlin"}), "/time_zone"),
        (json!({"every": "1m", "time_zone": "UTC"}), "/time_zone"),
        (json!({"cron": "* * * * *", "anchor_at": "2027-01-01T00:00:00Z"}), "/anchor_at"),
        (json!({"every": "1m", "queue_max": 101}), "/queue_max"),
        (json!({"every": "1m", "catch_up_window_seconds": -1}), "/catch_up_window_seconds"),
        (json!({"every": "1m", "jitter_seconds": 4_000}), "/jitter_seconds"),
        (json!({"every": "1m", "jitter_seconds": 60}), "/jitter_seconds"),
        (json!({"cron": "* * * * *", "jitter_seconds": 60}), "/jitter_seconds"),
        (json!({"every": "1m", "version": 1, "follow_latest": true}), "/follow_latest"),
        (json!({"every": "1m", "ends_at": "2000-01-01T00:00:00Z"}), "/ends_at"),
        (json!({"every": "1m", "name": "a b"}), "/name"),
    ] {
        let mut body = base.clone();
        body.as_object_mut().unwrap().extend(terms.as_object().unwrap().clone());
        let answer = server.ask("user_ann", Method::POST, "/schedules", body).await;
        assert_eq!((answer.status, answer.detail("pointer")), (422, &json!(pointer)), "{terms}: {answer:?}");
    }
    server.schedule(json!({})).await;
    let again = json!({"name": "often", "workflow_id": "summary", "every": "1m"});
    assert_eq!(server.ask("user_ann", Method::POST, "/schedules", again).await.status, 409);
    let absent = json!({"name": "y", "workflow_id": "absent", "every": "1m"});
    assert_eq!(server.ask("user_ann", Method::POST, "/schedules", absent).await.status, 404);
}

/// The crash matrix of a tick: its node dies before or after each commit. Another node starts what was not started, and
/// never a second run.
#[tokio::test]
async fn a_tick_whose_node_dies_at_any_moment_starts_one_run() {
    for (moment, durable) in (1..=3).flat_map(|moment| [(moment, false), (moment, true)]) {
        let one = server().await;
        let other = one.second_node(settings(TENANT, people()), None).await;
        one.schedule(json!({"overlap": "allow"})).await;
        let records = Arc::clone(&one.house.stage.records);
        let mut commits = records.commits();
        let before = *commits.borrow_and_update();
        if !durable {
            let mut batch = 0;
            let dead = || BatchOutcome::Unavailable(Unavailable::new(Outage::Full, "the node is dead"));
            records.inject_batch_fault(Box::new(move |_| {
                batch += 1;
                (batch == moment).then(dead)
            }));
        }
        let schedules = Arc::clone(&one.schedules);
        let mut dying = tokio::spawn(async move { schedule::run_due(&schedules).await });
        loop {
            tokio::select! {
                _ = &mut dying => break,
                changed = commits.changed() => changed.unwrap(),
            }
            if durable && *commits.borrow_and_update() >= before + moment {
                dying.abort();
                break;
            }
        }
        let what = format!("dead at commit {moment}, durable: {durable}");
        records.inject_batch_fault(Box::new(|_| None));
        other.tick().await;
        assert_eq!(other.runs(), 1, "{what}");
        let shown = other.tick_after(60).await;
        assert_eq!((other.runs(), &shown["last_tick"]["outcome"]), (2, &json!("started")), "{what}");
        let started = other.events().into_iter().filter(|event| event == "schedule.tick_started").count();
        assert_eq!(started, 2, "{what}");
    }
}

#[tokio::test]
async fn a_run_outside_of_the_times_starts_once_under_a_key() {
    let server = server().await;
    server.schedule(json!({"starts_at": "2999-01-01T00:00:00Z"})).await;
    let run = || server.ask("user_ann", Method::POST, "/schedules/often/run", json!({"idempotency_key": "now"}));
    let first = run().await;
    assert_eq!(first.status, 202, "{first:?}");
    let again = run().await;
    assert_eq!(
        (code(&again), again.detail("run_id")),
        ((409, "CONFLICT_IDEMPOTENCY"), &first.body["run_id"]),
        "{again:?}"
    );
    assert_eq!((server.runs(), server.shown().await["active_runs"].as_array().map(Vec::len)), (1, Some(1)));
}
