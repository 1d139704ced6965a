//! Starting, stopping, and the lock on the data folder.

use crate::support::{Server, Workspace, mode};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

#[test]
fn dev_creates_its_private_folder_says_where_it_is_and_stops_on_request() {
    let place = Workspace::new();
    let server = place.dev(&[]);
    assert_eq!(server.ready["token"].as_str().unwrap().split('.').count(), 3);
    let names: Vec<_> = server.ready["actors"].as_array().unwrap().iter().map(|it| it["actor"].clone()).collect();
    assert_eq!(names, ["admin", "user_ada", "n8n_workflow_demo", "service_chatbot"]);
    assert!(names.iter().all(|name| server.key(name.as_str().unwrap()).len() == 64));
    assert!(server.ask("GET /healthz HTTP/1.1").starts_with("HTTP/1.1 200 OK"));
    assert_eq!(mode(&place.path(".chimera")), 0o700);
    assert_eq!(mode(&place.path(".chimera/keys/ledger.key")), 0o600);
    assert_eq!(mode(&place.path(".chimera/keys/actors/admin.key")), 0o600);
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn keys_stay_the_same_over_restarts_even_after_a_kill() {
    let place = Workspace::new();
    let key = || std::fs::read(place.path(".chimera/keys/ledger.key")).unwrap();
    let first = place.dev(&[]);
    let (actors, seed) = (first.ready["actors"].clone(), key());
    first.signal("KILL");
    assert_eq!(first.wait().0, None);
    let second = place.dev(&[]);
    assert_eq!((&second.ready["actors"], key()), (&actors, seed));
}

#[test]
fn a_second_server_and_a_writing_command_beside_a_live_server_are_refused() {
    let place = Workspace::new();
    let server = place.dev(&["--data", "d"]);
    for args in [
        &["dev", "--data", "d", "--listen", "127.0.0.1:0"][..],
        &["migrate", "--data", "d"],
        &["bench", "store", "--data", "d"],
    ] {
        let said = place.run(args);
        assert_eq!(said.status, 5, "{args:?}: {}", said.stderr);
        assert!(
            said.stderr.contains("error[DATA_DIR_LOCKED]: another chimera process is using the data folder d"),
            "{}",
            said.stderr
        );
    }
    assert_eq!(place.run(&["config", "print", "--data", "d"]).status, 0);
    server.wait_until_ready();
}

/// A Redis that accepts connections and never answers makes the readiness check wait for its timeout.
fn with_a_silent_redis() -> (Workspace, TcpListener) {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/", silent.local_addr().unwrap());
    (Workspace::new().env("CHIMERA_REDIS_URL", &url), silent)
}

/// Sends a request that hangs, and waits until the server has started it.
fn hanging_request(server: &Server) -> TcpStream {
    let mut stream = server.connect();
    stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    while !server.ask("GET /metrics HTTP/1.1").contains("\nchimera_http_requests_running 2\n") {}
    stream
}

fn wait_until_nobody_gets_in(server: &Server) {
    while TcpStream::connect(&server.address).is_ok() {}
}

#[test]
fn a_request_in_flight_is_answered_after_sigterm() {
    let (place, _silent) = with_a_silent_redis();
    let server = place.dev(&[]);
    let mut running = hanging_request(&server);
    server.signal("TERM");
    wait_until_nobody_gets_in(&server);
    let mut answer = String::new();
    running.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("not ready: redis"), "{answer}");
    let (status, log) = server.wait();
    assert_eq!(status, Some(0), "{log}");
    assert!(log.contains("\"stopping: running requests may finish\"") && log.contains("\"stopped\""), "{log}");
}

#[test]
fn a_second_signal_ends_at_once() {
    let (place, _silent) = with_a_silent_redis();
    let server = place.dev(&[]);
    let _running = hanging_request(&server);
    server.signal("INT");
    wait_until_nobody_gets_in(&server);
    server.signal("INT");
    let (status, log) = server.wait();
    assert_eq!(status, Some(130), "{log}");
    assert!(!log.contains("\"stopped\""), "{log}");
}

#[test]
fn a_port_that_is_taken_is_a_clear_error() {
    let place = Workspace::new();
    let server = place.dev(&[]);
    let said = place.run(&["dev", "--data", "other", "--listen", &server.address]);
    assert_eq!(said.status, 4);
    assert!(said.stderr.contains("can't listen at"), "{}", said.stderr);
    assert!(said.stderr.contains("hint: choose another address with --listen"), "{}", said.stderr);
}

#[test]
fn metrics_count_requests_by_route_and_never_by_address() {
    let place = Workspace::new();
    let server = place.dev(&[]);
    server.ask("GET /healthz HTTP/1.1");
    server.ask("GET /nothing/here HTTP/1.1");
    server.ask("BREW /healthz HTTP/1.1");
    let text = server.ask("GET /metrics HTTP/1.1");
    for line in [
        r#"chimera_http_requests_total{method="GET",route="/healthz",status="200"} 1"#,
        r#"chimera_http_requests_total{method="GET",route="unmatched",status="404"} 1"#,
        r#"chimera_http_requests_total{method="OTHER",route="/healthz",status="405"} 1"#,
        r#"chimera_http_request_duration_seconds_count{method="GET",route="/healthz"} 1"#,
        r#"chimera_http_request_duration_seconds_bucket{method="GET",route="/healthz",le="+Inf"} 1"#,
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}
