//! Log lines as they are written.

use super::*;
use chimera_core::time::Timestamp;
use serde_json::{Value, json};
use std::sync::Mutex;
use tracing_subscriber::layer::SubscriberExt;

struct Noon;

impl Clock for Noon {
    fn now(&self) -> Timestamp {
        "2026-02-06T15:30:00.123987Z".parse().unwrap()
    }

    fn steady(&self) -> Timestamp {
        self.now()
    }
}

fn written(form: LineFormat, act: impl FnOnce()) -> String {
    let lines = Arc::new(Mutex::new(String::new()));
    let sink = lines.clone();
    let layer = LogLayer::new(form, Mask::default(), Arc::new(Noon), move |line| sink.lock().unwrap().push_str(line));
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), act);
    Arc::into_inner(lines).map_or_else(String::new, |lines| lines.into_inner().unwrap())
}

fn parsed(act: impl FnOnce()) -> Vec<Value> {
    written(LineFormat::Json, act).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// CONTENT-117, CONTENT-112
#[test]
fn the_example_of_the_log_format_can_be_written_exactly() {
    let lines = parsed(|| {
        tracing::info!(
            component = "planner_agent",
            agent_id = "dd0e8400-e29b-41d4-a716-446655440005",
            task_id = "aa0e8400-e29b-41d4-a716-446655440002",
            correlation_id = "ee0e8400-e29b-41d4-a716-446655440006",
            tasks_created = 5,
            execution_time_ms = 250,
            "Task decomposition completed"
        );
    });
    assert_eq!(
        lines,
        [json!({
            "timestamp": "2026-02-06T15:30:00.123Z",
            "level": "INFO",
            "component": "planner_agent",
            "message": "Task decomposition completed",
            "agent_id": "dd0e8400-e29b-41d4-a716-446655440005",
            "task_id": "aa0e8400-e29b-41d4-a716-446655440002",
            "correlation_id": "ee0e8400-e29b-41d4-a716-446655440006",
            "metadata": {"tasks_created": 5, "execution_time_ms": 250}
        })]
    );
}

/// CONTENT-113
#[test]
fn every_line_has_the_four_fields_and_one_of_the_five_levels() {
    let lines = parsed(|| {
        tracing::trace!("a");
        tracing::debug!("b");
        tracing::info!("c");
        tracing::warn!("d");
        tracing::error!("e");
        tracing::error!(critical = true, "f");
        tracing::error!(critical = false, "g");
        tracing::info!(fields_only = 1);
    });
    let levels: Vec<&str> = lines.iter().map(|line| line["level"].as_str().unwrap()).collect();
    assert_eq!(levels, ["DEBUG", "DEBUG", "INFO", "WARNING", "ERROR", "ERROR", "CRITICAL", "ERROR", "INFO"]);
    for line in &lines {
        line["timestamp"].as_str().unwrap().parse::<Timestamp>().unwrap();
        assert_eq!((line["component"].as_str(), line["message"].is_string()), (Some("chimera"), true), "{line}");
        assert!(line.pointer("/metadata/critical").is_none());
    }
}

/// CONTENT-114
#[test]
fn ids_of_the_spans_around_an_event_are_lifted_to_the_top() {
    let lines = parsed(|| {
        let outer =
            tracing::info_span!("request", correlation_id = "c1", trace_id = tracing::field::Empty, route = "/act");
        outer.record("trace_id", "t1");
        let _outer = outer.enter();
        let inner = tracing::info_span!("invoke", invocation_id = "i1", agent_id = "a1", otel.kind = "server");
        let _inner = inner.enter();
        tracing::info!(task_id = "k1", route = "/other", "done");
        tracing::info!("again");
    });
    assert_eq!(
        lines[0],
        json!({
            "timestamp": "2026-02-06T15:30:00.123Z", "level": "INFO", "component": "chimera", "message": "done",
            "agent_id": "a1", "task_id": "k1", "invocation_id": "i1", "correlation_id": "c1", "trace_id": "t1",
            "metadata": {"route": "/other", "span": "invoke"}
        })
    );
    assert_eq!((&lines[1]["correlation_id"], &lines[1]["task_id"]), (&json!("c1"), &Value::Null));
}

#[derive(Debug, thiserror::Error)]
#[error("can't log in")]
struct Outer(#[source] Inner);

#[derive(Debug, thiserror::Error)]
#[error("password=MARKED refused")]
struct Inner;

/// CONTENT-115
#[test]
fn a_secret_is_in_no_line_whatever_way_it_came() {
    let act = || {
        let span = tracing::info_span!("call", api_key = "MARKED", url = "https://bob:MARKED@host/x", session_id = 7);
        span.record("api_key", "MARKED");
        let _entered = span.enter();
        let header = "Bearer MARKED";
        let error = Outer(Inner);
        tracing::info!("message with token=MARKED and {header}");
        tracing::info!(authorization = header, hmac_key = ?Some("MARKED"), cookie = %"MARKED", note = "secret: 'MARKED'");
        crate::telemetry::panic::report("panicked with api-key: MARKED", "src/x.rs:1:1", "trace secret=MARKED");
        tracing::warn!(error = &error as &dyn std::error::Error, debugged = ?json!({"password": "MARKED"}));
        tracing::error!(critical = true, form = "a=1&access_token=MARKED&b=2", "redis://:MARKED@cache:6379 is down");
    };
    let (json, human) = (written(LineFormat::Json, act), written(LineFormat::Human { color: true }, act));
    assert!(!json.contains("MARKED"), "{json}");
    assert!(!human.contains("MARKED"), "{human}");
    assert_eq!(json.lines().count(), 7);
    assert!(json.contains("can't log in: password=[redacted] refused"));
}

#[test]
fn the_human_form_is_one_plain_line_that_nobody_can_forge() {
    let act = || tracing::warn!(count = 2, name = "a\u{1b}[31m", "first\nsecond");
    insta::assert_snapshot!(written(LineFormat::Human { color: false }, act));
    assert!(written(LineFormat::Human { color: true }, act).contains("\u{1b}[33mWARNING \u{1b}[0m"));
}
