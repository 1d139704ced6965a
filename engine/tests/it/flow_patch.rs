//! Patching a running graph, and reverting a patch.

use chimera_core::access::Level;
use chimera_core::flow::patch;
use chimera_core::flow::run::{Replay, ReplayMode};
use chimera_core::flow::tables::{APPROVAL_REQUESTS, RUN_PATCHES};
use chimera_core::json::Digest32;
use chimera_core::tool::EffectKind;
use chimera_engine::EngineError;
use chimera_engine::act::rules::{Beyond, Rule, Rules, Says};
use chimera_engine::flow::{self, PatchRequest, ProposedPatch, ReplayOptions};
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{EngineFixture, EngineSetup, ScriptedTool, chain, code_of, stage, workflow};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Notify;
use uuid::Uuid;

const SILENT: Level = Level::ExecuteSilent;

/// A patch as the specification writes it.
fn upload_and_notify() -> Value {
    json!({
        "patch_version": "0.1",
        "add_nodes": [
            {"id": "upload_to_s3", "type": "function", "fn": "again", "inputs": {"bucket": "acme", "key_template": "uploads/${run_id}.bin"}},
            {"id": "notify_email", "type": "function", "fn": "again", "inputs": {"to": "ops@acme.com", "subject": "Upload OK ${run_id}"}},
            {"id": "notify_slack", "type": "function", "fn": "again", "inputs": {"channel_alias": "incidents", "text": "Upload FAILED ${run_id}"}},
        ],
        "add_edges": [
            {"from": "CURRENT_NODE", "to": "upload_to_s3"},
            {"from": "upload_to_s3", "to": "notify_email", "condition": "${nodes.upload_to_s3.outputs.success == true}"},
            {"from": "upload_to_s3", "to": "notify_slack", "condition": "${nodes.upload_to_s3.outputs.success == false}"},
        ],
        "justification": "Notify stakeholders after file upload",
    })
}

fn add(id: &str, tool: &str, from: &str) -> Value {
    json!({
        "patch_version": "0.1", "justification": "more",
        "add_nodes": [{"id": id, "type": "function", "fn": tool, "inputs": {"n": id}}],
        "add_edges": [{"from": from, "to": id}],
    })
}

/// A run whose node `a` works until it is released.
struct PatchStage {
    stage: EngineFixture,
    run: Uuid,
    gate: Arc<Notify>,
}

fn gated(gate: &Arc<Notify>) -> ScriptedTool {
    let gate = Arc::clone(gate);
    ScriptedTool::new("gated", EffectKind::Read).on_execute(move |_, _| {
        let gate = Arc::clone(&gate);
        async move {
            gate.notified().await;
            Ok(json!({}))
        }
    })
}

async fn held(setup: EngineSetup, level: Level) -> PatchStage {
    let gate = Arc::new(Notify::new());
    let stage = setup.tool(gated(&gate).build()).open().await;
    let run = stage.run(&chain("w", &[("a", "gated"), ("b", "pure")]), level).await;
    if level == Level::Draft {
        stage.approve("user_ann", run).await;
        stage.step(run, "a", "running").await;
    }
    PatchStage { stage, run, gate }
}

impl PatchStage {
    async fn patch(&self, patch: Value, version: Option<i64>, dry: bool) -> Result<ProposedPatch, EngineError> {
        flow::patch(
            &self.stage.flow,
            &self.stage.permit("user_bob"),
            PatchRequest { version, dry_run: dry, ..PatchRequest::new(self.run, patch) },
        )
        .await
    }

    async fn applied(&self, patch: Value) -> u32 {
        let number = self.patch(patch, None, false).await.unwrap().number.unwrap();
        self.patch_is(number, "applied").await;
        number
    }

    async fn patch_is(&self, number: u32, status: &str) {
        let is =
            |row: &chimera_core::record::Row| row.int("number") == i64::from(number) && row.text("status") == status;
        let mut commits = self.stage.records.commits();
        while !self.stage.rows_of(&RUN_PATCHES, self.run).iter().any(is) {
            commits.changed().await.unwrap();
        }
    }

    async fn let_go(&self) -> Value {
        self.gate.notify_one();
        self.stage.ended(self.run).await
    }
}

/// INTENT-035, INTENT-033, INTENT-034
#[tokio::test(start_paused = true)]
async fn the_documents_patch_is_applied_behind_the_current_node() {
    let held = held(stage(1), SILENT).await;
    held.applied(upload_and_notify()).await;
    assert_eq!(held.let_go().await["status"], "completed");
    let standing = held.stage.step_statuses(held.run).await;
    assert_eq!(standing, "a=completed b=completed upload_to_s3=completed notify_email=completed notify_slack=skipped");
    let sent = held.stage.world.outside.sent();
    assert_eq!(sent[0].input["key_template"], format!("uploads/{}.bin", held.run));
    assert_eq!(sent[1].input["subject"], format!("Upload OK {}", held.run));
}

#[tokio::test(start_paused = true)]
async fn current_node_needs_exactly_one_current_node() {
    let gate = Arc::new(Notify::new());
    let stage = stage(1).tool(gated(&gate).build()).open().await;
    let air = workflow("two").function("a", "gated", json!({})).function("b", "gated", json!({}));
    let run = stage.run(&air, SILENT).await;
    let refused =
        flow::patch(&stage.flow, &stage.permit("user_bob"), PatchRequest::new(run, upload_and_notify())).await;
    let body = refused.unwrap_err().body();
    assert_eq!(body.code, "VALIDATION_FAILED");
    assert!(body.message.contains("exactly one current node"), "{}", body.message);
}

/// INTENT-031, INTENT-036
#[tokio::test(start_paused = true)]
async fn a_patch_that_would_change_what_is_there_or_can_not_work_is_refused() {
    let held = held(stage(1), SILENT).await;
    let mut into_old = add("x", "pure", "a");
    into_old["add_edges"].as_array_mut().unwrap().push(json!({"from": "x", "to": "b"}));
    let mut cycle = add("x", "pure", "a");
    cycle["add_nodes"].as_array_mut().unwrap().push(json!({"id": "y", "type": "function", "fn": "pure", "inputs": {}}));
    cycle["add_edges"]
        .as_array_mut()
        .unwrap()
        .extend([json!({"from": "x", "to": "y"}), json!({"from": "y", "to": "x"})]);
    let child = json!({
        "patch_version": "0.1", "justification": "more", "add_edges": [{"from": "a", "to": "x"}],
        "add_nodes": [{"id": "x", "type": "workflow", "workflow_id": "nowhere", "inputs": {}}],
    });
    let cases = [
        (into_old, "VALIDATION_FAILED"),
        (cycle, "VALIDATION_FAILED"),
        (add("x", "pure", "b"), "VALIDATION_FAILED"),
        (add("b", "pure", "a"), "VALIDATION_FAILED"),
        (add("x", "no_such_tool", "a"), "VALIDATION_FAILED"),
        (child, "MALFORMED_ARGS"),
    ];
    for (patch, code) in cases {
        assert_eq!(code_of(held.patch(patch.clone(), None, false).await), code, "{patch}");
    }
    assert!(held.stage.rows_of(&RUN_PATCHES, held.run).is_empty());
    assert_eq!(held.let_go().await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_patch_that_the_rules_refuse_is_refused() {
    let says = Says::Deny { reason: "not by robots".to_owned() };
    let rule = |actor: &str| Rule {
        name: "r".to_owned(),
        tool: "again".to_owned(),
        actor: actor.to_owned(),
        tenant: "*".to_owned(),
        says: says.clone(),
        limits: Vec::new(),
        beyond: Beyond::Deny,
    };
    for actor in ["user_ann", "user_bob"] {
        let held = held(stage(1).policy(Rules(vec![rule(actor)])), SILENT).await;
        let refused = held.patch(add("x", "again", "a"), None, false).await;
        assert_eq!(code_of(refused), "POLICY_DENIED", "neither the run's actor nor the patch's may be forbidden");
    }
}

#[tokio::test(start_paused = true)]
async fn a_patch_for_another_version_of_the_run_is_refused() {
    let held = held(stage(1), SILENT).await;
    let version = held.stage.show(held.run).await["state_version"].as_i64().unwrap();
    assert_eq!(code_of(held.patch(add("x", "pure", "a"), Some(version - 1), false).await), "OCC_CONFLICT");
    held.patch(add("x", "pure", "a"), Some(version), false).await.unwrap();
    assert_eq!(held.let_go().await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_of_a_patch_shows_the_difference_and_changes_nothing() {
    let held = held(stage(1), SILENT).await;
    let proposed = held.patch(upload_and_notify(), None, true).await.unwrap();
    assert_eq!(proposed.number, None);
    assert_eq!(proposed.preview.diff.nodes.added.len(), 3);
    assert_eq!(proposed.preview.diff.edges.added.len(), 3);
    assert_eq!(proposed.preview.inverse.remove_nodes, ["upload_to_s3", "notify_email", "notify_slack"]);
    held.let_go().await;
    assert_eq!(held.stage.step_statuses(held.run).await, "a=completed b=completed");
}

#[tokio::test(start_paused = true)]
async fn a_patch_is_taken_out_while_its_nodes_are_pending_and_not_after() {
    let held = held(stage(1), SILENT).await;
    let bob = held.stage.permit("user_bob");
    let number = held.applied(add("x", "again", "a")).await;
    flow::withdraw_patch(&held.stage.flow, &bob, held.run, number).await.unwrap();
    held.patch_is(number, "reverted").await;
    let second = held.applied(add("y", "again", "a")).await;
    let third = held.applied(add("z", "again", "a")).await;
    assert_eq!(code_of(flow::withdraw_patch(&held.stage.flow, &bob, held.run, second).await), "INVALID_TRANSITION");
    assert_eq!(held.let_go().await["status"], "completed");
    assert_eq!(held.stage.step_statuses(held.run).await, "a=completed b=completed y=completed z=completed");
    assert_eq!((second, third), (2, 3));
}

#[tokio::test(start_paused = true)]
async fn only_a_patch_that_is_applied_can_be_taken_out() {
    let held = held(stage(1), SILENT).await;
    let bob = held.stage.permit("user_bob");
    let unpatch = async |number: u32| code_of(flow::withdraw_patch(&held.stage.flow, &bob, held.run, number).await);
    assert_eq!(unpatch(7).await, "NOT_FOUND");
    let first = held.applied(add("x", "again", "a")).await;
    let second = held.applied(add("y", "again", "a")).await;
    assert_eq!(unpatch(first).await, "INVALID_TRANSITION", "it is not the last one");
    assert_eq!(unpatch(second).await, "none");
    held.patch_is(second, "reverted").await;
    assert_eq!(unpatch(second).await, "INVALID_TRANSITION", "it is out already");
    held.let_go().await;
}

#[tokio::test(start_paused = true)]
async fn a_patch_with_a_node_that_can_not_run_here_is_refused_like_a_workflow_with_one() {
    let held = held(stage(1), SILENT).await;
    for node in [
        json!({"id": "x", "type": "agent", "goal": "win", "inputs": {}}),
        json!({"id": "x", "type": "swarm", "goal": "win", "inputs": {}}),
    ] {
        let started = {
            let stage = &held.stage;
            let air = workflow("robots").node(node.clone());
            stage.apply(&air).await;
            let ask = chimera_engine::flow::StartRun::of("robots", json!({}));
            flow::start(&stage.flow, &stage.permit("user_bob"), ask).await.map(drop).unwrap_err().body()
        };
        let patch = json!({
            "patch_version": "0.1", "justification": "more", "add_edges": [{"from": "a", "to": "x"}], "add_nodes": [node],
        });
        let body = held.patch(patch, None, false).await.unwrap_err().body();
        assert_eq!(body.code, started.code);
        assert!(body.message.contains("/add_nodes/0/type"), "{}", body.message);
    }
    assert!(held.stage.rows_of(&RUN_PATCHES, held.run).is_empty());
    held.let_go().await;
}

#[tokio::test(start_paused = true)]
async fn of_two_patches_with_the_same_node_the_second_is_refused() {
    let held = held(stage(1), SILENT).await;
    held.stage.flow.stop();
    held.patch(add("x", "again", "a"), None, false).await.unwrap();
    let told = held.patch(add("x", "pure", "a"), None, false).await;
    assert_eq!(code_of(told), "OCC_CONFLICT", "the first one is told and not taken in");
    let second = held.stage.restart(stage(1).tool(gated(&held.gate).build())).await;
    let held = PatchStage { stage: second, run: held.run, gate: held.gate };
    held.patch_is(1, "applied").await;
    assert_eq!(code_of(held.patch(add("x", "pure", "a"), None, false).await), "VALIDATION_FAILED");
    let shown = held.stage.show(held.run).await;
    assert_eq!((&shown["patches"][0]["number"], &shown["patches"][0]["status"]), (&json!(1), &json!("applied")));
}

#[tokio::test(start_paused = true)]
async fn a_patch_survives_a_restart_and_so_does_its_place() {
    let gate = Arc::new(Notify::new());
    let first = stage(1).tool(gated(&gate).build()).open().await;
    let air =
        workflow("w").node(json!({"id": "ask", "type": "hitl"})).function("b", "pure", json!({})).edge("ask", "b");
    let run = first.run(&air, SILENT).await;
    first.asks(run).await;
    let held = PatchStage { stage: first, run, gate };
    held.applied(add("x", "again", "CURRENT_NODE")).await;
    let second = held.stage.restart(stage(1).tool(gated(&held.gate).build())).await;
    let held = PatchStage { stage: second, run, gate: held.gate };
    held.applied(add("y", "again", "ask")).await;
    held.stage.approve("user_ann", run).await;
    assert_eq!(held.stage.ended(run).await["status"], "completed");
    assert_eq!(held.stage.step_statuses(run).await, "ask=completed b=completed x=completed y=completed");
    let replay = Replay { of: run, mode: ReplayMode::Freeze, from: None };
    let frozen = flow::replay(&held.stage.flow, &held.stage.permit("user_bob"), replay, ReplayOptions::default())
        .await
        .unwrap()
        .run_id;
    assert_eq!(held.stage.ended(frozen).await["status"], "completed");
    assert_eq!(
        held.stage.step_statuses(frozen).await,
        held.stage.step_statuses(run).await,
        "a replay has the patches too"
    );
}

#[tokio::test(start_paused = true)]
async fn at_l1_a_patch_waits_for_an_approval_that_covers_the_plan_with_it() {
    let held = held(stage(1), Level::Draft).await;
    held.patch(add("x", "again", "a"), None, false).await.unwrap();
    let waiting = |shown: &Value| shown["approvals"][0]["action_type"] == "graph.patch";
    let first = held.stage.until(held.run, waiting).await["approvals"][0].clone();
    assert_eq!(first["action"]["patch"]["add_nodes"][0]["id"], "x");
    let shown = held.stage.show(held.run).await;
    let plan = Digest32::from_hex(shown["plan"]["digest"].as_str().unwrap()).unwrap();
    let versions = first["action"]["patch"]["tool_versions"].clone();
    assert!(versions["again"].is_string(), "it covers the tool that people saw: {versions}");
    let mut patch = add("x", "again", "a");
    patch["tool_versions"] = versions;
    let covered = patch::digest(plan, &patch::Patch::from_stored(patch).unwrap());
    let shown = json!({"content": covered, "showing": first["action"]["showing"]});
    assert_eq!(first["digest"], Digest32::of(&shown).to_string(), "of this showing of it");
    assert_eq!(
        code_of(held.patch(add("x", "pure", "a"), None, false).await),
        "OCC_CONFLICT",
        "only one can be applied"
    );
    held.patch(add("z", "again", "a"), None, false).await.unwrap();
    held.patch(add("y", "again", "a"), None, false).await.unwrap();
    let all = held.stage.until(held.run, |shown| shown["approvals"].as_array().unwrap().len() == 3).await;
    let other =
        all["approvals"].as_array().unwrap().iter().find(|asked| asked["action"]["patch"]["add_nodes"][0]["id"] == "y");
    let decide = chimera_engine::flow::Decision::Approve;
    held.stage.decide("user_bob", held.run, decide, other).await.unwrap();
    held.patch_is(3, "applied").await;
    assert_eq!(held.let_go().await["status"], "completed");
    assert_eq!(held.stage.step_statuses(held.run).await, "a=completed b=completed y=completed");
    let mut words: Vec<_> =
        held.stage.rows_of(&RUN_PATCHES, held.run).iter().map(|row| row.text("status").to_owned()).collect();
    words.sort_unstable();
    assert_eq!(words, ["applied", "refused", "refused"], "what nobody decided about ends with the run");
    assert!(held.stage.rows(&APPROVAL_REQUESTS).iter().all(|row| row.text("status") != "pending"));
}

#[tokio::test(start_paused = true)]
async fn at_l1_a_patch_that_is_rejected_changes_nothing_and_the_run_goes_on() {
    let held = held(stage(1), Level::Draft).await;
    held.patch(add("x", "again", "a"), None, false).await.unwrap();
    let waiting = |shown: &Value| shown["approvals"][0]["action_type"] == "graph.patch";
    let asked = held.stage.until(held.run, waiting).await["approvals"][0].clone();
    held.stage.decide("user_bob", held.run, chimera_engine::flow::Decision::Reject, Some(&asked)).await.unwrap();
    held.patch_is(1, "refused").await;
    assert_eq!(held.let_go().await["status"], "completed");
    assert!(held.stage.world.outside.sent().is_empty());
}

fn of_node<'a>(shown: &'a Value, node: &str) -> Option<&'a Value> {
    shown["approvals"].as_array().unwrap().iter().find(|asked| asked["action"]["patch"]["add_nodes"][0]["id"] == node)
}

/// Two pending patches at L1, the second one after the current node; both requests.
async fn two_pending_patches(held: &PatchStage) -> (Value, Value) {
    held.patch(add("x", "again", "a"), None, false).await.unwrap();
    held.patch(add("y", "again", "CURRENT_NODE"), None, false).await.unwrap();
    let shown = held.stage.until(held.run, |shown| shown["approvals"].as_array().unwrap().len() == 2).await;
    (of_node(&shown, "x").unwrap().clone(), of_node(&shown, "y").unwrap().clone())
}

/// The request for a patch that was requested again since.
async fn anew(held: &PatchStage, node: &str, old: &Value) -> Value {
    let newer = |shown: &Value| of_node(shown, node).is_some_and(|asked| asked["digest"] != old["digest"]);
    of_node(&held.stage.until(held.run, newer).await, node).unwrap().clone()
}

/// An approval covers a patch on a plan, so it no longer counts once the plan has another patch: the request is superseded and
/// made again.
#[tokio::test(start_paused = true)]
async fn at_l1_an_approval_of_a_patch_is_for_the_plan_that_was_looked_at() {
    let (held, approve) = (held(stage(1), Level::Draft).await, chimera_engine::flow::Decision::Approve);
    let (x, y) = two_pending_patches(&held).await;
    assert_eq!(y["action"]["patch"]["add_edges"][0]["from"], "a", "whoever decides sees which node is current");
    held.stage.decide("user_bob", held.run, approve, Some(&x)).await.unwrap();
    held.patch_is(1, "applied").await;
    let again = anew(&held, "y", &y).await;
    assert_eq!(code_of(held.stage.decide("user_bob", held.run, approve, Some(&y)).await), "STALE_APPROVAL");
    held.stage.decide("user_bob", held.run, approve, Some(&again)).await.unwrap();
    held.patch_is(2, "applied").await;
    assert_eq!(held.let_go().await["status"], "completed");
    assert_eq!(held.stage.step_statuses(held.run).await, "a=completed b=completed x=completed y=completed");
    assert!(held.stage.rows(&APPROVAL_REQUESTS).iter().all(|row| row.text("status") != "pending"));
}

#[tokio::test(start_paused = true)]
async fn at_l1_of_two_approvals_for_the_same_plan_the_first_counts_and_the_other_is_asked_anew() {
    let (held, approve) = (held(stage(1), Level::Draft).await, chimera_engine::flow::Decision::Approve);
    let (x, y) = two_pending_patches(&held).await;
    let (one, other) = tokio::join!(
        held.stage.decide("user_bob", held.run, approve, Some(&x)),
        held.stage.decide("user_bob", held.run, approve, Some(&y)),
    );
    let codes = [code_of(one), code_of(other)];
    assert!(codes.contains(&"none".to_owned()) && codes.contains(&"STALE_APPROVAL".to_owned()), "{codes:?}");
    let statuses = |shown: &Value| -> Vec<Value> {
        shown["patches"].as_array().unwrap().iter().map(|patch| patch["status"].clone()).collect()
    };
    let one_is_on = |shown: &Value| {
        let on = statuses(shown).iter().filter(|status| **status == "applied").count();
        on > 1 || (on == 1 && shown["approvals"].as_array().unwrap().len() == 1)
    };
    let shown = held.stage.until(held.run, one_is_on).await;
    let again = &shown["approvals"][0];
    assert!(again["digest"] != x["digest"] && again["digest"] != y["digest"], "{shown:#}");
    held.stage.decide("user_bob", held.run, approve, Some(again)).await.unwrap();
    held.stage.until(held.run, |shown| statuses(shown) == ["applied", "applied"]).await;
    assert_eq!(held.let_go().await["status"], "completed");
}

/// Patches are reverted in reverse order of application, whatever their numbers.
#[tokio::test(start_paused = true)]
async fn a_patch_that_was_put_on_before_another_one_with_a_lower_number_stays_below_it() {
    let (held, approve) = (held(stage(1), Level::Draft).await, chimera_engine::flow::Decision::Approve);
    let (x, y) = two_pending_patches(&held).await;
    held.stage.decide("user_bob", held.run, approve, Some(&y)).await.unwrap();
    held.patch_is(2, "applied").await;
    let again = anew(&held, "x", &x).await;
    held.stage.decide("user_bob", held.run, approve, Some(&again)).await.unwrap();
    held.patch_is(1, "applied").await;
    let bob = held.stage.permit("user_bob");
    let refused = flow::withdraw_patch(&held.stage.flow, &bob, held.run, 2).await.unwrap_err().body();
    assert!(refused.message.contains("patch 1 was applied later"), "{}", refused.message);
    let second = held.stage.restart(stage(1).tool(gated(&held.gate).build())).await;
    let held = PatchStage { stage: second, run: held.run, gate: held.gate };
    flow::withdraw_patch(&held.stage.flow, &bob, held.run, 1).await.unwrap();
    held.patch_is(1, "reverted").await;
    let standing = held.stage.step_statuses(held.run).await;
    assert!(standing.ends_with("y=pending"), "{standing}");
}

/// A tool that a patch calls, in this version.
fn note(version: &'static str) -> ScriptedTool {
    ScriptedTool::new("note", EffectKind::Write).with_declaration(|tool| tool.version = version)
}

/// A run at L1 with an approved plan that waits for a person, with a proposed patch after them.
async fn proposed_after_hitl(setup: EngineSetup) -> PatchStage {
    let stage = setup.open().await;
    let run = stage.run(&workflow("w").node(json!({"id": "ask", "type": "hitl"})), Level::Draft).await;
    stage.approve("user_ann", run).await;
    stage.step(run, "ask", "awaiting_approval").await;
    let held = PatchStage { stage, run, gate: Arc::default() };
    held.patch(add("x", "note", "ask"), None, false).await.unwrap();
    held
}

async fn patch_asked(held: &PatchStage) -> Value {
    of_node(&held.stage.until(held.run, |shown| of_node(shown, "x").is_some()).await, "x").unwrap().clone()
}

fn of_step<'a>(shown: &'a Value, node: &str) -> Option<&'a Value> {
    shown["approvals"].as_array().unwrap().iter().find(|asked| asked["node_id"] == node)
}

#[tokio::test(start_paused = true)]
async fn at_l1_a_step_of_an_approved_patch_is_asked_about_when_its_tool_has_changed() {
    let approve = chimera_engine::flow::Decision::Approve;
    for (version, asks) in [("1", false), ("1+changed", true)] {
        let held = proposed_after_hitl(stage(1).tool(note("1").build())).await;
        let asked = patch_asked(&held).await;
        assert_eq!(asked["action"]["patch"]["tool_versions"], json!({"note": "1"}), "people see what they approve");
        held.stage.decide("user_bob", held.run, approve, Some(&asked)).await.unwrap();
        held.patch_is(1, "applied").await;
        let tool = note(version);
        let made = tool.asked();
        let stage = held.stage.restart(stage(1).tool(tool.build())).await;
        let person = of_step(&stage.show(held.run).await, "ask").unwrap().clone();
        stage.decide("user_ann", held.run, approve, Some(&person)).await.unwrap();
        if asks {
            let shown = stage.until(held.run, |shown| of_step(shown, "x").is_some()).await;
            let asked = of_step(&shown, "x").unwrap();
            assert_eq!((&asked["action"]["tool_version"], made.count("execute")), (&json!(version), 0));
            assert_eq!(asked["action"]["reason"], "what would run differs from what was approved");
            stage.decide("user_ann", held.run, approve, Some(asked)).await.unwrap();
        }
        assert_eq!(stage.ended(held.run).await["status"], "completed", "{version}");
        assert_eq!(made.count("execute"), 1, "{version}");
    }
}

#[tokio::test(start_paused = true)]
async fn at_l1_a_patch_that_waits_is_asked_about_anew_when_its_tool_has_changed() {
    let approve = chimera_engine::flow::Decision::Approve;
    let held = proposed_after_hitl(stage(1).tool(note("1").build())).await;
    let old = patch_asked(&held).await;
    held.stage.flow.stop();
    held.stage.decide("user_bob", held.run, approve, Some(&old)).await.unwrap();
    let stage = held.stage.restart(stage(1).tool(note("2").build())).await;
    let held = PatchStage { stage, ..held };
    let again = anew(&held, "x", &old).await;
    assert_eq!(again["action"]["patch"]["tool_versions"], json!({"note": "2"}));
    assert_eq!(held.stage.show(held.run).await["patches"][0]["status"], "proposed");
    held.stage.decide("user_bob", held.run, approve, Some(&again)).await.unwrap();
    held.patch_is(1, "applied").await;
}

/// This many notes after a node.
fn notes(count: usize, from: &str) -> Value {
    let nodes = (0..count).map(|at| json!({"id": format!("x{at}"), "type": "function", "fn": "note", "inputs": {}}));
    let edges = (0..count).map(|at| json!({"from": from, "to": format!("x{at}")}));
    let (nodes, edges): (Vec<Value>, Vec<Value>) = (nodes.collect(), edges.collect());
    json!({"patch_version": "0.1", "justification": "more", "add_nodes": nodes, "add_edges": edges})
}

/// A list of eight that became known, short enough to run without approval, counts together with what a patch adds.
#[tokio::test(start_paused = true)]
async fn a_patch_is_counted_together_with_the_items_that_have_become_known() {
    for (added, fits) in [(1, true), (2, false)] {
        let source =
            ScriptedTool::new("source", EffectKind::Read).answers(|_, _| Ok(json!({"list": [1, 2, 3, 4, 5, 6, 7, 8]})));
        let tool = note("1");
        let made = tool.asked();
        let stage = stage(1).tool(source.build()).tool(tool.build()).open().await;
        let air = workflow("w")
            .function("a", "source", json!({}))
            .map("m", json!("${nodes.a.outputs.list}"), "note", json!({"n": "${item}"}))
            .in_parallel(8)
            .node(json!({"id": "ask", "type": "hitl"}))
            .edge("a", "m")
            .edge("m", "ask");
        let run = stage.run(&air, Level::ExecuteNotify).await;
        stage.asks(run).await;
        let held = PatchStage { stage, run, gate: Arc::default() };
        held.patch(notes(added, "m"), None, false).await.unwrap();
        held.patch_is(1, if fits { "applied" } else { "refused" }).await;
        held.stage.approve("user_ann", run).await;
        assert_eq!(held.stage.ended(run).await["status"], "completed");
        assert_eq!(made.count("execute"), if fits { 9 } else { 8 });
        let reason = held.stage.show(run).await["patches"][0]["reason"].clone();
        assert!(fits || reason.as_str().unwrap().contains("makes 11 calls"), "{reason}");
    }
}

/// What a patch added counts together with a list that becomes known later.
#[tokio::test(start_paused = true)]
async fn a_list_that_becomes_known_is_counted_together_with_the_steps_of_a_patch() {
    let source = ScriptedTool::new("source", EffectKind::Read).answers(|_, _| Ok(json!({"list": [1, 2, 3, 4]})));
    let stage = stage(1).tool(source.build()).tool(note("1").build()).open().await;
    let air = workflow("w")
        .node(json!({"id": "ask", "type": "hitl"}))
        .function("a", "source", json!({}))
        .map("m", json!("${nodes.a.outputs.list}"), "note", json!({"n": "${item}"}))
        .in_parallel(8)
        .edge("ask", "a")
        .edge("a", "m");
    stage.apply(&air).await;
    let risk = Some(Arc::new(json!({"calls": 5})));
    let ask = chimera_engine::flow::StartRun { risk, ..chimera_engine::flow::StartRun::of("w", json!({})) };
    let run = stage.start(ask).await;
    stage.asks(run).await;
    let held = PatchStage { stage, run, gate: Arc::default() };
    held.applied(notes(3, "ask")).await;
    held.stage.approve("user_ann", run).await;
    let shown = held.stage.until(run, |shown| of_step(shown, "m").is_some()).await;
    let reason = &of_step(&shown, "m").unwrap()["action"]["reason"];
    assert_eq!(*reason, "with these 4 items the run makes 11 calls; more than 10 need approval");
}
