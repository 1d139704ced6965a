//! L2 and L3: who is notified, how messages are delivered, and reports about unknown outcomes.

use async_trait::async_trait;
use chimera_core::access::Level;
use chimera_core::error::Code;
use chimera_core::flow::tables::{EFFECTS, NOTIFICATIONS, RUNS};
use chimera_core::ledger::tables::AUDIT_LOG_ENTRIES;
use chimera_core::tool::{EffectKind, Risk};
use chimera_engine::flow::port::{DeliveryReceipt, Message, Notifier, ToolError};
use chimera_engine::flow::{self, OutcomeReport, StartRun};
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{EngineFixture, ScriptedTool, chain, code_of, id_of, stage, workflow};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use uuid::Uuid;

/// Records messages, and refuses the first few.
pub(crate) struct RecordingNotifier {
    refuse: usize,
    code: Code,
    given: Mutex<Vec<Message>>,
}

impl RecordingNotifier {
    pub(crate) fn refusing(refuse: usize, code: Code) -> Arc<Self> {
        Arc::new(Self { refuse, code, given: Mutex::default() })
    }

    pub(crate) fn given(&self) -> Vec<Message> {
        self.given.lock().unwrap().clone()
    }
}

#[async_trait]
impl Notifier for RecordingNotifier {
    fn check(&self, channel: &str, target: &str) -> Result<(), ToolError> {
        match (channel, target) {
            ("email", "unset@example.com") => Err(ToolError::not_sent(Code::ToolUnavailable, "no mail server is set")),
            _ => Ok(()),
        }
    }

    async fn send(&self, message: &Message) -> Result<DeliveryReceipt, ToolError> {
        let mut given = self.given.lock().unwrap();
        given.push(message.clone());
        if given.len() <= self.refuse {
            Err(ToolError::not_sent(self.code, "not now"))
        } else {
            Ok(DeliveryReceipt::default())
        }
    }
}

async fn told(stage: &EngineFixture, level: Level, notify: Option<Value>) -> Uuid {
    stage.apply(&chain("w", &[("a", "again")])).await;
    let run = stage.start(StartRun { level, notify, ..StartRun::of("w", json!({})) }).await;
    if level == Level::Ask || level == Level::Draft {
        stage.approve("user_ann", run).await;
    }
    assert_eq!(stage.ended(run).await["status"], "completed");
    run
}

pub(crate) fn both() -> Option<Value> {
    Some(json!({"webhook": "https://hooks.example/1", "email": "ann@example.com"}))
}

/// CORE-014, CORE-031, CORE-035
#[tokio::test(start_paused = true)]
async fn l2_writes_a_message_for_each_way_that_was_asked_for_and_l3_tells_nobody() {
    let stage = stage(1).open().await;
    let run = told(&stage, Level::ExecuteNotify, both()).await;
    let rows = stage.rows_of(&NOTIFICATIONS, run);
    let mut ways: Vec<_> =
        rows.iter().map(|row| (row.text("channel"), row.text("target"), row.text("status"))).collect();
    ways.sort_unstable();
    assert_eq!(ways, [("email", "ann@example.com", "pending"), ("webhook", "https://hooks.example/1", "pending")]);
    let payload = rows[0].get("payload").as_json().unwrap().value().unwrap();
    assert_eq!((&payload["type"], &payload["data"]["run_id"]), (&json!("run.completed"), &json!(run)));
    let notify = |notify| StartRun { level: Level::ExecuteSilent, notify, ..StartRun::of("w", json!({})) };
    let refused = flow::start(&stage.flow, &stage.permit("user_ann"), notify(both())).await;
    assert_eq!(code_of(refused), "VALIDATION_FAILED", "nobody is promised what will not come");
    let silent = told(&stage, Level::ExecuteSilent, None).await;
    assert!(stage.rows_of(&NOTIFICATIONS, silent).is_empty());
    let kept = stage.rows(&RUNS).into_iter().find(|row| row.uuid("id") == silent).unwrap();
    assert_eq!(kept.text("autonomy_level"), "L3_ExecuteSilent", "it is on record all the same");
    assert!(stage.events(silent).await.contains(&"run.completed".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn whoever_asked_to_be_told_is_told_of_approved_work_too() {
    for level in [Level::Ask, Level::Draft] {
        let stage = stage(1).open().await;
        let run = told(&stage, level, both()).await;
        let rows = stage.rows_of(&NOTIFICATIONS, run);
        let ended = rows.iter().filter(|row| row.get("approval_id").is_null());
        assert_eq!(ended.count(), 2, "{level:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_run_of_l2_is_told_too() {
    let stage =
        stage(1).tool(ScriptedTool::new("down", EffectKind::Read).failing_at(&[1, 2, 3, 4]).build()).open().await;
    stage.apply(&chain("bad", &[("a", "down")])).await;
    let run = stage.start(StartRun { notify: both(), ..StartRun::of("bad", json!({})) }).await;
    stage.ended(run).await;
    let payload = stage.rows_of(&NOTIFICATIONS, run)[0].get("payload").as_json().unwrap().value().unwrap();
    assert_eq!(
        (&payload["type"], &payload["data"]["error"]["code"]),
        (&json!("run.failed"), &json!("EXTERNAL_SERVICE_ERROR"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_message_is_tried_again_later_and_by_another_process_too() {
    let letters = RecordingNotifier::refusing(2, Code::ExternalServiceUnavailable);
    let first = stage(1).notifier(letters.clone()).open().await;
    let run = told(&first, Level::ExecuteNotify, Some(json!({"webhook": "https://hooks.example/1"}))).await;
    flow::deliver_due(&first.flow).await.unwrap();
    flow::deliver_due(&first.flow).await.unwrap();
    assert_eq!(letters.given().len(), 1, "it waits before it is tried again");
    let second = first.restart(stage(1).notifier(letters.clone())).await;
    for seconds in [2, 4] {
        tokio::time::advance(Duration::from_secs(seconds)).await;
        flow::deliver_due(&second.flow).await.unwrap();
    }
    let given = letters.given();
    assert_eq!(given.len(), 3);
    assert!(given.iter().all(|message| message.id == given[0].id), "the receiver can tell a repetition");
    let row = &second.rows(&NOTIFICATIONS)[0];
    assert_eq!((row.text("status"), row.int("attempt")), ("sent", 3));
    let shown = second.show(run).await["messages"][0]["deliveries"].clone();
    let tries: Vec<_> = shown.as_array().unwrap().iter().map(|one| (&one["attempt"], &one["outcome"])).collect();
    let expected = [(1, "failed"), (2, "failed"), (3, "delivered")].map(|(n, how)| (json!(n), json!(how)));
    assert_eq!(tries, expected.each_ref().map(|(n, how)| (n, how)));
    assert_eq!((&shown[0]["error"], &shown[2]["error"]), (&json!("EXTERNAL_SERVICE_UNAVAILABLE"), &json!(null)));
    assert!(shown[0]["at"].as_str() < shown[1]["at"].as_str() && shown[1]["duration_ms"].is_i64(), "{shown}");
    tokio::time::advance(Duration::from_secs(3_600)).await;
    flow::deliver_due(&second.flow).await.unwrap();
    assert_eq!(letters.given().len(), 3, "what was delivered is not sent again");
}

/// Accepts a message and never returns.
struct HangingNotifier;

#[async_trait]
impl Notifier for HangingNotifier {
    fn check(&self, _: &str, _: &str) -> Result<(), ToolError> {
        Ok(())
    }

    async fn send(&self, _: &Message) -> Result<DeliveryReceipt, ToolError> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_try_that_a_crash_cut_off_is_on_record_and_made_again() {
    let first = stage(1).notifier(Arc::new(HangingNotifier)).open().await;
    let run = told(&first, Level::ExecuteNotify, Some(json!({"webhook": "https://hooks.example/1"}))).await;
    let cut = tokio::time::timeout(Duration::from_secs(1), flow::deliver_due(&first.flow)).await;
    assert!(cut.is_err(), "it was cut in the middle");
    let letters = RecordingNotifier::refusing(0, Code::ValidationFailed);
    let second = first.restart(stage(1).notifier(letters.clone())).await;
    flow::deliver_due(&second.flow).await.unwrap();
    assert!(letters.given().is_empty(), "whoever took it may still be at it");
    tokio::time::advance(Duration::from_secs(60)).await;
    flow::deliver_due(&second.flow).await.unwrap();
    let message = second.show(run).await["messages"][0].clone();
    let outcomes: Vec<&Value> = message["deliveries"].as_array().unwrap().iter().map(|one| &one["outcome"]).collect();
    assert_eq!((&message["status"], outcomes), (&json!("sent"), vec![&json!("unknown"), &json!("delivered")]));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_can_not_be_delivered_is_given_up() {
    let letters = RecordingNotifier::refusing(9, Code::ValidationFailed);
    let stage = stage(1).notifier(letters.clone()).open().await;
    let run = told(&stage, Level::ExecuteNotify, Some(json!({"email": "nobody@example.com"}))).await;
    flow::deliver_due(&stage.flow).await.unwrap();
    let row = &stage.rows(&NOTIFICATIONS)[0];
    assert_eq!((row.text("status"), letters.given().len()), ("failed", 1));
    let shown = stage.show(run).await;
    assert_eq!((&shown["messages"][0]["status"], &shown["messages"][0]["attempt"]), (&json!("failed"), &json!(1)));
    assert_eq!(shown["messages"][0]["error"]["code"], "VALIDATION_FAILED", "whoever asks can see it");
    let entries = stage.rows_of(&AUDIT_LOG_ENTRIES, run);
    assert!(entries.iter().any(|entry| entry.text("event_type") == "notification.failed"), "and it is on record");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_could_never_tell_is_refused() {
    let letters = RecordingNotifier::refusing(0, Code::ValidationFailed);
    let stage = stage(1).notifier(letters).open().await;
    stage.apply(&chain("w", &[("a", "again")])).await;
    let ask =
        |level| StartRun { level, notify: Some(json!({"email": "unset@example.com"})), ..StartRun::of("w", json!({})) };
    let refused = flow::start(&stage.flow, &stage.permit("user_ann"), ask(Level::ExecuteNotify)).await;
    assert_eq!(code_of(refused), "TOOL_UNAVAILABLE");
    assert!(stage.rows(&RUNS).is_empty());
}

fn lost() -> ScriptedTool {
    ScriptedTool::new("lost", EffectKind::Write).answers(|ctx, input| match ctx.attempt {
        1 => Err(ToolError::maybe_sent(Code::ExternalServiceUnavailable, "the answer was lost")),
        _ => Ok(json!({"echo": input})),
    })
}

#[tokio::test(start_paused = true)]
async fn a_person_says_that_it_happened_and_what_it_gave() {
    let tool = lost();
    let made = tool.asked();
    let stage = stage(1).tool(tool.build()).open().await;
    let run = stage.run(&chain("w", &[("a", "lost"), ("b", "pure")]), Level::ExecuteSilent).await;
    let step = id_of(&stage.step(run, "a", "outcome_unknown").await["step_id"]);
    assert_eq!(stage.flow.active_runs(), 0, "it waits in the store");
    let robot = stage.permit("service_chatbot");
    assert_eq!(
        code_of(flow::report_outcome(&stage.flow, &robot, run, OutcomeReport::happened(step, None)).await),
        "RBAC_FORBIDDEN"
    );
    let ann = stage.permit("user_ann");
    let strange =
        flow::report_outcome(&stage.flow, &ann, run, OutcomeReport::happened(step, Some(json!("text")))).await;
    assert_eq!(code_of(strange), "VALIDATION_FAILED", "the tool never gives that");
    flow::report_outcome(
        &stage.flow,
        &ann,
        run,
        OutcomeReport {
            step,
            attempt: None,
            happened: true,
            output: Some(json!({"id": 9})),
            notes: Some("found it".to_owned()),
        },
    )
    .await
    .unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(stage.step(run, "a", "completed").await["outputs"]["id"], 9);
    assert_eq!(made.count("execute"), 1);
    assert_eq!(stage.rows_of(&EFFECTS, run)[0].text("status"), "succeeded");
    assert_eq!(
        code_of(flow::report_outcome(&stage.flow, &ann, run, OutcomeReport::happened(step, None)).await),
        "INVALID_TRANSITION"
    );
}

#[tokio::test(start_paused = true)]
async fn a_person_says_that_it_never_happened_and_it_is_sent_under_the_same_key() {
    let tool = lost();
    let made = tool.asked();
    let stage = stage(1).tool(tool.build()).open().await;
    let run = stage.run(&chain("w", &[("a", "lost")]), Level::ExecuteSilent).await;
    let step = id_of(&stage.step(run, "a", "outcome_unknown").await["step_id"]);
    let ann = stage.permit("user_ann");
    flow::report_outcome(&stage.flow, &ann, run, OutcomeReport::did_not_happen(step)).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
    let made = made.of("execute");
    assert_eq!(made.len(), 2);
    assert_eq!((made[0].effect, &made[0].key), (made[1].effect, &made[1].key));
}

/// No run is admitted at L2 or L3 with a high-risk tool, so a tool that became one needs approval.
#[tokio::test(start_paused = true)]
async fn a_tool_that_was_declared_high_risk_since_the_run_was_let_in_is_asked_about() {
    let note = |risk: Risk| {
        ScriptedTool::new("note", EffectKind::Write).with_declaration(|tool| tool.metadata.risk_level = risk)
    };
    let each = json!({"n": "${item}"});
    let air = workflow("w")
        .function("a", "note", json!({"n": 1}))
        .function("b", "note", json!({"n": 2}))
        .with_node_member("delay_seconds", json!(60))
        .map("m", json!([3, 4]), "note", each)
        .with_node_member("delay_seconds", json!(60))
        .edge("a", "b")
        .edge("b", "m");
    for level in [Level::ExecuteNotify, Level::ExecuteSilent] {
        let first = stage(1).tool(note(Risk::Low).build()).open().await;
        let run = first.run(&air, level).await;
        first.step(run, "a", "completed").await;
        let tool = note(Risk::High);
        let made = tool.asked();
        let second = first.restart(stage(1).tool(tool.build())).await;
        for (node, calls) in [("b", 0), ("m", 1), ("m", 2)] {
            let shown = second.until(run, |shown| shown["approvals"][0]["node_id"] == node).await;
            let asked = &shown["approvals"][0];
            assert_eq!(made.count("execute"), calls, "{level:?}: {asked}");
            let reason = "the tool can do much harm, which was not known when the level was decided";
            assert_eq!(asked["action"]["reason"], reason, "{level:?}");
            second.approve("user_ann", run).await;
            second.until(run, |now| now["approvals"][0]["approval_id"] != asked["approval_id"]).await;
        }
        assert_eq!(second.ended(run).await["status"], "completed");
    }
}
