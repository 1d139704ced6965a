//! What HTTP tools write to the log of their call.

use crate::server::{FixedSecrets, Reply, Server, ctx, local, toolbox};
use chimera_connect::flow::HttpRequest;
use chimera_connect::flow::declared::tools;
use chimera_engine::flow::port::{CallContext, CallLog, CallLogSink, LogLevel, LogLine, LoggedCall, Tool};
use serde_json::json;
use std::sync::{Arc, Mutex};

const CRM: &str = include_str!("../data/crm.toml");
const PASSWORD: &str = "crm-pass-word";

/// Keeps lines as text.
#[derive(Default)]
struct Lines(Mutex<Vec<(LogLevel, String)>>);

impl CallLogSink for Lines {
    fn takes(&self, _level: LogLevel) -> bool {
        true
    }

    fn write(&self, line: &LogLine<'_>) {
        let fields: Vec<String> = line.fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let call = line.call;
        let text = format!("{} {} {} {} {}", call.tenant, call.run_id, call.tool.name, line.message, fields.join(" "));
        self.0.lock().unwrap().push((line.level, text));
    }
}

fn logged(tool: &dyn Tool, attempt: u32) -> (Arc<Lines>, CallContext) {
    let lines = Arc::new(Lines::default());
    let sink: Arc<dyn CallLogSink> = Arc::clone(&lines) as _;
    let ctx = CallContext { attempt, ..ctx() };
    let call = || LoggedCall {
        tenant: ctx.tenant.clone(),
        run_id: ctx.run_id,
        step_id: ctx.step_id,
        call_id: ctx.effect_id,
        tool: Arc::clone(tool.spec()),
        attempt,
    };
    let log = CallLog::open(&sink, call);
    (lines, CallContext { log, ..ctx })
}

fn said(lines: &Lines) -> Vec<(LogLevel, String)> {
    lines.0.lock().unwrap().clone()
}

#[tokio::test]
async fn a_declared_tool_logs_its_exchange_without_query_and_secrets() {
    let server = Server::start(|_| Reply::json(201, &json!({"data": {"id": 5, "name": PASSWORD}}))).await;
    let toolbox = toolbox(&[("crm", PASSWORD), ("crm_tag", "tag-value-1")], &["crm"], &server);
    let tool = tools(CRM, "crm.toml", &toolbox).unwrap().remove(0);
    let (lines, ctx) = logged(&tool, 2);
    // The caller may know the secret and put it into the path.
    let input = json!({"name": "Ada", "list": PASSWORD, "tags": ["in-the-query"]});
    tool.execute(&ctx, &input).await.unwrap();
    let lines = said(&lines);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].0 == LogLevel::Info && lines[0].1.contains("made again"), "{lines:?}");
    let (level, exchange) = &lines[1];
    assert_eq!(*level, LogLevel::Debug);
    for part in ["acme", "crm.leads.put", "method=\"PUT\"", "host=\"127.0.0.1\"", "status=201", "took_ms="] {
        assert!(exchange.contains(part), "{part}: {exchange}");
    }
    for secret in [PASSWORD, "tag-value-1", "in-the-query", "Basic"] {
        assert!(!exchange.contains(secret), "{secret}: {exchange}");
    }
}

#[tokio::test]
async fn a_rate_limit_is_logged_where_operators_see_it() {
    let server = Server::start(|_| Reply::json(429, &json!({})).with("retry-after", "7")).await;
    let secrets = FixedSecrets::of(&[("http.127.0.0.1", "token-of-http")]);
    let tool = HttpRequest::new(local(), secrets).unwrap();
    let (lines, ctx) = logged(&tool, 1);
    let headers = json!({"Authorization": "Bearer secret://http.127.0.0.1"});
    let input = json!({"url": server.url("/a?key=in-the-query"), "headers": headers});
    tool.execute(&ctx, &input).await.unwrap_err();
    let lines = said(&lines);
    assert_eq!(lines.iter().map(|(level, _)| *level).collect::<Vec<_>>(), [LogLevel::Debug, LogLevel::Info]);
    let text = format!("{lines:?}");
    assert!(text.contains("status=429") && text.contains("retry_after_seconds=7"), "{text}");
    assert!(!text.contains("token-of-http") && !text.contains("in-the-query"), "{text}");
}
