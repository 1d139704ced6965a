//! Approval notifications: who receives them, when, and what they contain.

use crate::flow_levels::{RecordingNotifier, both};
use async_trait::async_trait;
use chimera_core::access::Level;
use chimera_core::access::tables::APPROVAL_LINKS;
use chimera_core::error::Code;
use chimera_core::flow::run::RunHead;
use chimera_core::flow::tables::NOTIFICATIONS;
use chimera_core::ledger::tables::AUDIT_LOG_ENTRIES;
use chimera_core::tool::EffectKind;
use chimera_engine::flow::port::{Recipient, Recipients};
use chimera_engine::flow::{self, Asking, Decision, RunRecipients, StartRun};
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{Air, EngineFixture, EngineSetup, ScriptedTool, chain, id_of, stage, workflow};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use uuid::Uuid;

/// Fixed recipients.
pub(crate) struct FixedRecipients(pub(crate) Vec<Recipient>);

#[async_trait]
impl Recipients for FixedRecipients {
    async fn of(&self, _: &RunHead) -> Vec<Recipient> {
        self.0.clone()
    }
}

/// The mail address of one actor.
pub(crate) fn mail_of(person: &str) -> Recipient {
    let target = format!("{person}@example.com");
    Recipient { channel: "email".to_owned(), target, person: Some(person.to_owned()) }
}

pub(crate) fn asking(recipients: Vec<Recipient>) -> Asking {
    Asking {
        base_url: "https://chimera.example".to_owned(),
        recipients: Arc::new(FixedRecipients(recipients)),
        ..chimera_testkit::flow::asking()
    }
}

/// Two tools with side effects; one of them requires approval for every call.
pub(crate) fn tools() -> EngineSetup {
    let risky =
        ScriptedTool::new("risky", EffectKind::Write).with_declaration(|tool| tool.metadata.requires_approval = true);
    stage(1).tool(ScriptedTool::new("write", EffectKind::Write).build()).tool(risky.build())
}

async fn start(stage: &EngineFixture, air: &Air, level: Level) -> Uuid {
    stage.apply(air).await;
    let notify = (level != Level::ExecuteSilent).then(both).flatten();
    stage.start(StartRun { level, notify, ..StartRun::of(air.id(), json!({})) }).await
}

/// The approval requests sent, by channel.
pub(crate) fn asks(stage: &EngineFixture, run: Uuid, channel: &str) -> Vec<Value> {
    let rows = stage.rows_of(&NOTIFICATIONS, run);
    let asks = rows.iter().filter(|row| !row.get("approval_id").is_null() && row.text("channel") == channel);
    asks.map(|row| row.get("payload").as_json().unwrap().value().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn whatever_a_run_waits_for_its_people_are_told() {
    let person = workflow("person").node(json!({"id": "ask", "type": "hitl", "prompt": "May it?", "show": {"n": 1}}));
    let cases = [
        (chain("each", &[("a", "write")]), Level::Ask, "write", json!({"n": "a"})),
        (
            chain("plan", &[("a", "write")]),
            Level::Draft,
            "plan",
            json!([{"node": "a", "tool": "write", "input": {"n": "a"}}]),
        ),
        (person, Level::ExecuteNotify, "hitl", json!({"prompt": "May it?", "show": {"n": 1}})),
        (chain("tool", &[("a", "risky")]), Level::ExecuteNotify, "risky", json!({"n": "a"})),
    ];
    let asking = Asking { recipients: Arc::new(RunRecipients), ..asking(Vec::new()) };
    let stage = tools().asking(asking).open().await;
    for (air, level, tool, input) in cases {
        let run = start(&stage, &air, level).await;
        let asked = stage.asks(run).await.remove(0);
        let (hook, mail) = (asks(&stage, run, "webhook").remove(0), asks(&stage, run, "email").remove(0));
        assert_eq!((&hook["type"], &hook["data"]["tool"]), (&json!("approval.requested"), &json!(tool)), "{level:?}");
        let told = &hook["data"];
        assert_eq!((&told["run_id"], &told["input"]), (&json!(run), &input), "{level:?}");
        for member in ["approval_id", "step_id", "node_id", "digest", "expires_at"] {
            assert_eq!(told[member], asked[member], "{member} at {level:?}");
        }
        assert_eq!(told["approve_url"], format!("https://chimera.example/runs/{run}/approve"));
        assert_eq!(told["link"], Value::Null, "a system is not a person");
        assert_eq!(mail["data"]["link"], Value::Null, "the run does not say whose address it is");
    }
}

#[tokio::test(start_paused = true)]
async fn the_store_keeps_the_digest_of_a_link_and_the_link_only_until_it_is_sent() {
    let letters = RecordingNotifier::refusing(1, Code::ExternalServiceUnavailable);
    let stage = tools().notifier(letters.clone()).asking(asking(vec![mail_of("user_ann")])).open().await;
    let run = start(&stage, &chain("w", &[("a", "write")]), Level::Ask).await;
    stage.asks(run).await;
    flow::deliver_due(&stage.flow).await.unwrap();
    let waiting = stage.rows_of(&NOTIFICATIONS, run).iter().map(|row| format!("{row:?}")).collect::<String>();
    assert!(waiting.contains("sealed") && !waiting.contains("/approvals/"), "it is tried again: {waiting}");
    tokio::time::advance(std::time::Duration::from_secs(2)).await;
    flow::deliver_due(&stage.flow).await.unwrap();
    let sent = letters.given().pop().unwrap().payload;
    let token = sent["data"]["link"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    assert_eq!(token.len(), 54);
    assert_eq!(asks(&stage, run, "email")[0]["data"]["link"], Value::Null, "the sent link is forgotten");
    let row = stage.rows_of(&APPROVAL_LINKS, run).remove(0);
    let digest = Sha256::digest(token.as_bytes());
    assert_eq!(row.get("token_digest").as_bytes(), Some(&digest[..]));
    assert_eq!((row.text("actor"), row.text("tenant_id")), ("user_ann", "acme"));
    assert!(!format!("{row:?}").contains(&token));
    assert!(!waiting.contains(&token), "whoever reads the store can't decide with what lies there");
}

/// CORE-030
#[tokio::test(start_paused = true)]
async fn l3_tells_nobody_that_it_waits_nor_that_it_has_ended_but_the_ledger() {
    let stage = tools().asking(asking(vec![mail_of("user_ann")])).open().await;
    let run = start(&stage, &chain("w", &[("a", "risky")]), Level::ExecuteSilent).await;
    stage.approve("user_ann", run).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert!(stage.rows_of(&NOTIFICATIONS, run).is_empty() && stage.rows_of(&APPROVAL_LINKS, run).is_empty());
    let entries = stage.rows_of(&AUDIT_LOG_ENTRIES, run);
    for event in ["run.started", "approval.requested", "approval.decided", "run.completed"] {
        assert!(entries.iter().any(|entry| entry.text("event_type") == event), "{event} is on record");
    }
}

/// CORE-026, CORE-027
#[tokio::test(start_paused = true)]
async fn l2_acts_first_then_tells_and_the_result_can_be_fetched() {
    let tool = ScriptedTool::new("act", EffectKind::Write);
    let made = tool.asked();
    let letters = RecordingNotifier::refusing(0, Code::ValidationFailed);
    let stage = tools().tool(tool.build()).notifier(letters.clone()).open().await;
    let run = start(&stage, &chain("w", &[("a", "act"), ("b", "act")]), Level::ExecuteNotify).await;
    stage.step(run, "a", "completed").await;
    assert_eq!(made.count("dry"), 0);
    let shown = stage.ended(run).await;
    assert_eq!(made.count("execute"), 2, "all is done when anybody is told");
    flow::deliver_due(&stage.flow).await.unwrap();
    let given = letters.given();
    let mut channels: Vec<&str> = given.iter().map(|message| message.channel.as_str()).collect();
    channels.sort_unstable();
    assert_eq!(channels, ["email", "webhook"]);
    assert!(given.iter().all(|message| message.payload["type"] == "run.completed"));
    assert!(given.iter().all(|message| message.payload["data"]["result"] == shown["result"]));
    assert!(shown["result"]["b"].is_object(), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn only_a_person_who_may_decide_gets_a_link() {
    let other = json!({"other_than_requester": true, "approvers": ["user_b*"]});
    let people = ["user_ann", "user_bob", "user_carl", "service_bot"].map(mail_of);
    let stage = tools().asking(asking(people.to_vec())).open().await;
    let air = chain("w", &[("a", "write")]).with_node_member("requires_approval", other);
    let run = start(&stage, &air, Level::ExecuteNotify).await;
    stage.asks(run).await;
    assert_eq!(asks(&stage, run, "email").len(), 4, "all are told");
    let links = stage.rows_of(&APPROVAL_LINKS, run);
    assert_eq!(links.iter().map(|row| row.text("actor")).collect::<Vec<_>>(), ["user_bob"]);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_names_a_mail_address_gets_no_link_for_itself() {
    let stage = tools().open().await;
    stage.apply(&chain("w", &[("a", "write")])).await;
    let ask = StartRun { level: Level::Ask, notify: both(), ..StartRun::of("w", json!({})) };
    let run = flow::start(&stage.flow, &stage.permit("service_chatbot"), ask).await.unwrap().run_id;
    stage.asks(run).await;
    assert_eq!(asks(&stage, run, "email")[0]["data"]["link"], Value::Null);
    assert!(stage.rows_of(&APPROVAL_LINKS, run).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_run_inside_another_tells_the_same_people_that_it_waits() {
    let stage = tools().open().await;
    stage.apply(&chain("leaf", &[("x", "write")]).with_node_member("requires_approval", json!(true))).await;
    let air = workflow("outer").node(json!({"id": "sub", "type": "workflow", "workflow_id": "leaf"}));
    let run = start(&stage, &air, Level::ExecuteNotify).await;
    let child = id_of(&stage.step(run, "sub", "running").await["child_run_id"]);
    stage.approve("user_ann", child).await;
    stage.ended(run).await;
    assert_eq!(asks(&stage, child, "email").len(), 1);
    let ends = |run| stage.rows_of(&NOTIFICATIONS, run).iter().filter(|row| row.get("approval_id").is_null()).count();
    assert_eq!((ends(child), ends(run)), (0, 2), "of the end only the outer one tells");
}

#[tokio::test(start_paused = true)]
async fn what_was_decided_or_stopped_before_it_was_told_is_not_told_any_more() {
    for stopped in [false, true] {
        let letters = RecordingNotifier::refusing(0, Code::ValidationFailed);
        let stage = tools().notifier(letters.clone()).open().await;
        let run = start(&stage, &chain("w", &[("a", "write")]), Level::Ask).await;
        stage.asks(run).await;
        if stopped {
            flow::cancel(&stage.flow, &stage.permit("user_ann"), run, None).await.unwrap();
        } else {
            stage.decide("user_ann", run, Decision::Approve, None).await.unwrap();
        }
        stage.ended(run).await;
        flow::deliver_due(&stage.flow).await.unwrap();
        let told: Vec<Value> = letters.given().into_iter().map(|message| message.payload["type"].clone()).collect();
        let end = if stopped { "run.cancelled" } else { "run.completed" };
        assert_eq!(told, [json!(end), json!(end)], "nobody is asked about what is over");
        let messages = stage.show(run).await["messages"].clone();
        let asks = messages.as_array().unwrap().iter().filter(|message| message["type"] == "approval.requested");
        let asks: Vec<_> = asks.map(|message| (&message["status"], message["deliveries"].clone())).collect();
        assert_eq!(asks, vec![(&json!("dropped"), json!([])); 2]);
        let entries = stage.rows_of(&AUDIT_LOG_ENTRIES, run);
        let dropped = entries.iter().filter(|entry| entry.text("event_type") == "notification.dropped");
        assert_eq!(dropped.count(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_shows_no_credential_and_not_more_than_fits() {
    let stage = tools().open().await;
    let long = "x".repeat(20_000);
    for (id, input, shown) in [
        ("secret", json!({"n": 1, "password": "hunter2hunter2"}), json!({"n": 1, "password": "[redacted]"})),
        ("long", json!({"text": long}), Value::Null),
    ] {
        let air = workflow(id).function("a", "write", input.clone());
        let run = start(&stage, &air, Level::Ask).await;
        let asked = stage.asks(run).await.remove(0);
        let told = asks(&stage, run, "webhook")[0]["data"].clone();
        assert_eq!((&told["input"], &told["digest"]), (&shown, &asked["digest"]), "{id}");
        assert_eq!(told["input_bytes"], input.to_string().len(), "{id}");
        assert_eq!(asked["action"]["input"], input, "whoever decides sees it all");
    }
}
