//! Calls whose outcome is unknown: notifications are committed with the change that records the doubt.

use crate::flow_ask::{asking, mail_of};
use crate::flow_levels::{RecordingNotifier, both};
use chimera_core::access::Level;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::run::RunHead;
use chimera_core::flow::tables::{EFFECTS, NOTIFICATIONS, RUNS, STEPS};
use chimera_core::record::{Row, RowCount, Step, Tx};
use chimera_core::tool::EffectKind;
use chimera_engine::flow::port::{CheckResult, Recipient, Recipients, Sent, ToolError};
use chimera_engine::flow::{self, Asking, DoubtFilter, OutcomeReport, StartRun};
use chimera_engine::port::Records;
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{EngineFixture, EngineSetup, ScriptedTool, chain, id_of, shown, stage, workflow};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

fn no_answer() -> ToolError {
    let body =
        ErrorBody { retryable: false, ..ErrorBody::new(Code::ExternalServiceError, "no answer, token=abcd1234") };
    ToolError { body: Box::new(body), sent: Sent::Maybe }
}

/// A tool whose calls and undos never return.
fn lost() -> EngineSetup {
    let lost = ScriptedTool::new("lost", EffectKind::Write).answers(|_, _| Err(no_answer()));
    let kept = ScriptedTool::new("kept", EffectKind::Write).on_rollback(|_, _| Err(no_answer()));
    stage(1).tool(lost.build()).tool(kept.build())
}

async fn start(stage: &EngineFixture, level: Level) -> Uuid {
    stage.apply(&chain("w", &[("a", "lost")])).await;
    let notify = (level != Level::ExecuteSilent).then(both).flatten();
    stage.start(StartRun { level, notify, ..StartRun::of("w", json!({})) }).await
}

fn told(stage: &EngineFixture, run: Uuid) -> Vec<(String, Value)> {
    let payload = |row: &Row| row.get("payload").as_json().unwrap().value().unwrap();
    let rows = stage.rows_of(&NOTIFICATIONS, run);
    let doubts = rows.iter().filter(|row| payload(row)["type"] == "step.outcome_unknown");
    doubts.map(|row| (row.text("target").to_owned(), payload(row))).collect()
}

#[tokio::test(start_paused = true)]
async fn those_who_could_settle_a_call_in_doubt_are_told_once_with_the_change_that_records_it() {
    let stage = lost().asking(asking(vec![mail_of("user_ann"), mail_of("user_ann")])).open().await;
    let run = start(&stage, Level::ExecuteNotify).await;
    let step = stage.step(run, "a", "outcome_unknown").await;
    let messages = told(&stage, run);
    assert_eq!(messages.len(), 1, "the rows and the message come together: {messages:?}");
    assert_eq!(messages[0].0, "user_ann@example.com");
    let data = &messages[0].1["data"];
    assert_eq!((&data["run_id"], &data["step_id"]), (&json!(run), &step["step_id"]));
    assert_eq!((&data["node_id"], &data["tool"], &data["call"]), (&json!("a"), &json!("lost"), &json!("execute")));
    let id = step["step_id"].as_str().unwrap();
    assert_eq!(data["resolve_url"], format!("https://chimera.example/runs/{run}/steps/{id}/resolve"));
    assert_eq!(data["resolve_commands"][0], format!("chimera runs resolve {run} {id} --happened"));
    let reason = data["reason"].as_str().unwrap();
    assert!(reason.starts_with("no answer") && !reason.contains("abcd1234"), "{reason}");

    let again = stage.restart(lost().asking(asking(vec![mail_of("user_ann")]))).await;
    flow::pause(&again.flow, &again.permit("user_ann"), run).await.unwrap();
    again.until(run, |run| run["paused"] == true).await;
    assert_eq!(told(&again, run).len(), 1, "whoever takes the run up tells nobody anew");
}

/// An unregistered external mailbox, and a registered one.
struct ExternalRecipients;

#[async_trait::async_trait]
impl Recipients for ExternalRecipients {
    async fn of(&self, _: &RunHead) -> Vec<Recipient> {
        let email = |target: &str| Recipient { channel: "email".to_owned(), target: target.to_owned(), person: None };
        vec![email("mallory@evil.test"), email("ann@acme.example")]
    }

    fn is_outsider(&self, _: &str, _: &str, recipient: &Recipient) -> bool {
        recipient.target == "mallory@evil.test"
    }
}

#[tokio::test(start_paused = true)]
async fn somebody_outside_hears_that_a_call_is_in_doubt_and_not_which() {
    let stage = lost().asking(Asking { recipients: Arc::new(ExternalRecipients), ..asking(Vec::new()) }).open().await;
    let run = start(&stage, Level::ExecuteNotify).await;
    stage.step(run, "a", "outcome_unknown").await;
    let messages = told(&stage, run);
    let of = |to: &str| messages.iter().find(|(target, _)| target == to).map(|(_, told)| &told["data"]).unwrap();
    let (outside, inside) = (of("mallory@evil.test"), of("ann@acme.example"));
    assert_eq!((&outside["withheld"], &outside["run_id"]), (&json!(true), &json!(run)));
    for member in ["tool", "node_id", "reason", "actor", "resolve_commands", "resolve_url"] {
        assert!(outside.get(member).is_none() && inside.get(member).is_some(), "{member}: {outside}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_about_what_is_settled_by_now_is_dropped() {
    let letters = RecordingNotifier::refusing(0, Code::ExternalServiceUnavailable);
    let stage = lost().notifier(letters.clone()).open().await;
    let run = start(&stage, Level::ExecuteNotify).await;
    let step = id_of(&stage.step(run, "a", "outcome_unknown").await["step_id"]);
    flow::report_outcome(&stage.flow, &stage.permit("user_ann"), run, OutcomeReport::happened(step, None))
        .await
        .unwrap();
    stage.ended(run).await;
    flow::deliver_due(&stage.flow).await.unwrap();
    let sent: Vec<Value> = letters.given().iter().map(|message| message.payload["type"].clone()).collect();
    assert_eq!(sent, ["run.completed", "run.completed"]);
    let dropped = stage.show(run).await["messages"].clone();
    let dropped = dropped.as_array().unwrap().iter().filter(|message| message["status"] == "dropped");
    assert_eq!(dropped.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_doubt_at_l3_is_told_to_those_who_look_after_runs() {
    let stage = lost().asking(asking(vec![mail_of("user_ann")])).open().await;
    let run = start(&stage, Level::ExecuteSilent).await;
    stage.step(run, "a", "outcome_unknown").await;
    assert_eq!(told(&stage, run).len(), 1);
    assert_eq!(stage.show(run).await["messages"].as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_undo_in_doubt_is_told_too_and_survives_a_restart_until_somebody_says_that_it_was_undone() {
    let stage = lost().asking(asking(vec![mail_of("user_ann")])).open().await;
    stage.apply(&chain("w", &[("a", "kept")])).await;
    let run = stage.start(StartRun::of("w", json!({}))).await;
    stage.ended(run).await;
    flow::rollback(&stage.flow, &stage.permit("user_ann"), run, None, None).await.unwrap();
    stage.until(run, |run| run["in_doubt_since"].is_string()).await;
    let data = told(&stage, run).remove(0).1["data"].clone();
    assert_eq!((&data["call"], &data["node_id"]), (&json!("undo"), &json!("a")));
    assert_eq!(data["resolve_commands"][1], format!("chimera runs rollback {run} --by-hand"));

    let again = stage.restart(lost().asking(asking(vec![mail_of("user_ann")]))).await;
    let admin = again.permit("admin");
    let list = async || {
        flow::list_doubts(&again.flow, &admin, DoubtFilter { limit: 10, ..DoubtFilter::default() }).await.map(shown)
    };
    assert_eq!(list().await.unwrap()["items"][0]["call"], "undo");
    flow::rollback(&again.flow, &admin, run, None, None).await.unwrap();
    again.until(run, |run| run["rollback"]["round"] == 2 && run["rollback"]["ended"] == true).await;
    assert_eq!(list().await.unwrap()["items"].as_array().unwrap().len(), 1, "it failed again");
    flow::mark_rolled_back(&again.flow, &admin, run, None).await.unwrap();
    again.status(run, "rolled_back").await;
    assert_eq!(list().await.unwrap()["items"], json!([]));
    for table in [&RUNS, &STEPS] {
        assert!(again.rows(table).iter().all(|row| row.get("in_doubt_since").is_null()), "{}", table.name);
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_sees_only_their_own_runs_finds_only_their_own_doubts() {
    let stage = lost().open().await;
    let run = start(&stage, Level::ExecuteNotify).await;
    stage.step(run, "a", "outcome_unknown").await;
    let narrow = |actor: &str| {
        let entry = chimera_core::access::ActorEntry::default_for(actor, chimera_testkit::flow::TENANT);
        chimera_engine::access::Permit::for_entry(entry)
    };
    let of = |actor: Option<&str>| DoubtFilter { actor: actor.map(str::to_owned), limit: 1, ..DoubtFilter::default() };
    let own = shown(flow::list_doubts(&stage.flow, &narrow("user_ann"), of(None)).await.unwrap());
    assert_eq!(own["items"][0]["run_id"], json!(run));
    let others = shown(flow::list_doubts(&stage.flow, &narrow("user_bob"), of(None)).await.unwrap());
    assert_eq!(others, json!({"items": [], "next_cursor": null}));
    let refused = flow::list_doubts(&stage.flow, &narrow("user_bob"), of(Some("user_ann"))).await;
    assert_eq!(chimera_testkit::flow::code_of(refused), "RBAC_FORBIDDEN");
    let elsewhere = shown(flow::list_doubts(&stage.flow, &stage.permit_of("other", "admin"), of(None)).await.unwrap());
    assert_eq!(elsewhere["items"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn gauges_can_be_set_on_any_store() {
    let stage = lost().open().await;
    let run = start(&stage, Level::ExecuteNotify).await;
    stage.step(run, "a", "outcome_unknown").await;
    flow::sample_gauges(&stage.flow).await.unwrap();
}

/// A call with outside effects has happened, whatever it returned.
#[tokio::test(start_paused = true)]
async fn a_good_answer_that_can_not_be_kept_leaves_a_write_in_doubt() {
    for (effect, status) in [(EffectKind::Write, "outcome_unknown"), (EffectKind::Read, "failed")] {
        let tool = ScriptedTool::new("odd", effect).answers(|_, _| Ok(json!({"id": "a\0b"})));
        let asked = tool.asked();
        let stage = stage(1).tool(tool.build()).open().await;
        let run = stage.run(&chain("w", &[("a", "odd")]), Level::ExecuteSilent).await;
        stage.step(run, "a", status).await;
        assert_eq!(asked.count("execute"), 1, "{effect:?}");
    }
}

/// The tool supports `check`.
#[tokio::test(start_paused = true)]
async fn a_good_answer_that_can_not_be_kept_is_looked_up_where_that_is_possible() {
    let tool = ScriptedTool::new("odd", EffectKind::Write)
        .answers(|_, _| Ok(json!({"id": "a\0b"})))
        .on_check(|_| Ok(CheckResult::Happened(json!({"id": "a"}))));
    let asked = tool.asked();
    let stage = stage(1).tool(tool.build()).open().await;
    let run = stage.run(&chain("w", &[("a", "odd")]), Level::ExecuteSilent).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!((asked.count("execute"), asked.count("check")), (1, 1));
}

/// A run whose call was in flight when the process died, and whose row in `effects` was deleted; and the id that the
/// call was sent with.
async fn without_record(tool: ScriptedTool, item: bool) -> (EngineFixture, Uuid, Uuid) {
    let first = stage(1).tool(tool.with_delay(|_| Duration::from_secs(5)).build()).open().await;
    let air = match item {
        false => chain("w", &[("a", "slow")]),
        true => workflow("w").node(
            json!({"id": "a", "type": "map", "over": [1], "do": {"type": "function", "fn": "slow", "inputs": {}}}),
        ),
    };
    let run = first.run(&air, Level::ExecuteSilent).await;
    first.until(run, |_| !first.rows_of(&EFFECTS, run).is_empty()).await;
    let sent = first.rows_of(&EFFECTS, run)[0].uuid("id");
    let gone = Step::Delete { table: &EFFECTS, conditions: Vec::new(), rows: RowCount::Exactly(1) };
    first.records.commit(Tx { steps: vec![gone], ..Tx::default() }).await.unwrap();
    (first, run, sent)
}

async fn until_in_doubt(stage: &EngineFixture, run: Uuid) {
    stage.until(run, |_| stage.rows_of(&STEPS, run).iter().any(|row| row.text("status") == "outcome_unknown")).await;
}

/// The row of a call in flight is deleted, and the run is loaded again.
#[tokio::test(start_paused = true)]
async fn a_call_whose_record_is_gone_is_in_doubt_and_not_made_again() {
    for item in [false, true] {
        for tool in [
            (|| ScriptedTool::new("slow", EffectKind::Write)) as fn() -> ScriptedTool,
            || ScriptedTool::new("slow", EffectKind::Write).with_declaration(|tool| tool.metadata.idempotent = true),
            || ScriptedTool::new("slow", EffectKind::Write).on_check(|_| Ok(CheckResult::DidNotHappen)),
            || {
                ScriptedTool::new("slow", EffectKind::Write)
                    .on_check(|_| Err(ToolError::not_sent(Code::ValidationFailed, "no such call")))
            },
        ] {
            let (first, run, _) = without_record(tool(), item).await;
            let tool = tool();
            let asked = tool.asked();
            let second = first.restart(stage(1).tool(tool.build())).await;
            until_in_doubt(&second, run).await;
            assert_eq!(asked.count("execute"), 0);
        }
    }
}

/// The same while the call waits for a retry: the row recorded whether the first attempt may have happened.
#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_another_try_and_whose_record_is_gone_is_in_doubt() {
    for sent in [Sent::No, Sent::Maybe] {
        let tool = || {
            let idempotent =
                ScriptedTool::new("slow", EffectKind::Write).with_declaration(|tool| tool.metadata.idempotent = true);
            idempotent.answers(move |_, _| {
                let body = ErrorBody::new(Code::RateLimited, "later").retry_after(60);
                Err(ToolError { body: Box::new(body), sent })
            })
        };
        let first = stage(1).tool(tool().build()).open().await;
        let run = first.run(&chain("w", &[("a", "slow")]), Level::ExecuteSilent).await;
        first.step(run, "a", "retry_wait").await;
        let gone = Step::Delete { table: &EFFECTS, conditions: Vec::new(), rows: RowCount::Exactly(1) };
        first.records.commit(Tx { steps: vec![gone], ..Tx::default() }).await.unwrap();
        let tool = tool();
        let asked = tool.asked();
        let second = first.restart(stage(1).tool(tool.build())).await;
        until_in_doubt(&second, run).await;
        assert_eq!(asked.count("execute"), 0, "{sent:?}");
    }
}

/// The tool is asked about exactly the call that was sent.
#[tokio::test(start_paused = true)]
async fn a_call_whose_record_is_gone_is_looked_for_under_the_id_that_it_was_sent_with() {
    for item in [false, true] {
        let (first, run, sent) = without_record(ScriptedTool::new("slow", EffectKind::Write), item).await;
        let tool = ScriptedTool::new("slow", EffectKind::Write).on_check(move |ctx| match ctx.effect_id == sent {
            true => Ok(CheckResult::Happened(json!({"id": "a"}))),
            false => Ok(CheckResult::DidNotHappen),
        });
        let asked = tool.asked();
        let second = first.restart(stage(1).tool(tool.build())).await;
        assert_eq!(second.ended(run).await["status"], "completed");
        assert_eq!((asked.count("execute"), asked.count("check")), (0, 1));
    }
}
