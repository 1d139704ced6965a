//! A narrowed token releases nothing that it could not request: not by reporting a call's outcome, not by a rejection,
//! not in a child run.

use chimera_core::access::{ActorEntry, Kind, Level};
use chimera_core::error::Code;
use chimera_core::flow::tables::RUNS;
use chimera_core::tool::EffectKind;
use chimera_engine::EngineError;
use chimera_engine::access::Permit;
use chimera_engine::flow::port::ToolError;
use chimera_engine::flow::{self, Decide, Decision, OutcomeReport};
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{Air, EngineFixture, ScriptedTool, TENANT, code_of, id_of, stage, workflow};
use serde_json::json;
use uuid::Uuid;

const SILENT: Level = Level::ExecuteSilent;
const FORBIDDEN: &str = "RBAC_FORBIDDEN";

/// All tools that these workflows call.
const ALL: [&str; 2] = ["desk.first", "desk.other"];

/// The person who started the runs, with a token narrowed to these scopes.
fn narrow(scopes: &[&str]) -> Permit {
    let entry =
        ActorEntry { kind: Kind::Human, scopes: vec!["*".to_owned()], ..ActorEntry::default_for("user_ann", TENANT) };
    Permit::for_entry(entry).narrowed(scopes)
}

fn tool(name: &'static str) -> ScriptedTool {
    ScriptedTool::new(name, EffectKind::Write)
        .with_declaration(move |tool| tool.metadata.capabilities = vec![name.to_owned()])
}

async fn open() -> (EngineFixture, chimera_testkit::flow::CallLog) {
    let first = tool("desk.first").answers(|_, _| Err(ToolError::maybe_sent(Code::RequestTimeout, "no answer")));
    let other = tool("desk.other");
    let asked = other.asked();
    (stage(1).tool(first.build()).tool(other.build()).open().await, asked)
}

async fn say(stage: &EngineFixture, who: &Permit, run: Uuid, decision: Decision) -> Result<(), EngineError> {
    let reason = Some("words of somebody".to_owned());
    let ask = Decide { run, decision, approval: None, step: None, digest: None, reason };
    flow::decide(&stage.flow, who, ask).await.map(drop)
}

/// A decision; `desk.other` runs whether it is approved or rejected.
fn asks(id: &str) -> Air {
    let air = workflow(id).node(json!({"id": "review", "type": "hitl"}));
    let air = air.function("yes", "desk.other", json!({})).function("no", "desk.other", json!({}));
    air.edge_if("review", "yes", "${nodes.review.outputs.success == true}").edge_if(
        "review",
        "no",
        "${nodes.review.outputs.success == false}",
    )
}

/// The child run.
async fn inside(stage: &EngineFixture, run: Uuid) -> Uuid {
    stage.until(run, |_| !children(stage, run).is_empty()).await;
    children(stage, run)[0]
}

fn children(stage: &EngineFixture, run: Uuid) -> Vec<Uuid> {
    let rows = stage.rows(&RUNS).into_iter().filter(|row| row.get("parent_run_id").as_uuid() == Some(run));
    rows.map(|row| row.uuid("id")).collect()
}

#[tokio::test(start_paused = true)]
async fn what_it_says_of_a_call_lets_nothing_go_on_that_it_could_not_ask_for() {
    let (stage, asked) = open().await;
    let air =
        workflow("w").function("a", "desk.first", json!({})).function("b", "desk.other", json!({})).edge("a", "b");
    let run = stage.run(&air, SILENT).await;
    let step = id_of(&stage.step(run, "a", "outcome_unknown").await["step_id"]);
    for (scopes, happened) in
        [(&["local.summarize"][..], true), (&["desk.first"], true), (&["desk.first"], false), (&["desk.other"], true)]
    {
        let output = happened.then(|| json!({"chosen": "by a token"}));
        let told = flow::report_outcome(
            &stage.flow,
            &narrow(scopes),
            run,
            OutcomeReport { step, attempt: None, happened, output, notes: None },
        )
        .await;
        assert_eq!(code_of(told), FORBIDDEN, "{scopes:?} {happened}");
    }
    assert_eq!(asked.count("execute"), 0);
    flow::report_outcome(&stage.flow, &narrow(&ALL), run, OutcomeReport::happened(step, Some(json!({}))))
        .await
        .unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_no_is_an_answer_too() {
    let (stage, asked) = open().await;
    for decision in [Decision::Approve, Decision::Reject, Decision::RequestChanges] {
        let run = stage.run(&asks("w"), SILENT).await;
        stage.asks(run).await;
        let none = narrow(&["local.summarize"]);
        assert_eq!(code_of(say(&stage, &none, run, decision).await), FORBIDDEN, "{decision:?}");
        say(&stage, &narrow(&["desk.other"]), run, decision).await.unwrap();
        assert_eq!(stage.ended(run).await["status"], "completed", "{decision:?}");
    }
    assert_eq!(asked.count("execute"), 3);
}

/// A rejected plan does nothing, and a cancelled run stays cancelled.
#[tokio::test(start_paused = true)]
async fn it_may_still_end_a_run() {
    let (stage, asked) = open().await;
    let none = narrow(&["local.summarize"]);
    let run = stage.run(&workflow("w").function("a", "desk.other", json!({})), Level::Draft).await;
    stage.asks(run).await;
    assert_eq!(code_of(say(&stage, &none, run, Decision::Approve).await), FORBIDDEN);
    say(&stage, &none, run, Decision::Reject).await.unwrap();
    stage.ended(run).await;
    let run = stage.run(&asks("v"), SILENT).await;
    stage.asks(run).await;
    flow::cancel(&stage.flow, &none, run, None).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "cancelled");
    assert_eq!(asked.count("execute"), 0);
}

#[tokio::test(start_paused = true)]
async fn an_answer_inside_lets_the_run_around_go_on() {
    let (stage, asked) = open().await;
    stage.apply(&workflow("kid").node(json!({"id": "review", "type": "hitl"}))).await;
    let around =
        workflow("par").child("c", "kid", json!({})).function("then", "desk.other", json!({})).edge("c", "then");
    let run = stage.run(&around, SILENT).await;
    let kid = inside(&stage, run).await;
    stage.asks(kid).await;
    let none = narrow(&["local.summarize"]);
    for decision in [Decision::Approve, Decision::Reject] {
        assert_eq!(code_of(say(&stage, &none, kid, decision).await), FORBIDDEN, "{decision:?}");
    }
    assert_eq!(code_of(flow::cancel(&stage.flow, &none, kid, None).await), FORBIDDEN);
    assert_eq!(asked.count("execute"), 0);
    say(&stage, &narrow(&["desk.other"]), kid, Decision::Approve).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_yes_to_one_call_lets_those_behind_it_go_on() {
    let asking = ScriptedTool::new("desk.asks", EffectKind::Write).with_declaration(|tool| {
        tool.metadata.capabilities = vec!["desk.asks".to_owned()];
        tool.metadata.requires_approval = true;
    });
    let other = tool("desk.other");
    let asked = other.asked();
    let stage = stage(1).tool(asking.build()).tool(other.build()).open().await;
    let air = workflow("w").function("a", "desk.asks", json!({})).function("b", "desk.other", json!({})).edge("a", "b");
    let run = stage.run(&air, Level::ExecuteNotify).await;
    stage.asks(run).await;
    let one = narrow(&["desk.asks"]);
    assert_eq!(code_of(say(&stage, &one, run, Decision::Approve).await), FORBIDDEN);
    assert_eq!(asked.count("execute"), 0);
    say(&stage, &narrow(&["desk.asks", "desk.other"]), run, Decision::Approve).await.unwrap();
    assert_eq!(stage.ended(run).await["status"], "completed");
}
