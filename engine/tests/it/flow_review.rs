//! The review of an approval request, as every interface shows it.

use chimera_core::access::Level;
use chimera_core::error::Code;
use chimera_core::flow::review::{self, ApprovalStatus, Review, Subject};
use chimera_core::flow::tables::{NOTIFICATIONS, RUN_SIGNALS};
use chimera_core::ledger::tables::AUDIT_LOG_ENTRIES;
use chimera_core::tool::EffectKind;
use chimera_engine::flow::{self, Decide, Decision};
use chimera_testkit::flow::{EngineFixture, ScriptedTool, chain, id_of, stage, workflow};
use serde_json::{Value, json};
use std::time::Duration;
use uuid::Uuid;

fn write() -> ScriptedTool {
    ScriptedTool::new("write", EffectKind::Write)
}

fn review(asked: &Value) -> Review {
    serde_json::from_value(asked["review"].clone()).unwrap()
}

async fn refused(stage: &EngineFixture, run: Uuid, asked: &Value) -> (String, String, Value) {
    let body = stage.decide("user_ann", run, Decision::Approve, Some(asked)).await.unwrap_err().body();
    (body.code.clone(), body.message.clone(), json!(body))
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_the_dry_run_refused_says_so_and_can_not_be_approved() {
    for (code, blocks) in [(Code::PolicyDenied, true), (Code::RbacForbidden, true), (Code::ExternalServiceError, false)]
    {
        let tool = write().with_dry_run_error(code, "that host is not allowed");
        let made = tool.asked();
        let stage = stage(1).tool(tool.build()).open().await;
        let run = stage.run(&chain("w", &[("a", "write")]), Level::Draft).await;
        let asked = stage.asks(run).await.remove(0);
        let text = review::lines(&review(&asked)).join("\n");
        assert!(text.contains("that host is not allowed"), "{code:?}: {text}");
        assert_eq!(text.contains("It can't be approved"), blocks, "{text}");
        if blocks {
            let (code, message, body) = refused(&stage, run, &asked).await;
            assert_eq!(code, "POLICY_DENIED");
            assert!(message.contains("a: that host is not allowed") && message.contains("reject"), "{message}");
            assert_eq!(body["details"]["refusals"][0], "a: that host is not allowed", "{body}");
            assert_eq!(made.count("execute"), 0);
            stage.decide("user_ann", run, Decision::Reject, Some(&asked)).await.expect("no is always an answer");
            assert_eq!(stage.ended(run).await["status"], "cancelled");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_call_stands_in_the_text_whole_with_its_count() {
    let stage = stage(1).tool(write().build()).open().await;
    let long = "x".repeat(300);
    let air =
        workflow("w").map("m", json!("${inputs.list}"), "write", json!({"n": "${item}", "text": long})).in_parallel(4);
    let run = stage.run_with(&air, Level::Draft, json!({"list": (0..30).collect::<Vec<_>>()})).await;
    let asked = stage.asks(run).await.remove(0);
    let review = review(&asked);
    assert_eq!((review.subject, review.calls_listed, review.calls_unlisted), (Subject::Plan, 30, 0));
    let text = review::lines(&review).join("\n");
    assert!(text.contains("(30 calls)") && text.contains("m[29] calls write"), "{text}");
    assert_eq!(text.matches(&format!("text: {long}")).count(), 30);
    for part in ["Asked for by: user_ann", "dry run: would write", "Open until: ", "Digest: "] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_is_shown_in_words_with_what_goes_with_it() {
    let stage = stage(1).open().await;
    let shown = json!({"amount": 12, "to": "acme\u{202e}gro"});
    let air = workflow("w").node(json!({"id": "ask", "type": "hitl", "prompt": "Pay\nit?", "show": shown}));
    let run = stage.run(&air, Level::ExecuteNotify).await;
    let text = review::lines(&review(&stage.asks(run).await[0])).join("\n");
    for part in ["The question:\n  Pay\n  it?\n", "  amount: 12\n  to: acme\\u202egro"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_changed_since_it_was_last_shown_is_told() {
    let stage = stage(1).tool(write().build()).open().await;
    let run =
        stage.run_with(&workflow("w").function("a", "write", json!({"text": "one"})), Level::Draft, json!({})).await;
    let old = stage.asks(run).await.remove(0);
    assert!(review(&old).changes.is_empty());
    flow::edit_planned(&stage.flow, &stage.permit("user_ann"), run, "a", json!({"text": "two"})).await.unwrap();
    let new = stage.until(run, |shown| {
        let digest = &shown["approvals"][0]["digest"];
        !digest.is_null() && *digest != old["digest"]
    });
    let text = review::lines(&review(&new.await["approvals"][0])).join("\n");
    assert!(text.contains("Changed since it was last shown:\n  a/input/text\n    was: one\n    is: two"), "{text}");
    let (code, message, body) = refused(&stage, run, &old).await;
    assert_eq!(code, "STALE_APPROVAL");
    assert!(message.contains("superseded") && message.contains("by user_ann"), "{message}");
    assert_eq!(body["details"]["standing"]["status"], "superseded", "{body}");
}

#[tokio::test(start_paused = true)]
async fn expired_and_decided_are_told_apart_with_who_and_when() {
    let stage = stage(1).tool(write().build()).open().await;
    let decided = stage.run(&chain("w", &[("a", "write")]), Level::Draft).await;
    let asked = stage.approve("user_bob", decided).await;
    let (code, message, _) = refused(&stage, decided, &asked).await;
    assert_eq!(code, "INVALID_TRANSITION");
    assert!(message.starts_with("this request was approved by user_bob at 2"), "{message}");
    let late = stage.run(&chain("w", &[("a", "write")]), Level::Draft).await;
    let asked = stage.asks(late).await.remove(0);
    stage.pass(Duration::from_secs(u64::from(chimera_core::limits::APPROVAL_SECONDS_DEFAULT) + 1)).await;
    let (code, message, _) = refused(&stage, late, &asked).await;
    assert_eq!(code, "INVALID_TRANSITION");
    assert!(message.starts_with("this request expired at 2"), "{message}");
    let standing = &stage.ended(late).await["decided_approvals"][0]["standing"];
    assert_eq!(standing["status"], json!(ApprovalStatus::Expired));
    let ask = Decide { run: late, decision: Decision::Approve, approval: None, step: None, digest: None, reason: None };
    assert!(flow::decide(&stage.flow, &stage.permit("user_ann"), ask).await.is_err());
}

/// A reason may contain a pasted credential.
#[tokio::test(start_paused = true)]
async fn a_reason_is_told_without_what_looks_like_a_credential() {
    let stage = stage(1).open().await;
    let said = Some("no: password=hunter4Zsecret".to_owned());
    let rejected = stage.run(&chain("w", &[("a", "again")]), Level::Ask).await;
    let approval = Some(id_of(&stage.asks(rejected).await[0]["approval_id"]));
    let reason = said.clone();
    let ask = Decide { run: rejected, decision: Decision::Reject, approval, step: None, digest: None, reason };
    flow::decide(&stage.flow, &stage.permit("user_ann"), ask).await.unwrap();
    let cancelled = stage.run(&chain("v", &[("a", "again")]), Level::Ask).await;
    stage.asks(cancelled).await;
    flow::cancel(&stage.flow, &stage.permit("user_ann"), cancelled, said).await.unwrap();
    for run in [rejected, cancelled] {
        stage.ended(run).await;
        for table in [&AUDIT_LOG_ENTRIES, &NOTIFICATIONS, &RUN_SIGNALS] {
            let rows = format!("{:?}", stage.rows_of(table, run));
            assert!(!rows.contains("hunter4Z"), "{rows}");
        }
        let entries = format!("{:?}", stage.rows_of(&AUDIT_LOG_ENTRIES, run));
        assert!(entries.contains("no: password=[redacted]"), "{entries}");
    }
}
