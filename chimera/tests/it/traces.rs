//! The trace of a run as a collector sees it: one tree from the request to the last call.

use crate::flow::one_request;
use crate::otlp::collector;
use crate::support::{Server, Workspace, wait_until};
use chimera_core::time::Timestamp;
use chimera_testkit::access::{signed_with, unix_seconds};
use chimera_testkit::redis::PrivateRedis;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Plain;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::Receiver;

const CALLER: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// The spans that a collector has received so far.
struct CollectedSpans {
    address: String,
    received: Receiver<(String, Vec<u8>)>,
    spans: Vec<Span>,
}

impl CollectedSpans {
    fn begin() -> Self {
        let (address, received) = collector();
        Self { address, received, spans: Vec::new() }
    }

    fn take(&mut self) {
        for (_, body) in self.received.try_iter() {
            let request = ExportTraceServiceRequest::decode(&body[..]).unwrap();
            let scopes = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
            self.spans.extend(scopes.flat_map(|scope| scope.spans));
        }
    }

    /// The spans of a trace, by their ids.
    fn trace(&self, id: &str) -> BTreeMap<String, &Span> {
        let ours = self.spans.iter().filter(|span| hex(&span.trace_id) == id);
        let spans: BTreeMap<String, &Span> = ours.clone().map(|span| (hex(&span.span_id), span)).collect();
        assert_eq!(spans.len(), ours.count(), "a span was exported twice");
        spans
    }

    fn until(&mut self, trace: &str, name: &str) {
        wait_until(name, || {
            self.take();
            let found = self.trace(trace).values().any(|span| span.name == name);
            (!found).then(|| format!("{} spans", self.spans.len()))
        });
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn attribute(span: &Span, name: &str) -> Option<Value> {
    let found = span.attributes.iter().find(|attribute| attribute.key == name)?;
    Some(match found.value.clone()?.value? {
        Plain::StringValue(text) => text.into(),
        Plain::IntValue(number) => number.into(),
        Plain::BoolValue(yes) => yes.into(),
        other => panic!("{other:?}"),
    })
}

/// The one span with this name.
fn only<'a>(trace: &BTreeMap<String, &'a Span>, name: &str) -> &'a Span {
    let found: Vec<&&Span> = trace.values().filter(|span| span.name == name).collect();
    assert_eq!(found.len(), 1, "{name} in {:?}", trace.values().map(|span| &span.name).collect::<Vec<_>>());
    found[0]
}

/// Sends an authenticated request. Returns the `traceparent` and the body of the answer.
fn ask(server: &Server, method: &str, path: &str, body: &Value) -> (String, Value) {
    let (token, body) = (server.ready["token"].as_str().unwrap(), body.to_string());
    let now = Timestamp::from_micros(i64::try_from(unix_seconds()).unwrap() * 1_000_000);
    let signed = signed_with(&server.key("admin"), "admin", now, (method, path), body.as_bytes());
    let signed: String = signed.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\
         traceparent: 00-{CALLER}-00f067aa0ba902b7-01\r\n{signed}content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = server.connect();
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 2"), "{answer}");
    let trace = head.lines().find_map(|line| line.strip_prefix("traceparent: ")).unwrap().to_owned();
    (trace, serde_json::from_str(body).unwrap())
}

/// A workflow with an approval, an HTTP call, and a child run.
fn outer(url: &str) -> Value {
    json!({
        "air_version": "1.0", "workflow_id": "outer",
        "nodes": [
            {"id": "review", "type": "hitl", "prompt": "Call them?"},
            {"id": "fetch", "type": "function", "fn": "http.request", "inputs": {"url": url}},
            {"id": "part", "type": "workflow", "workflow_id": "inner", "inputs": {}}
        ],
        "edges": [{"from": "review", "to": "fetch"}, {"from": "fetch", "to": "part"}]
    })
}

fn inner() -> Value {
    let echo = json!({"id": "say", "type": "function", "fn": "local.echo", "inputs": {"message": "x"}});
    json!({"air_version": "1.0", "workflow_id": "inner", "nodes": [echo], "edges": []})
}

/// Every span but one has a parent in the same trace.
fn check_tree(trace: &BTreeMap<String, &Span>) {
    let is_root = |span: &&&Span| !trace.contains_key(&hex(&span.parent_span_id));
    let roots: Vec<&str> = trace.values().filter(is_root).map(|span| span.name.as_str()).collect();
    assert_eq!(roots, ["http_request"]);
}

/// CORE-126, CORE-127, CORE-128, CORE-129, CORE-130, CORE-131
#[test]
fn one_trace_leads_from_the_request_over_a_killed_server_and_an_approval_to_the_last_call() {
    let (mut collected, redis) = (CollectedSpans::begin(), PrivateRedis::start());
    let outside = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = outside.local_addr().unwrap().to_string();
    let called = one_request(outside);
    let place = Workspace::new()
        .env("CHIMERA_OTLP__ENDPOINT", &collected.address)
        .env("CHIMERA_EGRESS_ALLOW", &address)
        .env("CHIMERA_REDIS_URL", &redis.url())
        .env("OTEL_BSP_SCHEDULE_DELAY", "20");
    let server = place.dev(&[]);
    ask(&server, "PUT", "/workflows/inner", &inner());
    ask(&server, "PUT", "/workflows/outer", &outer(&format!("http://{address}/look?secret=MARKED")));
    let (answered, started) = ask(
        &server,
        "POST",
        "/act",
        &json!({"workflow_id": "outer", "wait": 10, "idempotency_key": "order-7", "autonomy_level": "L2_ExecuteNotify"}),
    );
    assert_eq!(started["status"], "awaiting_approval", "{started}");
    let (run, trace) = (started["run_id"].as_str().unwrap(), started["trace_id"].as_str().unwrap());
    assert_eq!((run.replace('-', ""), &answered[3..35]), (trace.to_owned(), trace));
    collected.until(trace, "http_request");
    server.signal("KILL");
    server.wait();

    let server = place.dev(&[]);
    ask(&server, "POST", &format!("/runs/{run}/approve"), &json!({"decision": "approve"}));
    collected.until(trace, "agent_execution");
    assert_eq!(server.stop().0, Some(0));
    collected.take();
    let spans = collected.trace(trace);
    check_tree(&spans);

    let (request, root) = (only(&spans, "http_request"), only(&spans, "agent_execution"));
    assert_eq!(hex(&request.span_id), &answered[36..52]);
    assert_eq!(request.links.iter().map(|link| hex(&link.trace_id)).collect::<Vec<_>>(), [CALLER]);
    assert_eq!((root.kind, &root.parent_span_id), (SpanKind::Server as i32, &request.span_id));
    let told = ["run_id", "actor", "autonomy_level", "idempotency_key"].map(|name| attribute(root, name));
    assert_eq!(told, [json!(run), started["actor"].clone(), json!("L2"), json!("order-7")].map(Some));
    for step in ["step review", "step fetch", "step part"] {
        assert_eq!(only(&spans, step).parent_span_id, root.span_id, "{step}");
    }
    let (call, sent) = (only(&spans, "call http.request"), only(&spans, "http_call"));
    assert_eq!(call.parent_span_id, only(&spans, "step fetch").span_id);
    assert_eq!((&sent.parent_span_id, sent.kind), (&call.span_id, SpanKind::Client as i32));
    let header = format!("traceparent: 00-{trace}-{}-01\r\n", hex(&call.span_id));
    let seen = called.join().unwrap();
    assert!(seen.contains(&header), "{header} {seen}");
    for (name, system, under) in
        [("db.commit", "sqlite", root), ("db.read", "sqlite", root), ("redis.claim", "redis", request)]
    {
        let span = spans.values().find(|span| span.name == name && span.parent_span_id == under.span_id);
        assert_eq!(attribute(span.unwrap(), "db.system.name"), Some(json!(system)), "{name}");
    }
    assert!(!format!("{:?}", collected.spans).contains("MARKED"), "a query string was exported with the spans");
    let part = only(&spans, "step part");
    let child = collected.trace(&hex(&part.links[0].trace_id));
    assert_eq!(only(&child, "agent_execution").links[0].span_id, part.span_id);
    assert_eq!(only(&child, "call local.echo").parent_span_id, only(&child, "step say").span_id);
}
