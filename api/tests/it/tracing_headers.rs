//! Trace context and correlation ids, in and out.

use crate::support::{client, edge, served};
use chimera_api::TraceContext;
use std::sync::Arc;

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
    let server = served(edge().with_link(Arc::new(move |_, _| Some(answer.clone())))).await;
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
