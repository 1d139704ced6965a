//! Whoever chose what a later step works with does not approve that step: also if they chose it with the words that
//! end a run inside, with a node that never ran, or by saying that a call never happened.

use crate::flow_four_eyes::{approve, asked_at, decided_by_none_of, strict, strict_less};
use chimera_core::access::Level;
use chimera_core::flow::run::{Replay, ReplayMode};
use chimera_core::flow::tool::Reach;
use chimera_engine::flow::policy::{Rule, Rules, Says};
use chimera_engine::flow::{Again, Decide, Decision};
use chimera_testkit::flow::{Air, Puppet, Stage, id_of, stage, workflow};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

const FAILED: &str = "${nodes.w.outputs.success == false}";

/// A step that waits for anybody.
fn waits(id: &str) -> Value {
    let mut node = strict_less(id);
    node["requires_approval"] = true.into();
    node
}

/// What goes on with the words that a run inside ended with.
fn takes_words(mut second: Value) -> Value {
    second["inputs"] = json!({"n": "${nodes.w.outputs.error.message}"});
    second
}

fn inside(id: &str, workflow: &str) -> Value {
    json!({"id": id, "type": "workflow", "workflow_id": workflow, "inputs": {}})
}

/// `w` starts a run inside, and what it ended with goes to `b`, which somebody else must approve.
fn around(first: Value) -> Air {
    workflow("w").node(first).node(takes_words(strict("b"))).edge_if("w", "b", FAILED)
}

async fn open() -> Stage {
    let stage = stage(1).open().await;
    stage.apply(&workflow("inner").node(waits("x"))).await;
    stage.apply(&workflow("between").node(inside("i", "inner"))).await;
    stage
}

/// The run inside that a step waits for.
async fn child(stage: &Stage, run: Uuid, node: &str) -> Uuid {
    id_of(&stage.step(run, node, "running").await["child_run_id"])
}

/// How somebody ends a run that waits for an approval.
#[derive(Clone, Copy, Debug)]
enum Ends {
    Cancel,
    Reject,
    Changes,
}

const ENDS: [Ends; 3] = [Ends::Cancel, Ends::Reject, Ends::Changes];

async fn end(stage: &Stage, run: Uuid, who: &str, how: Ends, words: Option<&str>) {
    let asked = stage.asks(run).await.remove(0);
    let (permit, reason) = (stage.permit(who), words.map(str::to_owned));
    let decision = match how {
        Ends::Cancel => return stage.flow.cancel(&permit, run, reason).await.unwrap(),
        Ends::Reject => Decision::Reject,
        Ends::Changes => Decision::RequestChanges,
    };
    let approval = Some(id_of(&asked["approval_id"]));
    let ask = Decide { run, decision, approval, step: None, digest: None, reason };
    stage.flow.decide(&permit, ask).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn whoever_ended_a_run_inside_with_words_does_not_decide_about_what_goes_on_from_them() {
    for how in ENDS {
        let first = open().await;
        let run = first.run(&around(inside("w", "inner")), Level::ExecuteNotify).await;
        let within = child(&first, run, "w").await;
        end(&first, within, "user_mal", how, Some("pay mal")).await;
        let asked = asked_at(&first, run, "b").await;
        assert_eq!(asked["action"]["input"], json!({"n": "pay mal"}), "{how:?}");
        assert_eq!(asked["changed_by"], json!(["user_mal"]), "{how:?}");
        let second = first.restart(stage(1)).await;
        decided_by_none_of(&second, run, &asked, &["user_ann", "user_mal"]).await;
        assert_eq!(second.ended(run).await["status"], "completed");
    }
}

#[tokio::test(start_paused = true)]
async fn words_that_ended_a_run_two_runs_inside_are_of_whoever_said_them() {
    let stage = open().await;
    let run = stage.run(&around(inside("w", "between")), Level::ExecuteNotify).await;
    let between = child(&stage, run, "w").await;
    let within = child(&stage, between, "i").await;
    end(&stage, within, "user_mal", Ends::Cancel, Some("pay mal")).await;
    let asked = asked_at(&stage, run, "b").await;
    assert_eq!(asked["action"]["input"], json!({"n": "pay mal"}));
    decided_by_none_of(&stage, run, &asked, &["user_ann", "user_mal"]).await;
}

#[tokio::test(start_paused = true)]
async fn words_that_ended_a_run_of_a_map_are_of_whoever_said_them() {
    let stage = open().await;
    let each = json!({"type": "workflow", "workflow_id": "inner", "inputs": {}});
    let map = json!({"id": "w", "type": "map", "over": [1], "max_parallel": 1, "do": each});
    let run = stage.run(&around(map), Level::ExecuteNotify).await;
    stage.step(run, "w", "running").await;
    stage.pass(Duration::from_secs(1)).await;
    let steps = stage.steps(run).await;
    let within = steps.as_array().unwrap().iter().find(|step| step["child_run_id"].is_string());
    let within = within.map(|step| id_of(&step["child_run_id"]));
    end(&stage, within.unwrap(), "user_mal", Ends::Reject, Some("pay mal")).await;
    let asked = asked_at(&stage, run, "b").await;
    assert_eq!(asked["action"]["input"], json!({"n": "pay mal"}));
    decided_by_none_of(&stage, run, &asked, &["user_ann", "user_mal"]).await;
}

/// Rules about whoever said them are asked too.
#[tokio::test(start_paused = true)]
async fn what_is_denied_to_whoever_ended_a_run_inside_with_words_waits_for_somebody_else() {
    let says = Says::Deny { reason: "not by mal".to_owned() };
    let rule = Rule { name: "r".to_owned(), tool: "second".to_owned(), actor: "user_mal".to_owned(), says };
    let second = Puppet::new("second", Reach::Write).build();
    let stage = stage(1).policy(Rules(vec![rule])).tool(second).open().await;
    stage.apply(&workflow("inner").node(waits("x"))).await;
    let mut node = takes_words(strict_less("b"));
    node["fn"] = "second".into();
    let air = workflow("w").node(inside("w", "inner")).node(node).edge_if("w", "b", FAILED);
    let run = stage.run(&air, Level::ExecuteSilent).await;
    let within = child(&stage, run, "w").await;
    end(&stage, within, "user_mal", Ends::Cancel, Some("pay mal")).await;
    stage.step(run, "b", "awaiting_approval").await;
    let asked = asked_at(&stage, run, "b").await;
    decided_by_none_of(&stage, run, &asked, &["user_mal"]).await;
}

/// To end a run is not to write: who says nothing has no part in what comes next.
#[tokio::test(start_paused = true)]
async fn whoever_ended_a_run_inside_without_words_decides_about_what_comes_next() {
    for how in ENDS {
        let stage = open().await;
        let run = stage.run(&around(inside("w", "inner")), Level::ExecuteNotify).await;
        let within = child(&stage, run, "w").await;
        end(&stage, within, "user_cat", how, None).await;
        let asked = asked_at(&stage, run, "b").await;
        assert_eq!(asked["changed_by"], json!([]), "{how:?}");
        assert_eq!(approve(&stage, "user_cat", run, &asked).await, "none", "{how:?}");
    }
}

/// What a run was stopped with is nothing that a retry of it works with: whoever wanted it changed looks at it again.
#[tokio::test(start_paused = true)]
async fn whoever_ended_a_run_with_words_decides_about_its_retry() {
    for how in ENDS {
        let stage = open().await;
        let run = stage.run(&workflow("w").node(waits("a")), Level::ExecuteNotify).await;
        end(&stage, run, "user_cat", how, Some("not like this")).await;
        stage.ended(run).await;
        let replay = Replay { of: run, mode: ReplayMode::Retry, from: None };
        let again = stage.flow.replay(&stage.permit("user_ann"), replay, Again::default()).await.unwrap().run_id;
        let asked = asked_at(&stage, again, "a").await;
        assert_eq!(asked["changed_by"], json!([]), "{how:?}");
    }
}

/// What is written otherwise and means the same is nobody's edit, so what was shown runs.
#[tokio::test(start_paused = true)]
async fn an_edit_of_how_a_number_is_written_changes_nothing() {
    for level in [Level::ExecuteNotify, Level::Draft] {
        for (shown, edited) in [("1", "1.0"), ("100", "1E2"), ("0", "-0.0")] {
            let read = |text: &str| serde_json::from_str::<Value>(&format!("{{\"n\":{text}}}")).unwrap();
            let given = Arc::new(std::sync::Mutex::new(Vec::new()));
            let kept = Arc::clone(&given);
            let tool = Puppet::new("kept", Reach::Write).answers(move |_, input| {
                kept.lock().unwrap().push(input.to_string());
                Ok(json!({}))
            });
            let stage = stage(1).tool(tool.build()).open().await;
            let mut node = strict("a");
            (node["fn"], node["inputs"]) = ("kept".into(), read(shown));
            let run = stage.run(&workflow("w").node(node), level).await;
            let asked = stage.asks(run).await.remove(0);
            let mal = stage.permit("user_mal");
            match level {
                Level::Draft => stage.flow.edit_planned(&mal, run, "a", read(edited)).await.unwrap(),
                _ => stage.flow.edit(&mal, run, id_of(&asked["step_id"]), read(edited)).await.unwrap(),
            }
            let another = |shown: &Value| {
                let id = &shown["approvals"][0]["approval_id"];
                !id.is_null() && *id != asked["approval_id"]
            };
            let asked = stage.until(run, another).await["approvals"][0].clone();
            assert_eq!(asked["changed_by"], json!([]), "{level:?} {edited}");
            assert_eq!(approve(&stage, "user_cat", run, &asked).await, "none");
            assert_eq!(stage.ended(run).await["status"], "completed");
            assert_eq!(*given.lock().unwrap(), [read(shown).to_string()], "{level:?} {edited}");
        }
    }
}
