//! A stop lets calls in flight finish, and readiness reports it.

use crate::support::{Server, Workspace, wait_until};
use serde_json::json;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// A service that answers when the test allows it.
fn service() -> (TcpListener, Workspace) {
    let service = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = service.local_addr().unwrap().to_string();
    let workflow = json!({
        "air_version": "1.0", "workflow_id": "post",
        "nodes": [{"id": "post", "type": "function", "fn": "http.request", "timeout_seconds": 60,
            "inputs": {"method": "POST", "url": format!("http://{address}/"), "json": {}}}],
        "edges": [],
    });
    let place = Workspace::new()
        .with_actors()
        .env("CHIMERA_EGRESS_ALLOW", &address)
        .file("post.json", &workflow.to_string())
        .file("chimera.toml", "[shutdown]\ngrace_seconds = 20\n");
    (service, place)
}

/// Starts a run whose call reaches the service. Returns the run and the connection of the call.
fn call(place: &Workspace, service: &TcpListener) -> (String, TcpStream) {
    place.json(&["workflow", "apply", "post.json"]);
    let started = place.json(&["act", "--workflow", "post"]);
    let (mut call, _) = service.accept().unwrap();
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n{}") {
        call.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    (started["run_id"].as_str().unwrap().to_owned(), call)
}

fn answer(mut call: TcpStream) {
    call.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
}

fn until_stopping(server: &Server) {
    wait_until("stopping", || {
        let (status, said) = server.readiness();
        let told = said["error"]["details"]["checks"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|check| check["name"] == "process" && check["reason"] == "stopping");
        (status != 503 || !told).then(|| said.to_string())
    });
}

#[test]
fn a_call_that_takes_longer_than_a_few_seconds_ends_before_the_server_does_and_is_not_in_doubt() {
    let (service, place) = service();
    let server = place.dev(&[]);
    let (run, mut call) = call(&place, &service);
    server.signal("TERM");
    until_stopping(&server);
    let refused = place.run(&["act", "--workflow", "post"]);
    assert!(refused.stderr.contains("OVERLOADED") && refused.stderr.contains("shutting down"), "{}", refused.stderr);
    // The connection stays open while the service is slow.
    call.set_read_timeout(Some(Duration::from_secs(7))).unwrap();
    let heard = call.read(&mut [0; 16]).map_err(|error| error.kind());
    assert!(matches!(heard, Err(ErrorKind::WouldBlock | ErrorKind::TimedOut)), "the call was cut: {heard:?}");
    until_stopping(&server);
    let (_, said) = server.readiness();
    let blamed = said["error"]["details"]["checks"].as_array().unwrap().iter().filter(|check| check["ok"] == false);
    let blamed: Vec<&str> = blamed.map(|check| check["name"].as_str().unwrap()).collect();
    assert_eq!(blamed, ["process"], "loops that end with the process are not reported");
    answer(call);
    let (status, log) = server.wait();
    assert_eq!(status, Some(0), "{log}");
    assert!(log.contains("stopping: waiting for calls in flight") && !log.contains("calls were aborted"), "{log}");

    let server = place.dev(&[]);
    assert_eq!(place.json(&["runs", "show", &run])["status"], "completed");
    server.stop();
}

#[test]
fn a_second_signal_does_not_wait_for_calls() {
    let (service, place) = service();
    let server = place.dev(&[]);
    let (_, call) = call(&place, &service);
    server.signal("TERM");
    until_stopping(&server);
    server.signal("TERM");
    let (status, log) = server.wait();
    assert_eq!(status, Some(130), "{log}");
    drop(call);
}

#[test]
fn calls_that_outlast_the_grace_time_are_cut_and_counted() {
    let (service, place) = service();
    let place = place.env("CHIMERA_SHUTDOWN__GRACE_SECONDS", "1");
    let server = place.dev(&[]);
    let (_, call) = call(&place, &service);
    let (status, log) = server.stop();
    assert_eq!(status, Some(0), "{log}");
    let line = log.lines().find(|line| line.contains("calls were aborted")).unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains("\"calls\":1"), "{line}");
    drop(call);
}

#[test]
fn a_server_that_is_to_stop_serves_on_for_the_time_that_a_load_balancer_needs() {
    let echo = r#"{"air_version":"1.0","workflow_id":"echo","nodes":[{"id":"e","type":"function","fn":"local.echo","inputs":{"message":"x"}}],"edges":[]}"#;
    let place = Workspace::new().with_actors().env("CHIMERA_SHUTDOWN__DELAY_SECONDS", "600").file("echo.json", echo);
    let server = place.dev(&[]);
    place.json(&["workflow", "apply", "echo.json"]);
    server.signal("TERM");
    until_stopping(&server);
    let ran = place.run(&["act", "--workflow", "echo", "--wait"]);
    assert_eq!(ran.status, 0, "{}{}", ran.stdout, ran.stderr);
    server.signal("TERM");
    assert_eq!(server.wait().0, Some(130));
}
