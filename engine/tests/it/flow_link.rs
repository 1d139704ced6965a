//! An approval link decides once, as its recipient, on what they were shown.

use crate::flow_ask::{asking, mail_of, tools};
use async_trait::async_trait;
use chimera_core::access::tables::APPROVAL_LINKS;
use chimera_core::access::{DeciderRefusal, Level};
use chimera_core::flow::run::RunHead;
use chimera_core::flow::tables::NOTIFICATIONS;
use chimera_core::json::Digest32;
use chimera_core::ledger::tables::AUDIT_LOG_ENTRIES;
use chimera_engine::act::rules::{Beyond, Rule, Rules, Says};
use chimera_engine::flow::port::{Recipient, Recipients};
use chimera_engine::flow::{self, Asking, Decision, RequestStatus};
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{Air, EngineFixture, approval_link, chain, code_of, id_of};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use uuid::Uuid;

async fn waiting(air: &Air) -> (EngineFixture, Uuid) {
    let stage = tools().asking(asking(vec![mail_of("user_ann"), mail_of("user_bob")])).open().await;
    let run = stage.run(air, Level::Ask).await;
    stage.asks(run).await;
    (stage, run)
}

fn write() -> Air {
    chain("w", &[("a", "write")])
}

/// The token of the link that a person received for the pending request.
async fn token(stage: &EngineFixture, run: Uuid, person: &str) -> String {
    let approval = stage.asks(run).await[0]["approval_id"].clone();
    let rows = stage.rows_of(&NOTIFICATIONS, run).into_iter();
    let mut theirs = rows.filter(|row| row.text("target") == format!("{person}@example.com"));
    let mail = theirs.find(|row| json!(row.get("approval_id").as_uuid()) == approval).unwrap();
    approval_link(&mail).unwrap().rsplit('/').next().unwrap().to_owned()
}

async fn digest(stage: &EngineFixture, run: Uuid) -> Digest32 {
    let asked = stage.asks(run).await.remove(0);
    Digest32::from_hex(asked["digest"].as_str().unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn looking_shows_what_would_run_and_changes_nothing() {
    let (stage, run) = waiting(&write()).await;
    let token = &token(&stage, run, "user_bob").await;
    let mut commits = stage.records.commits();
    commits.borrow_and_update();
    for _ in 0..3 {
        let opened = flow::open_link(&stage.flow, token).await.unwrap();
        assert_eq!(opened.person, "user_bob");
        let review = opened.review;
        assert_eq!((review.run_id, review.autonomy_level.as_str()), (run, "L0_Ask"));
        assert_eq!(review.calls[0].input, Some(json!({"n": "a"})));
        assert_eq!((review.calls[0].what.as_str(), review.requested_by.as_str()), ("calls write", "user_ann"));
    }
    assert!(!commits.has_changed().unwrap());
}

#[tokio::test(start_paused = true)]
async fn of_many_clicks_one_decides_as_the_person_it_was_sent_to() {
    let (stage, run) = waiting(&write()).await;
    let (token, digest) = (token(&stage, run, "user_ann").await, digest(&stage, run).await);
    let click = |_| flow::decide_by_link(&stage.flow, &token, Decision::Approve, digest, Some("fine".to_owned()));
    let said = futures::future::join_all((0..8).map(click)).await;
    let mut codes: Vec<String> = said.into_iter().map(code_of).collect();
    codes.sort_unstable();
    assert_eq!(codes, ["GONE", "GONE", "GONE", "GONE", "GONE", "GONE", "GONE", "none"]);
    assert_eq!(stage.ended(run).await["status"], "completed");
    let entries = stage.rows_of(&AUDIT_LOG_ENTRIES, run);
    let decided: Vec<_> = entries.iter().filter(|entry| entry.text("event_type") == "approval.decided").collect();
    assert_eq!((decided.len(), decided[0].get("actor_id").as_text()), (1, Some("user_ann")));
    let by_link = entries.iter().filter(|entry| entry.text("event_type") == "approval.link_used").count();
    assert_eq!(by_link, 1, "it is on record how they decided");
    assert_eq!(code_of(flow::open_link(&stage.flow, &token).await), "GONE");
    let used = stage.rows_of(&APPROVAL_LINKS, run).iter().filter(|row| !row.get("used_at").is_null()).count();
    assert_eq!(used, 1);
}

#[tokio::test(start_paused = true)]
async fn a_link_of_somebody_else_is_of_no_use_once_it_is_decided() {
    let (stage, run) = waiting(&write()).await;
    let tokens = [token(&stage, run, "user_ann").await, token(&stage, run, "user_bob").await];
    let digest = digest(&stage, run).await;
    flow::decide_by_link(&stage.flow, &tokens[0], Decision::Reject, digest, None).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "cancelled");
    assert_eq!(code_of(flow::open_link(&stage.flow, &tokens[1]).await), "INVALID_TRANSITION");
    let late = flow::decide_by_link(&stage.flow, &tokens[1], Decision::Approve, digest, None).await;
    assert_eq!(code_of(late), "INVALID_TRANSITION");
}

#[tokio::test(start_paused = true)]
async fn two_people_decide_by_a_link_each() {
    let air = write().with_node_member("requires_approval", json!({"approvals_needed": 2}));
    let (stage, run) = waiting(&air).await;
    let tokens = [token(&stage, run, "user_ann").await, token(&stage, run, "user_bob").await];
    let digest = digest(&stage, run).await;
    let first = flow::decide_by_link(&stage.flow, &tokens[0], Decision::Approve, digest, None).await.unwrap();
    assert_eq!((first.status, first.approvals), (RequestStatus::Pending, 1));
    assert_eq!(code_of(flow::decide_by_link(&stage.flow, &tokens[0], Decision::Approve, digest, None).await), "GONE");
    flow::decide_by_link(&stage.flow, &tokens[1], Decision::Approve, digest, None).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_link_lapses_with_the_request() {
    let air = write().with_node_member("requires_approval", json!({"expires_seconds": 60}));
    let (stage, run) = waiting(&air).await;
    let (token, digest) = (token(&stage, run, "user_ann").await, digest(&stage, run).await);
    stage.pass(Duration::from_secs(59)).await;
    flow::open_link(&stage.flow, &token).await.unwrap();
    stage.pass(Duration::from_secs(1)).await;
    assert_eq!(code_of(flow::open_link(&stage.flow, &token).await), "GONE");
    assert_eq!(code_of(flow::decide_by_link(&stage.flow, &token, Decision::Approve, digest, None).await), "GONE");
    assert_eq!(stage.ended(run).await["status"], "cancelled");
}

/// People who may decide until that is changed.
struct Trusted(AtomicBool);

#[async_trait]
impl Recipients for Trusted {
    async fn of(&self, _: &RunHead) -> Vec<Recipient> {
        vec![mail_of("user_bob")]
    }

    fn not_decider(&self, _: &str, _: &str, _: &str) -> Option<DeciderRefusal> {
        (!self.0.load(Ordering::SeqCst)).then_some(DeciderRefusal::LacksScope)
    }
}

/// Two people must agree, and a disabled one does not count.
#[tokio::test(start_paused = true)]
async fn who_may_decide_no_more_does_not_count_among_those_who_approved() {
    let people = Arc::new(Trusted(AtomicBool::new(true)));
    let asking = Asking { recipients: Arc::clone(&people) as _, ..asking(Vec::new()) };
    let says = Says::Ask { approvals: 2, approvers: Vec::new(), other_than_requester: true };
    let rule = Rule {
        name: "two".to_owned(),
        tool: "*".to_owned(),
        actor: "*".to_owned(),
        tenant: "*".to_owned(),
        says,
        limits: Vec::new(),
        beyond: Beyond::Deny,
    };
    let stage = tools().asking(asking).policy(Rules(vec![rule])).open().await;
    let run = stage.run(&write(), Level::ExecuteNotify).await;
    stage.asks(run).await;
    let approve = async |who: &str| stage.decide(who, run, Decision::Approve, None).await.unwrap();
    assert_eq!(approve("user_bob").await.status, RequestStatus::Pending);
    people.0.store(false, Ordering::SeqCst);
    let second = approve("user_cat").await;
    assert_eq!((second.status, second.approvals), (RequestStatus::Pending, 1), "who said yes before is gone");
    let decisions = stage.asks(run).await.remove(0)["decisions"].clone();
    assert_eq!((&decisions[0]["counts"], &decisions[1]["counts"]), (&json!(false), &json!(null)), "and it is kept");
    people.0.store(true, Ordering::SeqCst);
    let third = approve("user_dan").await;
    assert_eq!((third.status, third.approvals, third.needed), (RequestStatus::Approved, 3, 2));
    assert_eq!(stage.ended(run).await["status"], "completed");
}

/// A re-enabled approver counts again once any approver repeats their approval.
#[tokio::test(start_paused = true)]
async fn who_may_decide_again_counts_when_somebody_repeats_their_yes() {
    for repeats in ["user_bob", "user_cat"] {
        let people = Arc::new(Trusted(AtomicBool::new(true)));
        let asking = Asking { recipients: Arc::clone(&people) as _, ..asking(Vec::new()) };
        let says = Says::Ask { approvals: 2, approvers: Vec::new(), other_than_requester: true };
        let rule = Rule {
            name: "two".to_owned(),
            tool: "*".to_owned(),
            actor: "*".to_owned(),
            tenant: "*".to_owned(),
            says,
            limits: Vec::new(),
            beyond: Beyond::Deny,
        };
        let stage = tools().asking(asking).policy(Rules(vec![rule])).open().await;
        let run = stage.run(&write(), Level::ExecuteNotify).await;
        stage.asks(run).await;
        let decide = async |who: &str, decision: Decision| stage.decide(who, run, decision, None).await;
        decide("user_bob", Decision::Approve).await.unwrap();
        people.0.store(false, Ordering::SeqCst);
        assert_eq!(decide("user_cat", Decision::Approve).await.unwrap().approvals, 1);
        assert_eq!(code_of(decide("user_cat", Decision::Approve).await), "INVALID_TRANSITION", "nothing has changed");
        people.0.store(true, Ordering::SeqCst);
        assert_eq!(code_of(decide(repeats, Decision::Reject).await), "INVALID_TRANSITION", "a yes stays one");
        let counted = decide(repeats, Decision::Approve).await.unwrap();
        assert_eq!((counted.status, counted.approvals, counted.needed), (RequestStatus::Approved, 2, 2), "{repeats}");
        assert_eq!(stage.ended(run).await["status"], "completed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_person_who_has_lost_the_right_to_decide_can_not_use_the_link_that_they_hold() {
    let people = Arc::new(Trusted(AtomicBool::new(true)));
    let asking = Asking { recipients: Arc::clone(&people) as _, ..asking(Vec::new()) };
    let stage = tools().asking(asking).open().await;
    let run = stage.run(&write(), Level::Ask).await;
    stage.asks(run).await;
    let (token, digest) = (token(&stage, run, "user_bob").await, digest(&stage, run).await);
    flow::open_link(&stage.flow, &token).await.unwrap();
    people.0.store(false, Ordering::SeqCst);
    assert_eq!(code_of(flow::open_link(&stage.flow, &token).await), "RBAC_FORBIDDEN");
    let decided = flow::decide_by_link(&stage.flow, &token, Decision::Approve, digest, None).await;
    assert_eq!(code_of(decided), "RBAC_FORBIDDEN");
    assert_eq!(stage.show(run).await["status"], "awaiting_approval");
    people.0.store(true, Ordering::SeqCst);
    flow::decide_by_link(&stage.flow, &token, Decision::Approve, digest, None).await.expect("nothing was used up");
}

#[tokio::test(start_paused = true)]
async fn a_link_covers_what_was_shown_and_nothing_that_came_in_its_place() {
    let (stage, run) = waiting(&write()).await;
    let (old, shown) = (token(&stage, run, "user_ann").await, digest(&stage, run).await);
    let other = flow::decide_by_link(&stage.flow, &old, Decision::Approve, Digest32([7; 32]), None).await;
    assert_eq!(code_of(other), "STALE_APPROVAL", "that is not what was shown");
    flow::open_link(&stage.flow, &old).await.expect("a mistake costs nothing");
    let step = id_of(&stage.asks(run).await[0]["step_id"]);
    flow::edit_step(&stage.flow, &stage.permit("user_bob"), run, step, json!({"n": "edited"})).await.unwrap();
    assert_eq!(code_of(flow::open_link(&stage.flow, &old).await), "STALE_APPROVAL");
    assert_eq!(
        code_of(flow::decide_by_link(&stage.flow, &old, Decision::Approve, shown, None).await),
        "STALE_APPROVAL"
    );
    stage.until(run, |shown| shown["approvals"][0]["action"]["input"] == json!({"n": "edited"})).await;
    let new = token(&stage, run, "user_ann").await;
    let digest = digest(&stage, run).await;
    flow::decide_by_link(&stage.flow, &new, Decision::Approve, digest, None).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_link_that_nobody_sent_leads_nowhere() {
    let (stage, run) = waiting(&write()).await;
    let token = token(&stage, run, "user_ann").await;
    let swapped: String = token.chars().rev().collect();
    let long = format!("{token}A");
    for strange in ["", "x", &swapped, &long, &token[1..], "../../runs", &"ä".repeat(27), &"=".repeat(54)] {
        assert_eq!(code_of(flow::open_link(&stage.flow, strange).await), "NOT_FOUND", "{strange:?}");
        let said = flow::decide_by_link(&stage.flow, strange, Decision::Approve, Digest32::ZERO, None).await;
        assert_eq!(code_of(said), "NOT_FOUND", "{strange:?}");
    }
    flow::open_link(&stage.flow, &token).await.unwrap();
}
