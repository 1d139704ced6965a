//! Approvals: who decides, on exactly what, until when.

use chimera_core::access::Level;
use chimera_core::act::risk;
use chimera_core::flow::plan::Plan;
use chimera_core::flow::policy::{Action, Policy, PolicyVerdict};
use chimera_core::flow::risk::Score;
use chimera_core::flow::run::RunStatus;
use chimera_core::flow::tables::{APPROVAL_REQUESTS, SCOPED_APPROVALS};
use chimera_core::ledger::tables::AUDIT_LOGS;
use chimera_core::limits;
use chimera_core::tool::{EffectKind, Spec};
use chimera_engine::act::rules::{Beyond, Rule, Rules, Says};
use chimera_engine::flow::{self, Decide, Decision, RequestStatus, StartRun};
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{Air, EngineFixture, ScriptedTool, chain, code_of, id_of, stage, workflow};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use uuid::Uuid;

const SILENT: Level = Level::ExecuteSilent;

fn hitl(approval: Value) -> Air {
    workflow("w")
        .node(json!({"id": "ask", "type": "hitl", "prompt": "May ${inputs.who}?", "show": {"who": "${inputs.who}"}, "approval": approval}))
        .function("yes", "again", json!({"by": "${nodes.ask.outputs.approved_by}"}))
        .function("no", "again", json!({"why": "${nodes.ask.outputs.error.details.notes}"}))
        .edge("ask", "yes")
        .edge_if("ask", "no", "${nodes.ask.outputs.success == false}")
}

async fn asked(approval: Value) -> (EngineFixture, Uuid) {
    let stage = stage(1).open().await;
    let run = stage.run_with(&hitl(approval), SILENT, json!({"who": "Bob"})).await;
    stage.asks(run).await;
    (stage, run)
}

#[tokio::test(start_paused = true)]
async fn a_person_sees_what_is_asked_and_the_graph_goes_on_with_the_answer() {
    let (stage, run) = asked(json!({})).await;
    let request = stage.asks(run).await.remove(0);
    assert_eq!(request["action"]["input"], json!({"prompt": "May Bob?", "show": {"who": "Bob"}}));
    stage.approve("user_bob", run).await;
    assert_eq!(stage.ended(run).await["result"]["yes"]["echo"]["by"], json!(["user_bob"]));
}

#[tokio::test(start_paused = true)]
async fn a_no_or_a_wish_for_changes_at_a_persons_node_is_an_outcome_the_graph_may_deal_with() {
    for (decision, word) in [(Decision::Reject, "reject"), (Decision::RequestChanges, "request_changes")] {
        let (stage, run) = asked(json!({})).await;
        let ask =
            Decide { run, decision, approval: None, step: None, digest: None, reason: Some("too late".to_owned()) };
        flow::decide(&stage.flow, &stage.permit("user_bob"), ask).await.unwrap();
        let shown = stage.ended(run).await;
        assert_eq!(
            (&shown["status"], &shown["result"]["no"]["echo"]["why"]),
            (&json!("completed"), &json!("too late"))
        );
        let error = &stage.step(run, "ask", "failed").await["error"];
        assert_eq!(error["details"]["decision"], word);
    }
}

#[tokio::test(start_paused = true)]
async fn only_people_decide() {
    let (stage, run) = asked(json!({})).await;
    for who in ["n8n_workflow_1", "service_chatbot", "anonymous"] {
        assert_eq!(code_of(stage.decide(who, run, Decision::Approve, None).await), "RBAC_FORBIDDEN");
    }
    assert_eq!(stage.show(run).await["status"], "awaiting_approval");
}

#[tokio::test(start_paused = true)]
async fn the_requester_may_be_kept_from_deciding() {
    let (stage, run) = asked(json!({"other_than_requester": true})).await;
    assert_eq!(code_of(stage.decide("user_ann", run, Decision::Approve, None).await), "RBAC_FORBIDDEN");
    stage.approve("user_bob", run).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn as_many_different_people_must_approve_as_are_needed() {
    let (stage, run) = asked(json!({"approvals_needed": 2, "approvers": ["user_b*", "user_c*"]})).await;
    let decide = async |who: &str| stage.decide(who, run, Decision::Approve, None).await;
    assert_eq!(code_of(decide("user_ann").await), "RBAC_FORBIDDEN");
    let decided = decide("user_bob").await.unwrap();
    assert_eq!((decided.status, decided.approvals, decided.needed), (RequestStatus::Pending, 1, 2));
    assert_eq!(code_of(decide("user_bob").await), "INVALID_TRANSITION", "nobody counts twice");
    assert_eq!(decide("user_cid").await.unwrap().status, RequestStatus::Approved);
    let shown = stage.ended(run).await;
    assert_eq!(shown["result"]["yes"]["echo"]["by"], json!(["user_bob", "user_cid"]));
}

#[tokio::test(start_paused = true)]
async fn one_no_is_enough() {
    let (stage, run) = asked(json!({"approvals_needed": 3})).await;
    stage.decide("user_bob", run, Decision::Approve, None).await.unwrap();
    assert_eq!(stage.decide("user_cid", run, Decision::Reject, None).await.unwrap().status, RequestStatus::Denied);
    stage.ended(run).await;
    assert_eq!(code_of(stage.decide("user_dan", run, Decision::Approve, None).await), "INVALID_TRANSITION");
}

#[tokio::test(start_paused = true)]
async fn nobody_who_decides_in_time_cancels_what_waits() {
    let airs = [hitl(json!({"expires_seconds": 600})), chain("l0", &[("a", "again")]), chain("l1", &[("a", "again")])];
    for (air, level, seconds) in
        [(&airs[0], SILENT, 600), (&airs[1], Level::Ask, 86_400), (&airs[2], Level::Draft, 86_400)]
    {
        let stage = stage(1).unkept().open().await;
        let run = stage.run_with(air, level, json!({"who": "Bob"})).await;
        let request = stage.asks(run).await.remove(0);
        tokio::time::advance(Duration::from_secs(seconds - 1)).await;
        let keeper = &mut chimera_engine::flow::KeeperState::default();
        flow::run_keeper_once(&stage.flow, keeper).await.unwrap();
        assert_eq!(stage.show(run).await["status"], "awaiting_approval");
        tokio::time::advance(Duration::from_secs(1)).await;
        let late = stage.decide("user_bob", run, Decision::Approve, Some(&request)).await;
        assert_eq!(code_of(late), "INVALID_TRANSITION", "it is too late even before anybody looked");
        flow::run_keeper_once(&stage.flow, keeper).await.unwrap();
        assert_eq!(stage.ended(run).await["status"], "cancelled");
        assert_eq!(stage.rows(&APPROVAL_REQUESTS)[0].text("status"), "expired");
        assert!(stage.world.outside.sent().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_rests_while_it_waits_for_a_person_however_soon_the_approval_expires() {
    for (seconds, level) in [(2, SILENT), (2, Level::Ask), (5, Level::Ask), (9, Level::Ask)] {
        let stage = stage(1).open().await;
        stage.apply(&hitl(json!({"expires_seconds": seconds}))).await;
        let ask = StartRun { level, ..StartRun::of("w", json!({"who": "Bob"})) };
        let mut started = flow::start(&stage.flow, &stage.permit("user_ann"), ask).await.unwrap();
        let progress = started.progress.wait_for(|progress| progress.is_resting).await.unwrap().clone();
        assert_eq!(progress.status, RunStatus::AwaitingApproval, "{level:?} {seconds}");
        assert_eq!(stage.ended(started.run_id).await["status"], "cancelled");
    }
}

#[tokio::test(start_paused = true)]
async fn an_approval_survives_a_restart() {
    let first = stage(1).open().await;
    let run = first.run(&chain("w", &[("a", "again")]), Level::Ask).await;
    first.asks(run).await;
    let second = first.restart(stage(1)).await;
    second.approve("user_ann", run).await;
    assert_eq!(second.ended(run).await["status"], "completed");
}

/// CORE-018, CORE-019
#[tokio::test(start_paused = true)]
async fn l0_asks_for_one_step_at_a_time_also_where_branches_could_run_together() {
    let stage = stage(1).open().await;
    let air = ["a", "b", "c"].iter().fold(workflow("w"), |air, id| air.function(id, "again", json!({"n": id})));
    let run = stage.run(&air, Level::Ask).await;
    for done in 0..3 {
        let requests =
            stage.until(run, |shown| shown["approvals"].as_array().is_some_and(|asked| !asked.is_empty())).await;
        assert_eq!(requests["approvals"].as_array().unwrap().len(), 1);
        assert_eq!(stage.world.outside.sent().len(), done);
        stage.approve("user_ann", run).await;
        stage.until(run, |shown| shown["approvals"] != requests["approvals"]).await;
    }
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(stage.world.outside.sent().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_second_click_can_not_approve_the_next_step() {
    let stage = stage(1).open().await;
    let run = stage.run(&chain("w", &[("a", "again"), ("b", "again")]), Level::Ask).await;
    let first = stage.asks(run).await.remove(0);
    stage.decide("user_ann", run, Decision::Approve, None).await.unwrap();
    stage.until(run, |shown| shown["approvals"][0]["node_id"] == "b").await;
    assert_eq!(code_of(stage.decide("user_ann", run, Decision::Approve, None).await), "INVALID_TRANSITION");
    assert_eq!(code_of(stage.decide("user_ann", run, Decision::Approve, Some(&first)).await), "INVALID_TRANSITION");
    assert_eq!(stage.world.outside.sent().len(), 1);
    stage.approve("user_ann", run).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn an_edited_input_has_a_new_digest_and_the_old_one_is_stale() {
    let stage = stage(1).open().await;
    let run = stage.run(&chain("w", &[("a", "again")]), Level::Ask).await;
    let old = stage.asks(run).await.remove(0);
    let step = id_of(&old["step_id"]);
    let ann = stage.permit("user_ann");
    let robot = stage.permit("service_chatbot");
    assert_eq!(code_of(flow::edit_step(&stage.flow, &robot, run, step, json!({"n": "z"})).await), "RBAC_FORBIDDEN");
    flow::edit_step(&stage.flow, &ann, run, step, json!({"n": "edited"})).await.unwrap();
    let new = stage.asks(run).await.remove(0);
    assert_ne!(new["digest"], old["digest"]);
    assert_eq!(new["action"]["input"], json!({"n": "edited"}));
    assert_eq!(code_of(stage.decide("user_ann", run, Decision::Approve, Some(&old)).await), "STALE_APPROVAL");
    stage.decide("user_ann", run, Decision::Approve, Some(&new)).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(stage.world.outside.sent()[0].input, json!({"n": "edited"}));
}

#[tokio::test(start_paused = true)]
async fn what_was_looked_at_before_an_edit_can_not_be_approved_even_before_the_run_takes_the_edit_in() {
    let stage = stage(1).unkept().open().await;
    let run = stage.run(&chain("w", &[("a", "again")]), Level::Ask).await;
    let old = stage.asks(run).await.remove(0);
    let (step, ann) = (id_of(&old["step_id"]), stage.permit("user_ann"));
    // Nobody drives the run: the edit's signal stays pending.
    stage.flow.stop();
    flow::edit_step(&stage.flow, &ann, run, step, json!({"n": "edited"})).await.unwrap();
    assert_eq!(code_of(stage.decide("user_ann", run, Decision::Approve, Some(&old)).await), "STALE_APPROVAL");
    let by_id = Decide {
        run,
        decision: Decision::Approve,
        approval: Some(id_of(&old["approval_id"])),
        step: None,
        digest: None,
        reason: None,
    };
    assert_eq!(code_of(flow::decide(&stage.flow, &ann, by_id).await), "STALE_APPROVAL");
    assert_eq!(code_of(flow::edit_step(&stage.flow, &ann, run, step, json!({"n": "again"})).await), "OCC_CONFLICT");
    let second = stage.restart(chimera_testkit::flow::stage(1)).await;
    let new = second.asks(run).await.remove(0);
    assert_eq!(new["action"]["input"], json!({"n": "edited"}));
    second.decide("user_ann", run, Decision::Approve, Some(&new)).await.unwrap();
    assert_eq!(second.ended(run).await["status"], "completed");
    assert_eq!(second.world.outside.sent()[0].input, json!({"n": "edited"}));
}

#[tokio::test(start_paused = true)]
async fn an_edit_and_a_decision_at_once_are_never_both_accepted() {
    for first in ["edit", "decide"] {
        let stage = stage(1).open().await;
        let run = stage.run(&chain("w", &[("a", "again")]), Level::Ask).await;
        let old = stage.asks(run).await.remove(0);
        let ann = stage.permit("user_ann");
        let edit = async {
            code_of(flow::edit_step(&stage.flow, &ann, run, id_of(&old["step_id"]), json!({"n": "mine"})).await)
        };
        let decide = async { code_of(stage.decide("user_bob", run, Decision::Approve, Some(&old)).await) };
        let (edited, decided) = match first {
            "edit" => futures::future::join(edit, decide).await,
            _ => {
                let (decided, edited) = futures::future::join(decide, edit).await;
                (edited, decided)
            }
        };
        assert!((edited == "none") != (decided == "none"), "{first}: {edited}, {decided}");
        if edited == "none" {
            let wanted = |shown: &Value| shown["approvals"][0]["action"]["input"]["n"] == "mine";
            stage.until(run, wanted).await;
            stage.approve("user_bob", run).await;
        }
        stage.ended(run).await;
        let n = if edited == "none" { "mine" } else { "a" };
        assert_eq!(stage.world.outside.sent()[0].input, json!({"n": n}));
    }
}

#[tokio::test(start_paused = true)]
async fn an_approval_of_another_run_is_not_found_here() {
    let stage = stage(1).open().await;
    let air = chain("w", &[("a", "again")]);
    let (one, other) = (stage.run(&air, Level::Ask).await, stage.run(&air, Level::Ask).await);
    let foreign = id_of(&stage.asks(other).await[0]["approval_id"]);
    stage.asks(one).await;
    let decision = Decision::Approve;
    let ask = Decide { run: one, decision, approval: Some(foreign), step: None, digest: None, reason: None };
    let body = flow::decide(&stage.flow, &stage.permit("user_ann"), ask).await.unwrap_err().body();
    assert_eq!(
        (body.code.as_str(), body.message.as_str()),
        ("NOT_FOUND", "this run has no approval request with this id")
    );
}

#[tokio::test(start_paused = true)]
async fn an_edit_does_not_get_around_who_must_approve() {
    let stage = stage(1).open().await;
    let demand = json!({"approvals_needed": 2, "other_than_requester": true});
    let run = stage.run(&chain("w", &[("a", "again")]).with_node_member("requires_approval", demand), SILENT).await;
    let old = stage.asks(run).await.remove(0);
    flow::edit_step(&stage.flow, &stage.permit("user_ann"), run, id_of(&old["step_id"]), json!({"n": "mine"}))
        .await
        .unwrap();
    let new = stage.asks(run).await.remove(0);
    assert_ne!(new["digest"], old["digest"]);
    assert_eq!(code_of(stage.decide("user_ann", run, Decision::Approve, Some(&new)).await), "RBAC_FORBIDDEN");
    assert_eq!(new["approvals_needed"], 2);
}

#[tokio::test(start_paused = true)]
async fn two_edits_at_once_leave_one_question() {
    let stage = stage(1).open().await;
    let run = stage.run(&chain("w", &[("a", "again")]), Level::Ask).await;
    let old = stage.asks(run).await.remove(0);
    let (ann, step) = (stage.permit("user_ann"), id_of(&old["step_id"]));
    let edits = ["x", "y", "z"].map(|n| flow::edit_step(&stage.flow, &ann, run, step, json!({"n": n})));
    let mut codes: Vec<String> = futures::future::join_all(edits).await.into_iter().map(code_of).collect();
    codes.sort_unstable();
    assert_eq!(codes, ["OCC_CONFLICT", "OCC_CONFLICT", "none"], "each of them edits what another has taken back");
    let new = stage.asks(run).await;
    assert_eq!(new.len(), 1);
    assert_ne!(new[0]["digest"], old["digest"]);
    stage.approve("user_ann", run).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_run_may_ask_only_so_often() {
    let stage = stage(1).open().await;
    let count = usize::try_from(limits::RUN_APPROVALS_MAX).unwrap() + 5;
    let air = (0..count).fold(workflow("many"), |air, n| air.node(json!({"id": format!("n{n}"), "type": "hitl"})));
    let run = stage.run(&air, SILENT).await;
    let shown = stage.ended(run).await;
    assert_eq!(shown["error_message"], "the run exceeds its limit of approval requests");
    assert!(stage.rows(&SCOPED_APPROVALS).len() <= count);
}

#[tokio::test(start_paused = true)]
async fn a_rule_may_demand_approval_at_any_level() {
    let says = Says::Ask { approvals: 1, approvers: vec!["user_boss".to_owned()], other_than_requester: true };
    let rules = Rules(vec![Rule {
        name: "four eyes".to_owned(),
        tool: "ag*".to_owned(),
        actor: "*".to_owned(),
        tenant: "*".to_owned(),
        says,
        limits: Vec::new(),
        beyond: Beyond::Deny,
    }]);
    let stage = stage(1).policy(rules).open().await;
    let run = stage.run(&chain("w", &[("a", "again")]), SILENT).await;
    let request = stage.asks(run).await.remove(0);
    assert_eq!(request["action"]["reason"], "the rule four eyes demands approval");
    assert_eq!(code_of(stage.decide("user_bob", run, Decision::Approve, None).await), "RBAC_FORBIDDEN");
    stage.approve("user_boss", run).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

struct Freeze(Arc<AtomicBool>);

impl Policy for Freeze {
    fn evaluate(&self, _: &Action<'_>) -> PolicyVerdict {
        match self.0.load(Ordering::SeqCst) {
            true => PolicyVerdict::Deny { rule: "freeze".to_owned(), reason: "nothing is sent today".to_owned() },
            false => PolicyVerdict::Allow,
        }
    }

    fn score_call(&self, _: &Spec, _: &Value) -> Score {
        Score::default()
    }

    fn score(&self, plan: &Plan, tools: &[&Spec]) -> Score {
        risk::score_with(plan, tools)
    }
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_denies_at_dispatch_counts_more_than_the_approval_before() {
    let frozen = Arc::new(AtomicBool::new(false));
    let tool = ScriptedTool::new("write", EffectKind::Write);
    let made = tool.asked();
    let stage = stage(1).policy(Freeze(Arc::clone(&frozen))).tool(tool.build()).open().await;
    let run = stage.run(&chain("w", &[("a", "write")]), Level::Ask).await;
    stage.asks(run).await;
    frozen.store(true, Ordering::SeqCst);
    stage.approve("user_ann", run).await;
    let shown = stage.ended(run).await;
    assert_eq!((&shown["status"], &shown["error"]["code"]), (&json!("failed"), &json!("POLICY_DENIED")));
    assert_eq!(stage.step(run, "a", "failed").await["error"]["code"], "POLICY_DENIED");
    assert_eq!(made.count("execute"), 0);
    let rows = stage.rows(&AUDIT_LOGS);
    let denied = rows.iter().find(|row| row.text("event_type") == "policy_evaluation").expect("an audit row");
    assert_eq!(denied.text("decision_outcome"), "rejected");
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_denies_a_retry_ends_the_step() {
    let frozen = Arc::new(AtomicBool::new(false));
    let tool = ScriptedTool::new("write", EffectKind::Write).failing_at(&[1, 2, 3, 4]);
    let made = tool.asked();
    let stage = stage(1).policy(Freeze(Arc::clone(&frozen))).tool(tool.build()).open().await;
    let run = stage.run(&chain("w", &[("a", "write")]), SILENT).await;
    stage.step(run, "a", "retry_wait").await;
    frozen.store(true, Ordering::SeqCst);
    assert_eq!(stage.ended(run).await["error"]["code"], "POLICY_DENIED");
    assert_eq!(made.count("execute"), 1);
}

#[tokio::test(start_paused = true)]
async fn an_approval_of_l0_is_bound_to_the_version_of_the_tool() {
    let first = stage(1).tool(ScriptedTool::new("write", EffectKind::Write).build()).open().await;
    let run = first.run(&chain("w", &[("a", "write")]), Level::Ask).await;
    let old = first.asks(run).await.remove(0);
    // The decision is recorded, but the run has not continued when the tool changes.
    first.flow.stop();
    first.decide("user_ann", run, Decision::Approve, Some(&old)).await.unwrap();
    let newer = ScriptedTool::new("write", EffectKind::Write).with_declaration(|tool| tool.version = "2");
    let made = newer.asked();
    let second = first.restart(stage(1).tool(newer.build())).await;
    let new = second.until(run, |shown| shown["approvals"][0]["digest"].is_string()).await["approvals"][0].clone();
    assert_ne!(new["digest"], old["digest"]);
    assert_eq!(made.count("execute"), 0);
    second.approve("user_ann", run).await;
    assert_eq!(second.ended(run).await["status"], "completed");
}

/// CORE-038
#[tokio::test(start_paused = true)]
async fn a_tool_that_demands_approval_gets_it_at_every_level() {
    for level in [Level::ExecuteNotify, Level::ExecuteSilent] {
        let risky = ScriptedTool::new("risky", EffectKind::Write)
            .with_declaration(|tool| tool.metadata.requires_approval = true);
        let asked = risky.asked();
        let stage = stage(1).tool(risky.build()).open().await;
        let run = stage.run(&chain("w", &[("a", "pure"), ("b", "risky")]), level).await;
        stage.step(run, "b", "awaiting_approval").await;
        assert_eq!(asked.count("execute"), 0);
        stage.approve("user_ann", run).await;
        assert_eq!((stage.ended(run).await["status"].as_str(), asked.count("execute")), (Some("completed"), 1));
        let dry = StartRun { level, dry_run: true, ..StartRun::of("w", json!({})) };
        let dry = stage.start(dry).await;
        assert_eq!(stage.ended(dry).await["status"], "completed", "nobody is asked about what does nothing");
    }
}

#[tokio::test(start_paused = true)]
async fn decisions_that_meet_each_other_are_all_heard() {
    let stage = stage(1).open().await;
    let air = chain("w", &[("a", "pure")]).with_node_member("requires_approval", json!({"approvals_needed": 3}));
    let run = stage.run(&air, SILENT).await;
    stage.step(run, "a", "awaiting_approval").await;
    let people: Vec<String> = (0..12).map(|n| format!("user_{n}")).collect();
    let said = people.iter().enumerate().map(|(n, who)| {
        let decision = if n == 1 { Decision::Reject } else { Decision::Approve };
        stage.decide(who, run, decision, None)
    });
    let said = futures::future::join_all(said).await;
    assert!(said.iter().all(|said| said.as_ref().err().is_none_or(|error| error.body().code != "OCC_CONFLICT")));
    assert_eq!(stage.ended(run).await["status"], "cancelled", "a no among the first counts");
}
