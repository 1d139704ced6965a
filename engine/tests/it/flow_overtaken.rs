//! Concurrent decisions: what is confirmed is what happens.
//!
//! Nobody drives the runs between two decisions, so both are made before the run handles the first one.

use chimera_core::access::Level;
use chimera_core::error::Code;
use chimera_core::flow::tables::{APPROVAL_REQUESTS, RUN_PATCHES, RUN_SIGNALS};
use chimera_core::tool::EffectKind;
use chimera_engine::flow::port::ToolError;
use chimera_engine::flow::{self, Decide, Decision, OutcomeReport, PatchRequest};
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{Air, EngineFixture, EngineSetup, ScriptedTool, chain, code_of, id_of, stage, workflow};
use serde_json::{Value, json};
use uuid::Uuid;

const DRAFT: Level = Level::Draft;

fn add(id: &str) -> Value {
    json!({
        "patch_version": "0.1", "justification": "more",
        "add_nodes": [{"id": id, "type": "function", "fn": "again", "inputs": {"n": id}}],
        "add_edges": [{"from": "a", "to": id}],
    })
}

/// Proposes a patch; returns its approval request.
async fn proposed(stage: &EngineFixture, run: Uuid, id: &str) -> Value {
    flow::patch(&stage.flow, &stage.permit("user_bob"), PatchRequest::new(run, add(id))).await.unwrap();
    request(stage, run, id).await
}

/// The pending request for a patch that adds a node.
async fn request(stage: &EngineFixture, run: Uuid, id: &str) -> Value {
    let about = |asked: &&Value| asked["action"]["patch"]["add_nodes"][0]["id"] == id;
    let find = |shown: &Value| shown["approvals"].as_array().unwrap().iter().find(about).cloned();
    find(&stage.until(run, |shown| find(shown).is_some()).await).unwrap()
}

/// A run whose plan was approved, and which waits at its second node for a person.
async fn planned(setup: EngineSetup) -> (EngineFixture, Uuid) {
    let stage = setup.open().await;
    let air = chain("w", &[("a", "again")]).node(json!({"id": "ask", "type": "hitl"})).edge("a", "ask");
    let run = stage.run(&air, DRAFT).await;
    stage.approve("user_ann", run).await;
    stage.step(run, "ask", "awaiting_approval").await;
    (stage, run)
}

fn statuses(stage: &EngineFixture, run: Uuid) -> Vec<String> {
    stage.rows_of(&RUN_PATCHES, run).iter().map(|row| row.text("status").to_owned()).collect()
}

/// Approves the `hitl` node of a run, so that the run ends.
async fn approve_hitl(stage: &EngineFixture, run: Uuid) -> Value {
    let step = Some(id_of(&stage.step(run, "ask", "awaiting_approval").await["step_id"]));
    let ask = Decide { run, decision: Decision::Approve, approval: None, step, digest: None, reason: None };
    flow::decide(&stage.flow, &stage.permit("user_ann"), ask).await.unwrap();
    stage.ended(run).await
}

#[tokio::test(start_paused = true)]
async fn of_two_patches_that_are_approved_at_once_one_is_and_the_other_is_asked_about_anew() {
    let (first, run) = planned(stage(1)).await;
    let (one, two) = (proposed(&first, run, "one").await, proposed(&first, run, "two").await);
    first.flow.stop();
    first.decide("user_ann", run, Decision::Approve, Some(&one)).await.unwrap();
    let late = first.decide("user_cat", run, Decision::Approve, Some(&two)).await.unwrap_err().body();
    assert_eq!((late.code.as_str(), &late.details["standing"]["status"]), ("STALE_APPROVAL", &json!("superseded")));

    let second = first.restart(stage(1)).await;
    let renewed = second.until(run, |shown| shown["patches"][0]["status"] == "applied").await;
    assert_eq!(renewed["patches"][1]["status"], "proposed");
    let again = request(&second, run, "two").await;
    assert_ne!((&again["approval_id"], &again["digest"]), (&two["approval_id"], &two["digest"]));
    second.decide("user_cat", run, Decision::Approve, Some(&again)).await.unwrap();
    second.step(run, "two", "completed").await;
    assert_eq!(approve_hitl(&second, run).await["status"], "completed");
    assert_eq!(statuses(&second, run), ["applied", "applied"]);
    let events = second.events(run).await;
    assert!(!events.iter().any(|event| event == "patch.approval_superseded"), "{events:?}");
}

/// The same while the run is driven: in any order, each approval is a patch that is applied.
#[tokio::test(start_paused = true)]
async fn as_many_patches_are_applied_as_were_answered_with_approved() {
    let (stage, run) = planned(stage(1)).await;
    let mut asked = Vec::new();
    for id in ["one", "two", "three"] {
        asked.push(proposed(&stage, run, id).await);
    }
    let decide = async |asked: &Value| stage.decide("user_ann", run, Decision::Approve, Some(asked)).await;
    let answers = futures::join!(decide(&asked[0]), decide(&asked[1]), decide(&asked[2]));
    let codes = [code_of(answers.0), code_of(answers.1), code_of(answers.2)];
    assert_eq!(codes.iter().filter(|code| *code == "none").count(), 1, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| *code == "STALE_APPROVAL").count(), 2, "{codes:?}");
    stage.until(run, |_| statuses(&stage, run).iter().any(|status| status == "applied")).await;
    assert_eq!(statuses(&stage, run).iter().filter(|status| *status == "applied").count(), 1);
}

/// Reverting a patch changes what the other pending ones are about; an approved one stays.
#[tokio::test(start_paused = true)]
async fn a_patch_is_approved_or_the_one_before_it_taken_out_never_both_in_vain() {
    for unpatch_first in [true, false] {
        // The node of the first patch comes after the `hitl` node, so it does not start.
        let (first, run) = planned(stage(1)).await;
        let mut behind = add("one");
        behind["add_edges"] = json!([{"from": "ask", "to": "one"}]);
        flow::patch(&first.flow, &first.permit("user_bob"), PatchRequest::new(run, behind)).await.unwrap();
        let one = request(&first, run, "one").await;
        first.decide("user_ann", run, Decision::Approve, Some(&one)).await.unwrap();
        first.until(run, |_| statuses(&first, run) == ["applied"]).await;
        let two = proposed(&first, run, "two").await;
        first.flow.stop();
        let approve = first.decide("user_cat", run, Decision::Approve, Some(&two));
        let (bob, expected) = (first.permit("user_bob"), if unpatch_first { "reverted" } else { "applied" });
        let unpatch = flow::withdraw_patch(&first.flow, &bob, run, 1);
        if unpatch_first {
            unpatch.await.unwrap();
            assert_eq!(code_of(approve.await), "STALE_APPROVAL");
        } else {
            approve.await.unwrap();
            assert_eq!(code_of(unpatch.await), "OCC_CONFLICT");
        }
        let second = first.restart(stage(1)).await;
        second.until(run, |_| statuses(&second, run)[0] == expected && second.rows(&RUN_SIGNALS).is_empty()).await;
        let events = second.events(run).await;
        let in_vain = ["patch.revert_refused", "patch.approval_superseded"];
        assert!(!events.iter().any(|event| in_vain.contains(&event.as_str())), "{events:?}");
        if unpatch_first {
            let again = request(&second, run, "two").await;
            second.decide("user_cat", run, Decision::Approve, Some(&again)).await.unwrap();
        }
        second.step(run, "two", "completed").await;
    }
}

fn two_gated() -> Air {
    let gated = |id| json!({"id": id, "type": "function", "fn": "again", "inputs": {"n": id}, "requires_approval": {}});
    workflow("two").node(gated("a")).node(gated("b"))
}

/// Stopping a run closes every pending request: nobody approves what will not run.
#[tokio::test(start_paused = true)]
async fn nothing_of_a_run_that_somebody_has_stopped_can_be_approved() {
    for cancel in [true, false] {
        let first = stage(1).open().await;
        let run = first.run(&two_gated(), Level::ExecuteSilent).await;
        first.step(run, "b", "awaiting_approval").await;
        let asked = first.asks(run).await;
        assert_eq!(asked.len(), 2);
        first.flow.stop();
        match cancel {
            true => flow::cancel(&first.flow, &first.permit("user_ann"), run, None).await.unwrap(),
            false => drop(first.decide("user_ann", run, Decision::Reject, Some(&asked[0])).await.unwrap()),
        }
        let late = first.decide("user_bob", run, Decision::Approve, Some(&asked[1])).await.unwrap_err().body();
        assert_eq!((late.code.as_str(), &late.details["standing"]["status"]), ("STALE_APPROVAL", &json!("cancelled")));
        let edit =
            flow::edit_step(&first.flow, &first.permit("user_ann"), run, id_of(&asked[1]["step_id"]), json!({})).await;
        assert_eq!(code_of(edit), "OCC_CONFLICT");
        let second = first.restart(stage(1)).await;
        assert_eq!(second.ended(run).await["status"], "cancelled");
        assert!(second.rows(&APPROVAL_REQUESTS).iter().all(|row| row.text("status") != "pending"));
        assert!(second.world.outside.sent().is_empty());
    }
}

/// Two people decide differently: one of them is told that they were too late.
#[tokio::test(start_paused = true)]
async fn of_two_who_settle_one_call_one_is_heard_and_the_other_is_told() {
    let tool = || {
        ScriptedTool::new("lost", EffectKind::Write).answers(|ctx, _| match ctx.attempt {
            1 => Err(ToolError::maybe_sent(Code::RequestTimeout, "no answer")),
            _ => Ok(json!({})),
        })
    };
    let first = stage(1).tool(tool().build()).open().await;
    let run = first.run(&chain("w", &[("a", "lost")]), Level::ExecuteSilent).await;
    let step = id_of(&first.step(run, "a", "outcome_unknown").await["step_id"]);
    first.flow.stop();
    let (ann, bob) = (first.permit("user_ann"), first.permit("user_bob"));
    flow::report_outcome(&first.flow, &ann, run, OutcomeReport::happened(step, Some(json!({"by": "ann"}))))
        .await
        .unwrap();
    assert_eq!(
        code_of(flow::report_outcome(&first.flow, &bob, run, OutcomeReport::did_not_happen(step)).await),
        "OCC_CONFLICT"
    );
    let again = tool();
    let asked = again.asked();
    let second = first.restart(stage(1).tool(again.build())).await;
    assert_eq!(second.ended(run).await["status"], "completed");
    assert_eq!(asked.count("execute"), 0);
}

/// Of two concurrent rollbacks of a run, one is accepted.
#[tokio::test(start_paused = true)]
async fn of_two_who_undo_a_run_one_is_heard_and_the_other_is_told() {
    let tool = || ScriptedTool::new("kept", EffectKind::Write).on_rollback(|_, _| Ok(json!({}))).build();
    let first = stage(1).tool(tool()).open().await;
    let run = first.run(&chain("w", &[("a", "kept"), ("b", "kept")]), Level::ExecuteSilent).await;
    first.ended(run).await;
    first.flow.stop();
    let (ann, bob) = (first.permit("user_ann"), first.permit("user_bob"));
    let step = id_of(&first.steps(run).await[1]["step_id"]);
    let part = flow::rollback(&first.flow, &bob, run, Some(vec![step]), None);
    let (whole, part) = futures::join!(flow::rollback(&first.flow, &ann, run, None, None), part);
    let codes = [code_of(whole), code_of(part)];
    assert_eq!(codes.iter().filter(|code| *code == "none").count(), 1, "{codes:?}");
    let second = first.restart(stage(1).tool(tool())).await;
    second.until(run, |_| second.rows(&RUN_SIGNALS).is_empty()).await;
}
