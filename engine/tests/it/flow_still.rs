//! Approvers must still be allowed to decide when what they approved is executed.

use chimera_core::access::Level;
use chimera_core::act::risk;
use chimera_core::flow::plan::Plan;
use chimera_core::flow::policy::{Action, Policy, PolicyVerdict};
use chimera_core::flow::risk::Score;
use chimera_core::flow::run::ApprovalRequirement;
use chimera_core::ledger::tables::{AUDIT_LOG_ENTRIES, AUDIT_LOGS};
use chimera_core::tool::{EffectKind, Spec};
use chimera_engine::flow::{self, Decision, PatchRequest};
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{Air, EngineFixture, EngineSetup, ScriptedTool, chain, stage, workflow};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use uuid::Uuid;

/// A policy that knows who may decide, and counts its calls.
#[derive(Clone, Default)]
struct DeciderPolicy {
    gone: Arc<Mutex<BTreeSet<String>>>,
    asked: Arc<AtomicUsize>,
    approvals: u32,
}

impl DeciderPolicy {
    fn disable(&self, who: &str) {
        self.gone.lock().unwrap().insert(who.to_owned());
    }
}

impl Policy for DeciderPolicy {
    fn evaluate(&self, action: &Action<'_>) -> PolicyVerdict {
        match self.approvals {
            needed if needed > 0 && action.tool.name == "again" => PolicyVerdict::Ask(ApprovalRequirement {
                needed,
                ..ApprovalRequirement::one_approval("so many people must agree")
            }),
            _ => PolicyVerdict::Allow,
        }
    }

    fn may_decide(&self, _: &str, person: &str, _: &str) -> bool {
        self.asked.fetch_add(1, Ordering::SeqCst);
        !self.gone.lock().unwrap().contains(person)
    }

    fn score_call(&self, _: &Spec, _: &Value) -> Score {
        Score::default()
    }

    fn score(&self, plan: &Plan, tools: &[&Spec]) -> Score {
        risk::score_with(plan, tools)
    }
}

/// A tool whose call runs until it is released.
fn gated(gate: &Arc<Notify>) -> ScriptedTool {
    let gate = Arc::clone(gate);
    ScriptedTool::new("gated", EffectKind::Read).on_execute(move |_, _| {
        let gate = Arc::clone(&gate);
        async move {
            gate.notified().await;
            Ok(json!({"items": [1, 2], "n": 3}))
        }
    })
}

/// The recorded reasons for approval requests, in order.
fn reasons(stage: &EngineFixture, run: Uuid) -> Vec<String> {
    let entries = stage.rows_of(&AUDIT_LOG_ENTRIES, run);
    assert!(!entries.is_empty());
    stage.rows(&AUDIT_LOGS).iter().map(|row| row.text("decision_rationale").to_owned()).collect()
}

/// Waits for an approval request whose recorded reason names who lost the right to decide.
async fn asks_again(stage: &EngineFixture, run: Uuid) -> Value {
    let asked = stage.asks(run).await.remove(0);
    let told = "user_bob approved this and may not decide any more";
    assert!(asked["action"]["reason"].as_str().unwrap_or_default().contains(told), "{asked:#}");
    assert!(reasons(stage, run).iter().any(|reason| reason.contains(told)), "{:?}", reasons(stage, run));
    asked
}

/// The approval is counted while the run is paused; its author is disabled before the call is sent.
#[tokio::test(start_paused = true)]
async fn a_step_asks_again_once_its_approver_is_disabled() {
    let known = DeciderPolicy::default();
    let stage = stage(1).policy(known.clone()).open().await;
    let run = stage.run(&chain("w", &[("a", "again")]), Level::Ask).await;
    let ann = stage.permit("user_ann");
    stage.asks(run).await;
    flow::pause(&stage.flow, &ann, run).await.unwrap();
    stage.until(run, |shown| shown["paused"] == true).await;
    let asked = stage.show(run).await["approvals"][0].clone();
    stage.decide("user_bob", run, Decision::Approve, Some(&asked)).await.unwrap();
    stage.step(run, "a", "ready").await;
    known.disable("user_bob");
    flow::resume(&stage.flow, &ann, run).await.unwrap();
    asks_again(&stage, run).await;
    assert!(stage.world.outside.sent().is_empty());
    stage.approve("user_cat", run).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

/// One of two required approvers remains: somebody else must join.
#[tokio::test(start_paused = true)]
async fn as_many_as_are_demanded_must_be_left() {
    for (gone, asks) in [("user_bob", true), ("user_eve", false)] {
        let known = DeciderPolicy { approvals: 2, ..DeciderPolicy::default() };
        let gate = Arc::new(Notify::new());
        let stage = stage(1).tool(gated(&gate).build()).policy(known.clone()).open().await;
        let air = workflow("w").function("a", "gated", json!({})).function("b", "again", json!({})).edge("a", "b");
        let run = stage.run(&air, Level::Draft).await;
        let asked = stage.asks(run).await.remove(0);
        for who in ["user_bob", "user_cat"] {
            stage.decide(who, run, Decision::Approve, Some(&asked)).await.unwrap();
        }
        stage.step(run, "a", "running").await;
        known.disable(gone);
        gate.notify_one();
        if asks {
            asks_again(&stage, run).await;
            for who in ["user_cat", "user_dan"] {
                let asked = stage.asks(run).await.remove(0);
                stage.decide(who, run, Decision::Approve, Some(&asked)).await.unwrap();
            }
        }
        assert_eq!(stage.ended(run).await["status"], "completed");
    }
}

/// A run at L1 whose plan bob approved and whose first node is in flight.
async fn planned(setup: EngineSetup, air: &Air, gate: &Arc<Notify>) -> (EngineFixture, Uuid) {
    let stage = setup.tool(gated(gate).build()).open().await;
    let run = stage.run(air, Level::Draft).await;
    stage.approve("user_bob", run).await;
    stage.step(run, "a", "running").await;
    (stage, run)
}

/// Calls that the plan covered exactly, calls with unknown inputs, and patched calls: none is sent for an approver who
/// lost their rights, also after a restart.
#[tokio::test(start_paused = true)]
async fn the_calls_of_a_plan_that_were_not_sent_ask_again() {
    let exact = chain("w", &[("a", "gated"), ("b", "again")]);
    let deferred = workflow("w")
        .function("a", "gated", json!({}))
        .function("b", "again", json!({"n": "${nodes.a.outputs.n}"}))
        .edge("a", "b");
    for (air, restarts) in [(&exact, false), (&deferred, false), (&exact, true), (&deferred, true)] {
        let (known, gate) = (DeciderPolicy::default(), Arc::new(Notify::new()));
        let (mut stage, run) = planned(stage(1).policy(known.clone()), air, &gate).await;
        known.disable("user_bob");
        if restarts {
            stage.flow.stop();
            let setup = chimera_testkit::flow::stage(1).policy(known.clone()).tool(gated(&gate).build());
            stage = stage.restart(setup).await;
        }
        if restarts {
            // The read in flight was dropped, and is repeated: that needs approval too.
            asks_again(&stage, run).await;
            stage.approve("user_cat", run).await;
            stage.step(run, "a", "running").await;
        }
        gate.notify_one();
        stage.step(run, "b", "awaiting_approval").await;
        asks_again(&stage, run).await;
        assert!(stage.world.outside.sent().is_empty());
        stage.approve("user_cat", run).await;
        assert_eq!(stage.ended(run).await["status"], "completed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_of_a_patch_asks_again_once_the_approver_of_the_patch_is_disabled() {
    let (known, gate) = (DeciderPolicy::default(), Arc::new(Notify::new()));
    let air = chain("w", &[("a", "gated")]);
    let stage = stage(1).policy(known.clone()).tool(gated(&gate).build()).open().await;
    let run = stage.run(&air, Level::Draft).await;
    stage.approve("user_cat", run).await;
    stage.step(run, "a", "running").await;
    let patch = json!({
        "patch_version": "0.1", "justification": "more", "add_edges": [{"from": "a", "to": "x"}],
        "add_nodes": [{"id": "x", "type": "function", "fn": "again", "inputs": {"n": 1}}],
    });
    flow::patch(&stage.flow, &stage.permit("user_ann"), PatchRequest::new(run, patch)).await.unwrap();
    let waits = |shown: &Value| shown["approvals"].as_array().is_some_and(|asked| !asked.is_empty());
    let asked = stage.until(run, waits).await["approvals"][0].clone();
    stage.decide("user_bob", run, Decision::Approve, Some(&asked)).await.unwrap();
    stage.until(run, |shown| shown["patches"][0]["status"] == "applied").await;
    known.disable("user_bob");
    gate.notify_one();
    asks_again(&stage, run).await;
    stage.approve("user_cat", run).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

/// The list becomes known late, so the map is requested as a whole; its second item is sent after the first.
#[tokio::test(start_paused = true)]
async fn the_items_of_a_map_that_were_not_sent_ask_again() {
    let (known, gate) = (DeciderPolicy::default(), Arc::new(Notify::new()));
    let slow = ScriptedTool::new("slow", EffectKind::Write).with_delay(|_| Duration::from_secs(5));
    let air = workflow("w")
        .function("a", "gated", json!({}))
        .map("m", json!("${nodes.a.outputs.items}"), "slow", json!({"n": "${item}"}))
        .edge("a", "m");
    let made = slow.asked();
    let stage = stage(1).policy(known.clone()).tool(gated(&gate).build()).tool(slow.build()).open().await;
    let run = stage.run(&air, Level::Draft).await;
    stage.approve("user_cat", run).await;
    gate.notify_one();
    stage.step(run, "m", "awaiting_approval").await;
    stage.approve("user_bob", run).await;
    stage.step(run, "m", "running").await;
    known.disable("user_bob");
    asks_again(&stage, run).await;
    assert_eq!(made.count("execute"), 1, "the first was under way");
    stage.approve("user_cat", run).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

/// Runs without approvals request none.
#[tokio::test(start_paused = true)]
async fn a_run_without_approvals_never_asks_who_may_decide() {
    let known = DeciderPolicy::default();
    let stage = stage(1).policy(known.clone()).open().await;
    let run = stage.run(&chain("w", &[("a", "again"), ("b", "read"), ("c", "pure")]), Level::ExecuteSilent).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(known.asked.load(Ordering::SeqCst), 0);
}
