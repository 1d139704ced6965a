//! Log lines of a real server.

use crate::support::Workspace;
use serde_json::Value;

fn lines(log: &str) -> Vec<Value> {
    log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}"))).collect()
}

/// CONTENT-112, CONTENT-113, CONTENT-116
#[test]
fn every_line_on_stderr_is_a_json_object_with_the_four_fields() {
    let place = Workspace::new().env("CHIMERA_LOG__LEVEL", "debug");
    let server = place.dev(&[]);
    server.ask("GET /healthz HTTP/1.1");
    server.ask("GET /missing HTTP/1.1");
    let (_, log) = server.stop();
    let lines = lines(&log);
    assert!(lines.len() >= 5, "{log}");
    for line in &lines {
        let stamp = line["timestamp"].as_str().unwrap();
        assert!(stamp.len() == 24 && stamp.ends_with('Z') && stamp.as_bytes()[10] == b'T', "{stamp}");
        assert!(["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"].contains(&line["level"].as_str().unwrap()));
        assert!(line["component"].is_string() && line["message"].is_string(), "{line}");
    }
}

/// CONTENT-114
#[test]
fn the_lines_of_one_request_share_the_callers_correlation_and_trace() {
    let place = Workspace::new();
    let server = place.dev(&[]);
    server.ask("GET /missing HTTP/1.1\r\nx-correlation-id: order-17\r\ntraceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    server.ask("GET /healthz HTTP/1.1");
    let (_, log) = server.stop();
    let of_request: Vec<Value> = lines(&log).into_iter().filter(|line| line["correlation_id"] == "order-17").collect();
    assert_eq!(of_request.len(), 2, "{log}");
    for line in &of_request {
        assert_eq!(line["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(
            (line["metadata"]["method"].as_str(), line["metadata"]["route"].as_str()),
            (Some("GET"), Some("unmatched"))
        );
    }
    assert_eq!(of_request[1]["metadata"]["status"], 404);
    assert!(of_request[1]["metadata"]["duration_ms"].is_number());
}

/// CONTENT-150
#[test]
fn an_error_answer_has_its_line_at_error_with_code_and_class() {
    let place = Workspace::new();
    let server = place.dev(&[]);
    server.ask("GET /missing HTTP/1.1");
    let (_, log) = server.stop();
    let errors: Vec<Value> = lines(&log).into_iter().filter(|line| line["level"] == "ERROR").collect();
    assert_eq!(errors.len(), 1, "{log}");
    assert_eq!(errors[0]["message"], "no route matches /missing");
    assert_eq!(errors[0]["metadata"]["error_code"], "NOT_FOUND");
    assert_eq!(errors[0]["metadata"]["error_type"], "validation_error");
    assert!(errors[0]["metadata"].get("stack_trace").is_none());
}

/// CONTENT-115
#[test]
fn secrets_of_requests_and_settings_are_in_no_line() {
    let place = Workspace::new().env("CHIMERA_LOG__LEVEL", "trace").env("CHIMERA_SECRET_SMTP", "MARKED");
    let server = place.dev(&["--log-format", "human"]);
    server.ask(
        "GET /x?token=MARKED HTTP/1.1\r\nauthorization: Bearer MARKED\r\ncookie: a=MARKED\r\nx-hmac-signature: MARKED",
    );
    server.ask("GET /password=MARKED HTTP/1.1");
    server.ask("GET http://bob:MARKED@host/y HTTP/1.1");
    let token = server.ready["token"].as_str().unwrap().to_owned();
    let (_, log) = server.stop();
    assert!(log.contains("no route matches /x"), "{log}");
    assert!(!log.contains("MARKED") && !log.contains(&token), "{log}");
}

#[test]
fn the_human_form_has_no_colours_where_there_is_no_terminal() {
    let (_, log) = Workspace::new().dev(&["--log-format", "human"]).stop();
    assert!(log.contains("INFO     chimera serving address=127.0.0.1:"), "{log}");
    assert!(!log.contains('\u{1b}'));
}
