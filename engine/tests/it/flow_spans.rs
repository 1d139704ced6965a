//! Spans: the run, its steps and their calls form one tree, however often the run changed owners.

use chimera_core::access::Level;
use chimera_core::error::Code;
use chimera_core::flow::trace::{SpanId, traceparent};
use chimera_core::secret::Secret;
use chimera_core::tool::EffectKind;
use chimera_engine::flow::port::ToolError;
use chimera_engine::flow::{self, RunKey, RunTrace, StartRun};
use chimera_engine::port::{Span, SpanKind};
use chimera_testkit::flow::{EngineFixture, EngineSetup, ScriptedTool, SpanCollector, chain, id_of, stage, workflow};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use uuid::Uuid;

const SILENT: Level = Level::ExecuteSilent;
const RUN: &str = "agent_execution";

fn heard() -> (Arc<SpanCollector>, impl Fn() -> EngineSetup) {
    let listener = Arc::<SpanCollector>::default();
    let shared = Arc::clone(&listener);
    (listener, move || stage(1).spans(Arc::clone(&shared) as _))
}

fn attribute<'a>(span: &'a Span, name: &str) -> Option<&'a Value> {
    span.attributes.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
}

fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no {name} in {spans:#?}"))
}

/// CORE-129, CORE-131
#[tokio::test(start_paused = true)]
async fn a_run_is_one_tree_though_the_approval_comes_days_and_a_restart_later() {
    let (listener, setup) = heard();
    let first = setup().unkept().open().await;
    let air = workflow("w")
        .function("before", "again", json!({}))
        .node(json!({"id": "ask", "type": "hitl", "prompt": "On?", "approval": {"expires_seconds": 7 * 86_400}}))
        .function("after", "again", json!({}));
    let run = first.run(&air.edge("before", "ask").edge("ask", "after"), SILENT).await;
    first.asks(run).await;
    listener.until(run, "step before").await;
    assert_eq!(listener.tree(run), "step before\n  call again\n", "what has not ended is not told");
    first.pass(Duration::from_secs(3 * 86_400)).await;
    let second = first.restart(setup().unkept()).await;
    second.approve("user_ann", run).await;
    let spans = listener.until(run, RUN).await;
    assert_eq!(
        listener.tree(run),
        "agent_execution\n  step after\n    call again\n  step ask\n  step before\n    call again\n"
    );
    assert!(spans.iter().all(|span| span.start <= span.end));
    let ask = named(&spans, "step ask");
    assert!(ask.end.micros() - ask.start.micros() >= 3 * 86_400 * 1_000_000, "the wait for a person is part of it");
}

fn key(stage: &EngineFixture, said: &str) -> RunKey {
    RunKey::new(&Secret::new("the seal"), &stage.permit("user_ann"), said).unwrap()
}

/// CORE-127, CORE-128
#[tokio::test(start_paused = true)]
async fn the_span_of_a_run_says_whose_it_is_and_how_freely_it_acts_and_hangs_under_its_request() {
    let (listener, setup) = heard();
    let stage = setup().open().await;
    stage.apply(&chain("w", &[("a", "pure")])).await;
    let id = Uuid::parse_str("01920000-0000-7000-8000-000000000001").unwrap();
    let request = SpanId::request(id);
    let ask = || StartRun { level: SILENT, ..StartRun::of("w", json!({})) };
    let seeded = StartRun {
        trace: Some(RunTrace { run_id: id, parent_span: Some(request) }),
        idempotency_key: Some(key(&stage, "once")),
        level: Level::ExecuteNotify,
        ..ask()
    };
    assert_eq!(stage.start(seeded).await, id);
    let spans = listener.until(id, RUN).await;
    assert_eq!(listener.tree(id), "agent_execution\n  step a\n    call pure\n");
    let span = named(&spans, RUN);
    assert_eq!((span.kind, span.parent, span.id), (SpanKind::Server, Some(request), SpanId::run(id)));
    let told = ["run_id", "actor", "autonomy_level", "idempotency_key"].map(|name| attribute(span, name).cloned());
    assert_eq!(told, [json!(id), json!("user_ann"), json!("L2"), json!("once")].map(Some));
    let run = stage.start(ask()).await;
    let spans = listener.until(run, RUN).await;
    assert_eq!(attribute(named(&spans, RUN), "idempotency_key"), None);
    assert_eq!(
        (attribute(named(&spans, RUN), "autonomy_level"), named(&spans, RUN).parent),
        (Some(&json!("L3")), None)
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_comes_twice_leaves_no_span_of_a_run_that_never_was() {
    let (listener, setup) = heard();
    let stage = setup().open().await;
    stage.apply(&chain("w", &[("a", "pure")])).await;
    let id = Uuid::parse_str("01920000-0000-7000-8000-000000000002").unwrap();
    let ask = || StartRun { idempotency_key: Some(key(&stage, "k")), ..StartRun::of("w", json!({})) };
    let run = stage.start(ask()).await;
    listener.until(run, RUN).await;
    let refused = flow::start(
        &stage.flow,
        &stage.permit("user_ann"),
        StartRun { trace: Some(RunTrace { run_id: id, parent_span: None }), ..ask() },
    )
    .await;
    assert!(refused.is_err());
    assert_eq!(listener.tree(id), "");
}

#[tokio::test(start_paused = true)]
async fn every_try_has_its_span_and_hands_it_on() {
    let (listener, setup) = heard();
    let headers: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&headers);
    let flaky = ScriptedTool::new("flaky", EffectKind::Read).answers(move |ctx, _| {
        seen.lock().unwrap().push(ctx.traceparent.clone());
        if ctx.attempt < 3 { Err(ToolError::not_sent(Code::ExternalServiceError, "not yet")) } else { Ok(json!({})) }
    });
    let stage = setup().tool(flaky.build()).open().await;
    let run = stage.run(&chain("w", &[("a", "flaky")]), SILENT).await;
    let spans = listener.until(run, RUN).await;
    assert_eq!(
        listener.tree(run).lines().filter(|line| line.starts_with("    call flaky")).count(),
        3,
        "{}",
        listener.tree(run)
    );
    let calls = spans.iter().filter(|span| span.name == "call flaky");
    let told: Vec<String> = calls.clone().map(|span| traceparent(run, span.id)).collect();
    assert_eq!(told, *headers.lock().unwrap());
    let failed: Vec<bool> = calls.map(|span| span.error.is_some()).collect();
    assert_eq!(failed, [true, true, false]);
}

#[tokio::test(start_paused = true)]
async fn what_failed_was_skipped_or_stopped_is_told_with_the_rest() {
    let (listener, setup) = heard();
    let broken = ScriptedTool::new("broken", EffectKind::Write)
        .answers(|_, _| Err(ToolError::not_sent(Code::ValidationFailed, "no")));
    let stage = setup().tool(broken.build()).open().await;
    let air = chain("w", &[("bad", "broken"), ("never", "pure")])
        .node(json!({"id": "ask", "type": "hitl"}))
        .map("each", json!([1, 2]), "pure", json!({}))
        .in_parallel(2);
    let run = stage.run(&air, SILENT).await;
    let spans = listener.until(run, RUN).await;
    assert_eq!(
        listener.tree(run),
        "agent_execution, failed\n  step ask\n  step bad, failed\n    call broken, failed\n  step each\n    \
         step each\n      call pure\n    step each\n      call pure\n  step never\n"
    );
    let status = |name| attribute(named(&spans, name), "status").cloned();
    let told = ["step ask", "step bad", "step never"].map(status);
    assert_eq!(told, [json!("cancelled"), json!("failed"), json!("skipped")].map(Some));
    assert_eq!(named(&spans, RUN).error.as_deref(), Some("no"));
}

#[tokio::test(start_paused = true)]
async fn a_run_inside_another_has_its_own_trace_and_each_names_the_other() {
    let (listener, setup) = heard();
    let stage = setup().open().await;
    stage.apply(&chain("inner", &[("x", "again")])).await;
    let run = stage.run(&workflow("outer").child("part", "inner", json!({})), SILENT).await;
    let outer = listener.until(run, RUN).await;
    let step = named(&outer, "step part");
    let child = id_of(attribute(step, "child_run_id").unwrap());
    let inner = listener.until(child, RUN).await;
    assert_eq!(step.links, [(child, SpanId::run(child))]);
    assert_eq!(named(&inner, RUN).links, [(run, step.id)]);
    assert_eq!((named(&inner, RUN).parent, listener.tree(run).as_str()), (None, "agent_execution\n  step part\n"));
}

#[tokio::test(start_paused = true)]
async fn a_draft_and_a_rollback_stay_in_the_tree_of_their_run() {
    let (listener, setup) = heard();
    let keep = ScriptedTool::new("keep", EffectKind::Write).on_rollback(|_, _| Ok(json!({})));
    let stage = setup().tool(keep.build()).open().await;
    let run = stage.run(&chain("w", &[("a", "keep")]), Level::Draft).await;
    stage.approve("user_ann", run).await;
    listener.until(run, RUN).await;
    flow::rollback(&stage.flow, &stage.permit("user_ann"), run, None, None).await.unwrap();
    stage.status(run, "rolled_back").await;
    let tree = listener.tree(run);
    assert_eq!(tree.lines().filter(|line| !line.starts_with(' ')).count(), 1, "{tree}");
    assert_eq!(tree.matches(RUN).count(), 1, "{tree}");
    let undo = listener.of(run).into_iter().find(|span| attribute(span, "mode") == Some(&json!("undo"))).unwrap();
    assert_eq!(undo.parent, Some(named(&listener.of(run), "step a").id));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_a_stop_cuts_off_is_told_and_the_next_process_goes_on_in_the_same_tree() {
    let (listener, setup) = heard();
    let slow = || ScriptedTool::new("slow", EffectKind::Read).with_delay(|_| Duration::from_secs(10)).build();
    let first = setup().tool(slow()).unkept().open().await;
    let run = first.run(&chain("w", &[("a", "slow")]), SILENT).await;
    first.step(run, "a", "running").await;
    let second = first.restart(setup().tool(slow())).await;
    second.ended(run).await;
    listener.until(run, RUN).await;
    assert_eq!(listener.tree(run), "agent_execution\n  step a\n    call slow, failed\n    call slow\n");
}
