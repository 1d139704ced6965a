//! Trace context and correlation ids, in and out.

use crate::flow::{FlowServer, furnished, house, setup, signed};
use crate::support::{client, edge, served};
use chimera_api::{Origin, TraceContext};
use chimera_core::flow::trace::SpanId;
use chimera_core::id;
use chimera_testkit::flow::{SpanCollector, chain, id_of};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use uuid::Uuid;

const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[tokio::test]
async fn the_callers_trace_is_continued_with_a_span_of_our_own() {
    let server = served(edge()).await;
    let response = client().get(server.url("/healthz")).header("traceparent", CALLER).send().await.unwrap();
    let context = TraceContext::parse(response.headers()["traceparent"].to_str().unwrap()).unwrap();
    assert_eq!(context.trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_ne!(context.span_id, "00f067aa0ba902b7");
    assert!(context.sampled);
}

#[tokio::test]
async fn an_invalid_trace_header_is_ignored() {
    let server = served(edge()).await;
    let response = client().get(server.url("/healthz")).header("traceparent", "00-zz-1-01").send().await.unwrap();
    let context = TraceContext::parse(response.headers()["traceparent"].to_str().unwrap()).unwrap();
    assert_eq!(context.trace_id.len(), 32);
}

#[tokio::test]
async fn the_exporters_ids_win_over_our_own() {
    let exported = TraceContext { trace_id: "a".repeat(32), span_id: "b".repeat(16), sampled: true };
    let answer = exported.clone();
    let server = served(edge().with_trace_link(Arc::new(move |_, _| Some(answer.clone())))).await;
    let response = client().get(server.url("/missing")).send().await.unwrap();
    assert_eq!(response.headers()["traceparent"], exported.to_string());
    let body: serde_json::Value = response.json().await.unwrap();
    assert_eq!(body["trace_id"], exported.trace_id);
}

#[tokio::test]
async fn a_correlation_id_is_echoed_and_a_dangerous_one_is_replaced() {
    let server = served(edge()).await;
    let send =
        async |name: &str, value: &str| client().get(server.url("/healthz")).header(name, value).send().await.unwrap();
    let given = send("x-correlation-id", "order-17").await;
    assert_eq!(given.headers()["x-correlation-id"], "order-17");
    assert_eq!(given.headers()["x-request-id"], "order-17");
    assert_eq!(send("x-request-id", "abc").await.headers()["x-request-id"], "abc");
    for bad in ["a b", "{\"x\":1}", &"a".repeat(129)] {
        let replaced = send("x-request-id", bad).await;
        assert_eq!(replaced.headers()["x-request-id"].len(), 32, "{bad}");
    }
}

/// Asks for a run within the caller's trace: the trace of the answer, and its body.
async fn ask_for_a_run(house: &FlowServer, path: &str) -> (TraceContext, Value) {
    let request = house.client.post(house.server.url(path)).bearer_auth(house.token("admin"));
    let body = if path == "/act" { json!({"workflow_id": "w"}) } else { json!({}) };
    let answer = signed(request.header("traceparent", CALLER), house.stage.world.clock.now(), "admin", &body)
        .send()
        .await
        .unwrap();
    let context = TraceContext::parse(answer.headers()["traceparent"].to_str().unwrap()).unwrap();
    (context, answer.json().await.unwrap())
}

/// CORE-126
#[tokio::test]
async fn a_request_for_a_run_begins_the_trace_of_the_run_and_every_answer_names_it() {
    let house = house().await;
    house.apply(&chain("w", &[("a", "think")])).await;
    let (context, started) = ask_for_a_run(&house, "/act").await;
    assert_eq!(context.trace_id, id::trace_id(id_of(&started["run_id"])));
    assert_eq!(started["trace_id"], context.trace_id);
    let (_, shown) = house.get(&format!("/runs/{}", started["run_id"].as_str().unwrap())).await;
    assert_eq!(shown["trace_id"], context.trace_id);
    let (_, again) = ask_for_a_run(&house, "/act").await;
    assert_ne!(again["trace_id"], started["trace_id"], "two runs of one caller's trace");
    let (context, refused) = ask_for_a_run(&house, "/workflows/nothing/call").await;
    assert_eq!(refused["trace_id"], context.trace_id);
}

#[tokio::test]
async fn a_run_hangs_under_the_exported_span_of_its_request_which_is_told_of_the_callers() {
    let (listener, told) = (Arc::<SpanCollector>::default(), Arc::<Mutex<Vec<(Uuid, String)>>>::default());
    let (spans, seen) = (Arc::clone(&listener), Arc::clone(&told));
    let link = move |_: &tracing::Span, origin: &Origin<'_>| {
        let (run, caller) = (origin.run?, origin.caller?.to_string());
        seen.lock().unwrap().push((run, caller));
        Some(TraceContext { trace_id: id::trace_id(run), span_id: "b".repeat(16), sampled: true })
    };
    let house = furnished(setup().spans(spans), |edge| edge.with_trace_link(Arc::new(link))).await;
    house.apply(&chain("w", &[("a", "think")])).await;
    ask_for_a_run(&house, "/workflows/w/call").await;
    let (run, caller) = told.lock().unwrap()[0].clone();
    assert_eq!(caller, CALLER);
    let spans = listener.until(run, "agent_execution").await;
    let root = spans.iter().find(|span| span.name == "agent_execution").unwrap();
    assert_eq!(root.parent, SpanId::parse(&"b".repeat(16)));
}
