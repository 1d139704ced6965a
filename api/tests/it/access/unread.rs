//! No byte of a body is read before the request head passes, and the bytes of refused requests are limited.
//!
//! Every request here announces more than it sends, so a server that waits for the rest never responds.

use super::access_server::{by, harmless, porch};
use crate::flow::{FlowServer, furnished, house, setup};
use crate::support::{TestServer, connect_from, read_to_end};
use chimera_api::{Route, Signed, route_table};
use chimera_core::limits::{BODY_BYTES_MAX, UNAUTHENTICATED_BODY_BYTES_MAX};
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const CHUNKED: &str = "transfer-encoding: chunked\r\n";

fn announced(bytes: usize) -> String {
    format!("content-length: {bytes}\r\n")
}

fn head(method: &Method, path: &str, headers: &str) -> String {
    let path = path.replace(['{', '}'], "x");
    format!("{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{headers}\r\n")
}

/// Status and code of the answer to a head and the beginning of a body; the connection must end.
async fn begun(server: &TestServer, from: &str, head: &str, body: &str) -> (u16, String) {
    let mut stream = connect_from(from, server.address).await;
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    told(&mut stream).await
}

async fn told(stream: &mut TcpStream) -> (u16, String) {
    let text = read_to_end(stream).await;
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text}"));
    let code = serde_json::from_str::<Value>(body).map(|body| body["error"]["code"].clone()).unwrap_or_default();
    (head["HTTP/1.1 ".len()..][..3].parse().unwrap(), code.as_str().unwrap_or_default().to_owned())
}

fn refused(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

fn bearer(house: &FlowServer) -> String {
    format!("authorization: Bearer {}\r\n", house.token("admin"))
}

#[tokio::test]
async fn a_strangers_body_is_read_nowhere() {
    let house = house().await;
    let part = "x".repeat(1_000);
    for Route { method, path, rules, .. } in route_table() {
        for (length, body) in
            [(announced(BODY_BYTES_MAX), part.clone()), (CHUNKED.to_owned(), format!("3e8\r\n{part}"))]
        {
            let answer = begun(&house.server, "127.0.0.1", &head(method, path, &length), &body).await;
            let what = format!("{method} {path}, {}", length.trim());
            match (rules.token, rules.body_bytes_max) {
                (true, _) => assert_eq!(answer, refused(401, "UNAUTHENTICATED"), "{what}"),
                // Nothing is asked of whoever reads, and nothing is read of them.
                (false, 0) => assert!(method == Method::GET && answer.0 < 500 && answer.0 != 408, "{what}: {answer:?}"),
                (false, bytes_max) => {
                    assert_eq!(bytes_max, UNAUTHENTICATED_BODY_BYTES_MAX, "{what}");
                    let expected = match (length == CHUNKED, rules.link) {
                        (false, false) => refused(413, "PAYLOAD_TOO_LARGE"),
                        (true, false) => refused(401, "SIGNATURE_INVALID"),
                        // A page, which says its code in words.
                        (false, true) => refused(413, ""),
                        (true, true) => refused(404, ""),
                    };
                    assert_eq!(answer, expected, "{what}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_token_that_does_not_count_is_refused_before_the_body_too() {
    let house = house().await;
    let spoiled = format!("authorization: Bearer {}x\r\n{}", house.token("admin"), announced(BODY_BYTES_MAX));
    for Route { method, path, .. } in route_table().iter().filter(|route| route.rules.token) {
        let answer = begun(&house.server, "127.0.0.1", &head(method, path, &spoiled), "{").await;
        assert_eq!(answer, refused(401, "UNAUTHENTICATED"), "{method} {path}");
    }
}

#[tokio::test]
async fn what_is_not_signed_in_its_head_is_refused_before_the_body() {
    let house = house().await;
    let signed = route_table().iter().filter(|route| route.rules.signed != Signed::No);
    for Route { method, path, rules, .. } in signed {
        let token = if rules.token { bearer(&house) } else { String::new() };
        let headers: &[&str] = match rules.signed {
            Signed::Message => &["", "signature: a=:AA==:\r\n", "signature-input: ((\r\nsignature: a=:AA==:\r\n"],
            _ => &["", "x-hmac-signature: 00\r\n", "x-hmac-signature: sha256=00\r\n"],
        };
        for signature in headers {
            let head = head(method, path, &format!("{token}{signature}{}", announced(1_000)));
            let answer = begun(&house.server, "127.0.0.1", &head, "{").await;
            assert_eq!(answer, refused(401, "SIGNATURE_INVALID"), "{method} {path}, {signature:?}");
        }
        let head = head(method, path, &format!("{token}{}", announced(rules.body_bytes_max + 1)));
        let answer = begun(&house.server, "127.0.0.1", &head, "{").await;
        assert_eq!(answer, refused(413, "PAYLOAD_TOO_LARGE"), "{method} {path}");
    }
}

#[tokio::test]
async fn who_waits_to_be_told_to_go_on_is_told_only_with_a_credential_that_counts() {
    let house = house().await;
    let expects = format!("expect: 100-continue\r\n{}", announced(10));
    let check = |token: &str| head(&Method::POST, "/workflows/a/check", &format!("{token}{expects}"));
    assert_eq!(begun(&house.server, "127.0.0.1", &check(""), "").await, refused(401, "UNAUTHENTICATED"));
    let mut stream = house.server.connect().await;
    stream.write_all(check(&bearer(&house)).as_bytes()).await.unwrap();
    assert_eq!(gone_on(&mut stream).await, "HTTP/1.1 100 Continue\r\n\r\n");
}

/// The interim answer, which comes when the server begins to read a body.
async fn gone_on(stream: &mut TcpStream) -> String {
    let mut interim = [0; "HTTP/1.1 100 Continue\r\n\r\n".len()];
    stream.read_exact(&mut interim).await.unwrap();
    String::from_utf8(interim.to_vec()).unwrap()
}

#[tokio::test]
async fn a_token_that_is_revoked_while_a_body_is_on_its_way_counts_no_more() {
    for seconds in [0, 2] {
        revoked_beside_a_body(seconds).await;
    }
}

async fn revoked_beside_a_body(seconds: i64) {
    let porch = porch().await;
    let body = json!({"steps": harmless()}).to_string();
    let token = porch.token_with("user_ann", |claims| claims.jti = Some("soon revoked".to_owned()));
    let signature = by("user_ann", &body);
    let headers = format!(
        "authorization: Bearer {token}\r\nx-hmac-signature: {signature}\r\nexpect: 100-continue\r\nconnection: close\r\n{}",
        announced(body.len())
    );
    let mut stream = porch.house.server.connect().await;
    stream.write_all(head(&Method::POST, "/act", &headers).as_bytes()).await.unwrap();
    gone_on(&mut stream).await;
    let revoked = porch.ask("admin", Method::POST, "/auth/revoke", json!({"token": token})).await;
    assert_eq!(revoked.status, 200, "{revoked:?}");
    porch.clock.wait(seconds);
    stream.write_all(body.as_bytes()).await.unwrap();
    assert_eq!(told(&mut stream).await, refused(401, "UNAUTHENTICATED"));
    assert_eq!(porch.traces(), (0, 0, 0));
}

#[tokio::test]
async fn a_body_that_arrives_too_slowly_is_given_up() {
    let house = furnished(setup(), |edge| edge.with_body_timeout(Duration::from_millis(30))).await;
    let (token, signature) = (bearer(&house), format!("x-hmac-signature: {}\r\n", "0".repeat(64)));
    for (path, headers) in
        [("/workflows/a/check", &token), ("/act", &format!("{token}{signature}")), ("/auth/token", &signature)]
    {
        for length in [announced(1_000), CHUNKED.to_owned()] {
            let head = head(&Method::POST, path, &format!("{headers}{length}"));
            assert_eq!(begun(&house.server, "127.0.0.1", &head, "").await, refused(408, "BODY_TIMEOUT"), "{path}");
        }
    }
}

/// What is refused after it was read counts against whoever sent it; then nothing more is read of them for a while.
#[tokio::test]
async fn an_address_that_sends_too_much_that_is_refused_is_refused_unread() {
    let house = furnished(setup(), |edge| edge.with_refused_bytes_max(100_000)).await;
    let nobody = format!("x-hmac-signature: {}\r\n", "0".repeat(64));
    let of = |actor: &str| format!("authorization: Bearer {}\r\n{nobody}", house.token(actor));
    let whole = async |from: &str, path: &str, headers: &str| {
        let head = head(&Method::POST, path, &format!("connection: close\r\n{headers}{}", announced(60_000)));
        begun(&house.server, from, &head, &" ".repeat(60_000)).await
    };
    let unread = async |from: &str, path: &str, headers: &str| {
        let head = head(&Method::POST, path, &format!("{headers}{}", announced(60_000)));
        begun(&house.server, from, &head, "").await
    };
    for _ in 0..2 {
        assert_eq!(whole("127.0.0.2", "/auth/token", &nobody).await, refused(400, "SCHEMA_INVALID"));
    }
    assert_eq!(unread("127.0.0.2", "/auth/token", &nobody).await, refused(429, "RATE_LIMITED"));
    assert_eq!(whole("127.0.0.3", "/auth/token", &nobody).await.0, 400, "another address has its own account");
    // Whoever has a token that counts is not the neighbour of strangers, nor of others.
    for _ in 0..2 {
        assert_eq!(whole("127.0.0.2", "/act", &of("user_ann")).await, refused(401, "SIGNATURE_INVALID"));
    }
    assert_eq!(unread("127.0.0.2", "/act", &of("user_ann")).await, refused(429, "RATE_LIMITED"));
    assert_eq!(whole("127.0.0.2", "/act", &of("admin")).await, refused(401, "SIGNATURE_INVALID"));
    // What is somebody's own counts for nothing, however much it is.
    let body = " ".repeat(60_000);
    let own = format!("authorization: Bearer {}\r\nx-hmac-signature: {}\r\n", house.token("admin"), by("admin", &body));
    for _ in 0..3 {
        assert_eq!(whole("127.0.0.3", "/act", &own).await, refused(400, "SCHEMA_INVALID"));
    }
}

#[tokio::test]
async fn who_is_refused_unread_learns_when_to_come_again() {
    let house = furnished(setup(), |edge| edge.with_refused_bytes_max(1)).await;
    let request = || {
        let request = house.client.post(house.server.url("/auth/token")).header("x-hmac-signature", "0".repeat(64));
        request.header("content-type", "application/json").body("{}")
    };
    assert_eq!(request().send().await.unwrap().status(), 400);
    let answer = request().send().await.unwrap();
    let wait: u64 = answer.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    let problem = crate::errors::problem(answer).await;
    assert_eq!(problem["error"]["code"], "RATE_LIMITED");
    assert_eq!(problem["error"]["details"]["refused_bytes_per_minute_max"], 1);
}
