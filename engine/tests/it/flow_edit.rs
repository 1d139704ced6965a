//! Edits: each one supersedes one request and creates a new one.

use chimera_core::access::{Actor, Level};
use chimera_core::error::Code;
use chimera_core::flow::run::{Signal, SignalKind};
use chimera_core::flow::tables::RUN_SIGNALS;
use chimera_core::record::Tx;
use chimera_core::tool::EffectKind;
use chimera_engine::EngineError;
use chimera_engine::flow::{self, Decide, Decision};
use chimera_engine::port::Records;
use chimera_testkit::flow::{EngineFixture, ScriptedTool, TENANT, chain, code_of, id_of, shown, stage, workflow};
use serde_json::{Value, json};
use std::time::Duration;
use uuid::Uuid;

/// Sends a signal the way another node would, and waits until the run has handled it.
async fn tell(stage: &EngineFixture, run: Uuid, told: SignalKind) {
    let signal = Signal::new(Uuid::from_u128(7), told);
    let row = signal.row(TENANT, run, stage.world.clock.now()).unwrap();
    stage.records.commit(Tx { inserts: vec![row], ..Tx::default() }).await.unwrap();
    stage.until(run, |_| stage.rows(&RUN_SIGNALS).is_empty()).await;
}

/// The pending request that replaced an older one.
async fn newer(stage: &EngineFixture, run: Uuid, old: &Value) -> Value {
    let replaced = |shown: &Value| {
        let asked = &shown["approvals"][0]["digest"];
        !asked.is_null() && *asked != old["digest"]
    };
    stage.until(run, replaced).await["approvals"][0].clone()
}

#[tokio::test(start_paused = true)]
async fn an_edit_of_an_older_question_does_not_change_the_one_that_waits_now() {
    let stage = stage(1).open().await;
    let run = stage.run(&chain("w", &[("a", "again")]), Level::Ask).await;
    let old = stage.asks(run).await.remove(0);
    let step = id_of(&old["step_id"]);
    flow::edit_step(&stage.flow, &stage.permit("user_ann"), run, step, json!({"n": "newer"})).await.unwrap();
    let new = newer(&stage, run, &old).await;
    let approval = Some(id_of(&old["approval_id"]));
    tell(
        &stage,
        run,
        SignalKind::Edited { step, input: json!({"n": "stale"}), by: Actor::person("user_bob"), approval },
    )
    .await;
    assert_eq!(stage.asks(run).await, [new], "nobody has looked at anything else");
    stage.approve("user_ann", run).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(stage.world.outside.sent()[0].input, json!({"n": "newer"}));
}

/// A reader during an edit never sees the new digest with the old plan: they would approve what they have not seen.
#[tokio::test(start_paused = true)]
async fn a_digest_is_never_shown_beside_an_older_plan() {
    let stage = stage(1).open().await;
    let run = stage.run(&chain("w", &[("a", "again")]), Level::Draft).await;
    stage.asks(run).await;
    stage.records.slow_reads(Duration::from_millis(3));
    for n in 0..20 {
        let (admin, ann) = (stage.permit("admin"), stage.permit("user_ann"));
        let edit = flow::edit_planned(&stage.flow, &ann, run, "a", json!({"n": n}));
        let looks = async {
            for look in 0.. {
                let shown = shown(flow::show_run(&stage.flow, &admin, run).await.unwrap());
                let (asked, plan) = (&shown["approvals"][0]["digest"], &shown["plan"]);
                let new = plan["steps"][0]["input"]["n"] == n;
                assert!(asked.is_null() || *asked == plan["digest"] || new, "edit {n}, look {look}: {shown:#}");
                if new && *asked == plan["digest"] {
                    return;
                }
                stage.pass(Duration::from_millis(n)).await;
            }
        };
        futures::join!(edit, looks).0.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_edit_of_an_older_plan_does_not_change_the_one_that_waits_now() {
    let stage = stage(1).open().await;
    let run = stage.run(&chain("w", &[("a", "again")]), Level::Draft).await;
    let old = stage.asks(run).await.remove(0);
    flow::edit_planned(&stage.flow, &stage.permit("user_ann"), run, "a", json!({"n": "newer"})).await.unwrap();
    let new = newer(&stage, run, &old).await;
    let (node, approval) = ("a".to_owned(), id_of(&old["approval_id"]));
    tell(
        &stage,
        run,
        SignalKind::PlanEdited { node, input: json!({"n": "stale"}), by: Actor::person("user_bob"), approval },
    )
    .await;
    assert_eq!(stage.asks(run).await, [new], "nobody has looked at anything else");
    stage.approve("user_ann", run).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(stage.world.outside.sent()[0].input, json!({"n": "newer"}));
}

/// What a person approves is what they saw, whatever it contains.
#[tokio::test(start_paused = true)]
async fn edits_that_differ_in_one_digit_or_one_level_are_different_questions() {
    let deep = |inner: i64| (0..60).fold(json!(inner), |inner, _| json!([inner]));
    let edits = [
        json!({"n": 9_007_199_254_740_993_i64}),
        json!({"n": 9_007_199_254_740_995_i64}),
        json!({"n": u64::MAX}),
        json!({"n": deep(1)}),
        json!({"n": deep(2)}),
    ];
    for level in [Level::Ask, Level::Draft] {
        let stage = stage(1).open().await;
        let run = stage.run(&chain("w", &[("a", "again")]), level).await;
        let mut asked = stage.asks(run).await.remove(0);
        let mut seen = vec![asked["digest"].clone()];
        for edit in &edits {
            let ann = stage.permit("user_ann");
            match level {
                Level::Ask => {
                    flow::edit_step(&stage.flow, &ann, run, id_of(&asked["step_id"]), edit.clone()).await.unwrap()
                }
                _ => flow::edit_planned(&stage.flow, &ann, run, "a", edit.clone()).await.unwrap(),
            }
            asked = newer(&stage, run, &asked).await;
            assert!(!seen.contains(&asked["digest"]), "{edit} has the digest of something else");
            seen.push(asked["digest"].clone());
        }
        stage.approve("user_ann", run).await;
        assert_eq!(stage.ended(run).await["status"], "completed");
        assert_eq!(stage.world.outside.sent()[0].input, edits[4]);
    }
}

/// An input that is changed and changed back is requested again: whoever saw the first version does not know about the
/// edits.
#[tokio::test(start_paused = true)]
async fn an_approval_of_an_older_showing_of_the_same_input_is_told_that_it_was_superseded() {
    for level in [Level::Ask, Level::Draft] {
        let stage = stage(1).open().await;
        let air = workflow("w").function("a", "again", json!({"n": "first"}));
        let run = stage.run(&air, level).await;
        let first = stage.asks(run).await.remove(0);
        let mut asked = first.clone();
        for n in ["second", "first"] {
            let (bob, before) = (stage.permit("user_bob"), asked["approval_id"].clone());
            match level {
                Level::Ask => {
                    flow::edit_step(&stage.flow, &bob, run, id_of(&asked["step_id"]), json!({"n": n})).await.unwrap()
                }
                _ => flow::edit_planned(&stage.flow, &bob, run, "a", json!({"n": n})).await.unwrap(),
            }
            let replaced = |shown: &Value| shown["approvals"][0]["approval_id"].as_str().is_some_and(|id| before != id);
            asked = stage.until(run, replaced).await["approvals"][0].clone();
        }
        assert_ne!(asked["digest"], first["digest"], "the same input, another question");
        let late = stage.decide("user_ann", run, Decision::Approve, Some(&first)).await.unwrap_err().body();
        assert_eq!((late.code.as_str(), &late.details["standing"]["status"]), ("STALE_APPROVAL", &json!("superseded")));
        assert!(stage.world.outside.sent().is_empty());
        stage.decide("user_ann", run, Decision::Approve, Some(&asked)).await.unwrap();
        assert_eq!(stage.ended(run).await["status"], "completed", "and it is not asked about again");
        assert_eq!(stage.world.outside.sent()[0].input, json!({"n": "first"}));
    }
}

/// Refused when it is submitted, with the pointer; nothing is stored.
#[tokio::test(start_paused = true)]
async fn an_edit_that_is_nested_too_deeply_is_refused_with_its_place() {
    let stage = stage(1).open().await;
    let run = stage.run(&chain("w", &[("a", "again")]), Level::Ask).await;
    let asked = stage.asks(run).await.remove(0);
    let deep = (0..64).fold(json!(1), |inner, _| json!([inner]));
    let edit =
        flow::edit_step(&stage.flow, &stage.permit("user_ann"), run, id_of(&asked["step_id"]), json!({"n": deep}))
            .await;
    let EngineError::Refused(body) = edit.unwrap_err() else { panic!("not refused") };
    assert_eq!(body.code, Code::ValidationFailed.as_str());
    assert_eq!(body.details["pointer"], format!("/n{}", "/0".repeat(63)));
    assert_eq!(stage.asks(run).await, [asked]);
}

/// 64-bit ids pass through inputs, expressions, tools and results without losing a digit.
#[tokio::test(start_paused = true)]
async fn an_id_of_64_bits_keeps_its_digits_all_the_way() {
    let stage = stage(1).open().await;
    let inputs = json!({"n": "${inputs.id}", "next": "${inputs.id + 1}"});
    let air = workflow("w").function("a", "again", inputs).with("outputs", json!({"id": "${inputs.id}"}));
    for id in [9_007_199_254_740_993_u64, 1_u64 << 63, u64::MAX - 1] {
        let run = stage.run_with(&air, Level::ExecuteSilent, json!({"id": id})).await;
        assert_eq!(stage.ended(run).await["result"]["id"], id);
        assert_eq!(stage.world.outside.sent().last().unwrap().input, json!({"n": id, "next": id + 1}));
    }
}

/// A caller who names only the step has seen its first version.
#[tokio::test(start_paused = true)]
async fn a_step_that_was_edited_is_approved_by_its_digest_only() {
    let stage = stage(1).open().await;
    let run = stage.run(&chain("w", &[("a", "again")]), Level::Ask).await;
    let old = stage.asks(run).await.remove(0);
    let step = id_of(&old["step_id"]);
    flow::edit_step(&stage.flow, &stage.permit("user_bob"), run, step, json!({"n": "newer"})).await.unwrap();
    let new = newer(&stage, run, &old).await;
    let by_step = |decision| Decide { run, decision, approval: None, step: Some(step), digest: None, reason: None };
    let ann = stage.permit("user_ann");
    let refused = flow::decide(&stage.flow, &ann, by_step(Decision::Approve)).await;
    assert_eq!(code_of(refused), "STALE_APPROVAL");
    stage.decide("user_ann", run, Decision::Approve, Some(&new)).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_step_that_was_not_edited_is_approved_by_its_name() {
    let stage = stage(1).open().await;
    let run = stage.run(&chain("w", &[("a", "again")]), Level::Ask).await;
    let step = Some(id_of(&stage.asks(run).await[0]["step_id"]));
    let ask = Decide { run, decision: Decision::Approve, approval: None, step, digest: None, reason: None };
    flow::decide(&stage.flow, &stage.permit("user_ann"), ask).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
}

/// The tool has changed since, and nobody has seen the new one.
#[tokio::test(start_paused = true)]
async fn what_was_asked_for_before_a_tool_changed_is_not_approved() {
    let tool = |version: &'static str| {
        let tool = ScriptedTool::new("changing", EffectKind::Write).with_declaration(|tool| tool.version = version);
        stage(1).tool(tool.build())
    };
    for level in [Level::Ask, Level::Draft] {
        let first = tool("1").open().await;
        let run = first.run(&chain("w", &[("a", "changing")]), level).await;
        let old = first.asks(run).await.remove(0);
        let second = first.restart(tool("2")).await;
        let refused = second.decide("user_ann", run, Decision::Approve, Some(&old)).await;
        assert_eq!(code_of(refused), "STALE_APPROVAL", "{level:?}");
        let new = newer(&second, run, &old).await;
        second.decide("user_ann", run, Decision::Approve, Some(&new)).await.unwrap();
        assert_eq!(second.ended(run).await["status"], "completed", "{level:?}");
    }
}
