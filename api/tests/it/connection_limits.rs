//! One address can't use up the connections of all others.

use crate::support::{TestServer, connect_from, edge, limits, read_to_end, serve_with_limits};
use chimera_api::ServerLimits;
use serde_json::Value;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

const ONE: &str = "127.0.0.1";
const OTHER: &str = "127.0.0.2";
const HEALTH: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";

/// The response to `/healthz` for a client at an address.
async fn health(server: &TestServer, from: &str) -> String {
    let mut stream = connect_from(from, server.address).await;
    stream.write_all(HEALTH).await.unwrap();
    read_to_end(&mut stream).await
}

async fn hold(server: &TestServer, from: &str, count: usize) -> Vec<TcpStream> {
    let mut held = Vec::new();
    for _ in 0..count {
        held.push(connect_from(from, server.address).await);
    }
    held
}

#[tokio::test]
async fn an_address_with_too_many_connections_is_refused_and_others_are_served() {
    let server = serve_with_limits(edge(), ServerLimits { connections_per_address_max: 2, ..limits() }).await;
    let held = hold(&server, ONE, 2).await;
    // Connections are accepted in order.
    let answer = health(&server, ONE).await;
    let (head, body) = answer.split_once("\r\n\r\n").expect("a connection beyond the limit is answered");
    assert!(head.starts_with("HTTP/1.1 429 ") && head.contains("\r\nretry-after: 1\r\n"), "{head}");
    assert!(head.contains("\r\ncontent-type: application/problem+json\r\n"), "{head}");
    let problem: Value = serde_json::from_str(body).unwrap();
    assert_eq!((&problem["error"]["code"], &problem["status"]), (&"RATE_LIMITED".into(), &429.into()), "{problem}");
    assert_eq!(problem["error"]["details"]["connections_per_address_max"], 2);
    assert!(health(&server, OTHER).await.starts_with("HTTP/1.1 200 "), "another address is served");
    drop(held);
    while !health(&server, ONE).await.starts_with("HTTP/1.1 200 ") {}
}

#[tokio::test]
async fn one_address_can_not_hold_every_connection() {
    let limits = ServerLimits { connections_max: 3, connections_per_address_max: 100, ..limits() };
    let server = serve_with_limits(edge(), limits).await;
    let _held = hold(&server, ONE, 2).await;
    for _ in 0..5 {
        assert!(health(&server, ONE).await.starts_with("HTTP/1.1 429 "));
    }
    assert!(health(&server, OTHER).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_proxy_may_have_any_number_of_connections() {
    let proxies = Arc::new([format!("{ONE}/32").parse().unwrap()]);
    let server = serve_with_limits(edge(), ServerLimits { connections_per_address_max: 1, proxies, ..limits() }).await;
    let _held = hold(&server, ONE, 10).await;
    assert!(health(&server, ONE).await.starts_with("HTTP/1.1 200 "));
    let _held = hold(&server, OTHER, 1).await;
    assert!(health(&server, OTHER).await.starts_with("HTTP/1.1 429 "));
}
