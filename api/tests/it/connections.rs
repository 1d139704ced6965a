//! Slow, idle and excess connections, and graceful shutdown.

use crate::support::{client, edge, limits, read_to_end, serve_with_limits, served};
use chimera_api::ServerLimits;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn with_header_timeout(milliseconds: u64) -> ServerLimits {
    ServerLimits { header_timeout: Duration::from_millis(milliseconds), ..limits() }
}

async fn is_closed(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.is_ok() && !String::from_utf8_lossy(&rest).contains(" 200 ")
}

#[tokio::test]
async fn a_client_that_dawdles_with_its_request_head_is_cut_off() {
    let server = serve_with_limits(edge(), with_header_timeout(30)).await;
    let mut silent = server.connect().await;
    let mut slow = server.connect().await;
    slow.write_all(b"GET /healthz HTTP/1.1\r\nhost:").await.unwrap();
    assert!(is_closed(&mut silent).await);
    assert!(is_closed(&mut slow).await);
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_its_answer() {
    let server = serve_with_limits(edge(), with_header_timeout(500)).await;
    let mut stream = server.connect().await;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    assert!(read_to_end(&mut stream).await.starts_with("HTTP/1.1 200 OK"));
}

#[tokio::test]
async fn a_connection_beyond_the_limit_waits_for_a_free_place() {
    let server = serve_with_limits(edge(), ServerLimits { connections_max: 1, ..limits() }).await;
    let mut first = server.connect().await;
    first.write_all(b"GET /held HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    server.gate.entered.notified().await;
    let mut second = server.connect().await;
    second.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut byte = [0];
    let early = tokio::time::timeout(Duration::from_millis(50), second.read(&mut byte)).await;
    assert!(early.is_err(), "the second connection was served beside the first");
    server.gate.open.notify_one();
    assert!(read_to_end(&mut first).await.ends_with("finished"));
    assert!(read_to_end(&mut second).await.contains("alive"));
}

#[tokio::test]
async fn on_stop_a_running_request_finishes_and_nobody_new_gets_in() {
    let mut server = served(edge()).await;
    let mut idle = server.connect().await;
    let mut running = server.connect().await;
    running.write_all(b"GET /held HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    server.gate.entered.notified().await;
    server.begin_stop();
    assert!(is_closed(&mut idle).await, "an idle connection stayed open");
    assert!(TcpStream::connect(server.address).await.is_err(), "a new connection was accepted");
    server.gate.open.notify_one();
    let answer = read_to_end(&mut running).await;
    assert!(answer.ends_with("finished"), "{answer}");
    assert_eq!(server.ended().await.cut, 0);
}

#[tokio::test]
async fn what_runs_past_the_grace_time_is_cut_and_counted() {
    let short = ServerLimits { shutdown_grace: Duration::from_millis(20), ..limits() };
    let mut server = serve_with_limits(edge(), short).await;
    let mut running = server.connect().await;
    running.write_all(b"GET /held HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    server.gate.entered.notified().await;
    server.begin_stop();
    assert_eq!(server.ended().await.cut, 1);
}

#[tokio::test]
async fn a_head_request_has_the_headers_and_no_body() {
    let server = served(edge()).await;
    let response = client().head(server.url("/healthz")).send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(response.text().await.unwrap().is_empty());
}
