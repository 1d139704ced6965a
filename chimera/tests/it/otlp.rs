//! Span export to a collector.

use crate::support::Workspace;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, sync_channel};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// A collector that accepts every request: (request line, body).
pub(crate) fn collector() -> (String, Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (send, receive) = sync_channel(64);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut seen = Vec::new();
            let mut chunk = [0; 4096];
            let (head, length) = loop {
                let read = stream.read(&mut chunk).unwrap();
                seen.extend_from_slice(&chunk[..read]);
                let Some(end) = seen.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
                let head = String::from_utf8(seen[..end].to_vec()).unwrap();
                let length = head.lines().find_map(|line| {
                    line.to_lowercase().strip_prefix("content-length: ").map(|n| n.parse::<usize>().unwrap())
                });
                seen.drain(..end + 4);
                break (head, length.unwrap());
            };
            while seen.len() < length {
                let read = stream.read(&mut chunk).unwrap();
                seen.extend_from_slice(&chunk[..read]);
            }
            // Recorded before the answer, so a test sees every acknowledged request.
            if send.send((head.lines().next().unwrap().to_owned(), seen)).is_err() {
                return;
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
        }
    });
    (address, receive)
}

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// SWARM-120
#[test]
fn a_collector_receives_the_request_span_in_the_callers_trace_and_no_secret() {
    let (address, received) = collector();
    let place = Workspace::new().env("CHIMERA_OTLP__ENDPOINT", &address);
    let server = place.dev(&[]);
    let head = format!("GET /token=MARKED HTTP/1.1\r\ntraceparent: 00-{TRACE}-00f067aa0ba902b7-01");
    let answer = server.ask(&head);
    assert!(answer.contains(&format!("traceparent: 00-{TRACE}-")), "{answer}");
    let request_id = answer.lines().find_map(|line| line.strip_prefix("x-request-id: ")).unwrap().to_owned();
    let (status, log) = server.stop();
    assert_eq!(status, Some(0));
    let (line, body) = received.recv().unwrap();
    assert_eq!(line, "POST /v1/traces HTTP/1.1");
    assert!(holds(&body, b"service.name") && holds(&body, b"chimera"));
    assert!(holds(&body, b"http_request") && holds(&body, b"unmatched"));
    let trace: Vec<u8> = (0..16).map(|at| u8::from_str_radix(&TRACE[2 * at..2 * at + 2], 16).unwrap()).collect();
    assert!(holds(&body, &trace), "the span is not in the caller's trace");
    assert!(!holds(&body, b"MARKED"));
    assert!(holds(&body, request_id.as_bytes()) && log.contains(&request_id), "the request's id is not in both");
}

#[test]
fn a_collector_that_is_away_neither_hurts_nor_floods_the_log() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let place = Workspace::new().env("CHIMERA_OTLP__ENDPOINT", &address);
    let server = place.dev(&[]);
    for _ in 0..20 {
        assert!(server.ask("GET /healthz HTTP/1.1").starts_with("HTTP/1.1 200"));
    }
    let (status, log) = server.stop();
    assert_eq!(status, Some(0));
    let complaints = log.lines().filter(|line| line.contains("can't be sent to the collector")).count();
    assert_eq!(complaints, 1, "{log}");
    assert!(log.lines().all(|line| !line.contains("\"component\":\"opentelemetry")), "{log}");
}
