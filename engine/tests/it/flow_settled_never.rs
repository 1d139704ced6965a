//! Calls that were settled as never happened: what needed an approval asks again before it is sent again.

use crate::flow_four_eyes::{approve, is_newer, newer, strict};
use chimera_core::access::Level;
use chimera_core::error::Code;
use chimera_core::flow::call::ToolError;
use chimera_core::tool::EffectKind;
use chimera_engine::flow::{self, OutcomeReport};
use chimera_testkit::flow::{ScriptedTool, chain, id_of, stage, until, workflow};
use serde_json::json;

/// People let a call happen once: whoever says that it never did, and whatever demanded their approval, they are asked
/// again before it is sent again.
#[tokio::test(start_paused = true)]
async fn an_approved_call_that_was_settled_as_never_happened_asks_again() {
    let mut four_eyes = strict("a");
    four_eyes["fn"] = json!("lost");
    let mut two_eyes = four_eyes.clone();
    two_eyes["requires_approval"] = json!({});
    let plain = json!({"id": "a", "type": "function", "fn": "lost", "inputs": {"n": "a"}});
    let cases = [
        (Level::ExecuteNotify, four_eyes.clone(), "user_bob"),
        (Level::ExecuteNotify, two_eyes, "user_ann"),
        (Level::Ask, plain.clone(), "user_ann"),
        (Level::Draft, plain, "user_ann"),
        (Level::Draft, four_eyes, "user_bob"),
    ];
    for (level, node, approver) in cases {
        for (settler, restarts) in [("user_ann", false), ("user_ann", true), ("user_bob", false), ("user_cat", true)] {
            let case = format!("{level:?} {} filtered_now by {settler}, {restarts}", node["requires_approval"]);
            let lost = || {
                ScriptedTool::new("lost", EffectKind::Write)
                    .answers(|_, _| Err(ToolError::maybe_sent(Code::ExternalServiceError, "the answer was lost")))
            };
            let tool = lost();
            let mut calls = tool.asked();
            let mut held = stage(1).tool(tool.build()).open().await;
            let run = held.run(&workflow("w").node(node.clone()), level).await;
            let mut asked = held.asks(run).await.remove(0);
            assert_eq!(approve(&held, approver, run, &asked).await, "none", "{case}");
            // At L1 a plan was approved, and its strict node may ask for itself.
            let step = loop {
                let shown = held.until(run, |shown| shown["doubts"][0].is_object() || is_newer(shown, &asked)).await;
                if shown["doubts"][0].is_object() {
                    break id_of(&shown["doubts"][0]["step_id"]);
                }
                asked = shown["approvals"][0].clone();
                assert_eq!(approve(&held, approver, run, &asked).await, "none", "{case}");
            };
            assert_eq!(calls.count("execute"), 1, "{case}");
            flow::report_outcome(&held.flow, &held.permit(settler), run, OutcomeReport::did_not_happen(step))
                .await
                .unwrap();
            let again = newer(&held, run, &asked).await;
            assert!(
                again["review"]["reason"].as_str().is_some_and(|why| why.contains("never happened")),
                "{case}: {again:#}"
            );
            if restarts {
                let tool = lost();
                let sent_before = std::mem::replace(&mut calls, tool.asked()).count("execute");
                held = held.restart(stage(1).tool(tool.build())).await;
                held.pass(std::time::Duration::from_secs(5)).await;
                assert_eq!((sent_before, calls.count("execute")), (1, 0), "{case}");
            }
            let sent = calls.count("execute");
            assert_eq!(approve(&held, "user_dan", run, &again).await, "none", "{case}");
            held.step(run, "a", "outcome_unknown").await;
            assert_eq!(calls.count("execute"), sent + 1, "{case}: it is sent once more, after a new approval");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_nobody_had_to_approve_is_sent_again_without_a_question() {
    let tool = ScriptedTool::new("lost", EffectKind::Write)
        .answers(|_, _| Err(ToolError::maybe_sent(Code::ExternalServiceError, "the answer was lost")));
    let calls = tool.asked();
    let stage = stage(1).tool(tool.build()).open().await;
    let run = stage.run(&chain("w", &[("a", "lost")]), Level::ExecuteNotify).await;
    let step = id_of(&stage.step(run, "a", "outcome_unknown").await["step_id"]);
    flow::report_outcome(&stage.flow, &stage.permit("user_ann"), run, OutcomeReport::did_not_happen(step))
        .await
        .unwrap();
    until("it is sent again", || calls.count("execute") == 2).await;
    assert_eq!(stage.show(run).await["decided_approvals"], json!([]));
}
