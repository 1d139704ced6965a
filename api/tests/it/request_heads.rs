//! Malformed and unusual request heads.
//!
//! hyper refuses what can't be parsed as a request, with a bare status, and closes the connection;
//! everything that can be parsed gets a problem document.

use crate::support::{TestServer, client, edge, served};
use chimera_api::route_table;
use chimera_core::limits;
use serde_json::Value;

const ORDER: &str = r#"{"name":"a"}"#;

/// The status of a raw request's answer and, if it has a body, the code in it.
async fn answer(server: &TestServer, request: &str) -> (u16, String) {
    let text = server.raw(request.as_bytes()).await;
    let (head, body) = text.split_once("\r\n\r\n").expect(&text);
    let status = head["HTTP/1.1 ".len()..][..3].parse().unwrap();
    if body.is_empty() {
        return (status, String::new());
    }
    let body: Value = serde_json::from_str(body).expect(&text);
    if status >= 400 {
        assert!(head.contains("\r\ncontent-type: application/problem+json\r\n"), "{head}");
    }
    (status, body["error"]["code"].as_str().unwrap_or_default().to_owned())
}

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
}

fn order(headers: &str, body: &str) -> String {
    format!(
        "POST /orders HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n{headers}\r\n\r\n{body}"
    )
}

#[tokio::test]
async fn a_head_that_http_forbids_is_refused_with_a_problem() {
    let server = served(edge()).await;
    let gzip = order("transfer-encoding: gzip, chunked", &format!("c\r\n{ORDER}\r\n0\r\n\r\n"));
    for request in [
        "GET /healthz HTTP/1.1\r\nconnection: close\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nhost: a\r\nhost: b\r\nconnection: close\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nhost: a\r\nhost: a\r\nconnection: close\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nhost: a b/\r\nconnection: close\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nhost: user@a\r\nconnection: close\r\n\r\n",
        &gzip,
        &get(&format!("/{}", "a".repeat(limits::TARGET_BYTES_MAX))),
    ] {
        assert_eq!(answer(&server, request).await, (400, "SCHEMA_INVALID".to_owned()), "{request}");
    }
}

#[tokio::test]
async fn odd_but_lawful_requests_are_served() {
    let server = served(edge()).await;
    let order_of = |headers: &str| order(headers, ORDER);
    let chunked = format!("c\r\n{ORDER}\r\n0\r\nx-trailer: 1\r\n\r\n");
    for request in [
        "GET /healthz HTTP/1.0\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nhost:\r\nconnection: close\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nhost: [::1]:80\r\nconnection: close\r\n\r\n",
        "\r\nGET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        &get("http://other.example/healthz"),
        &get("/healthz#part"),
        &get(&format!("/healthz?{}", "a".repeat(limits::TARGET_BYTES_MAX - 9))),
        &order_of("content-length: 12"),
        &order_of("content-length: 12\r\ncontent-length: 12"),
        &order("transfer-encoding: chunked", &chunked),
    ] {
        assert_eq!(answer(&server, request).await, (200, String::new()), "{request}");
    }
}

#[tokio::test]
async fn an_address_that_leads_nowhere_is_a_problem_in_every_form() {
    let server = served(edge()).await;
    for (request, status, code) in [
        (get("*"), 404, "NOT_FOUND"),
        (get("other.example:80"), 404, "NOT_FOUND"),
        (get("http://other.example"), 404, "NOT_FOUND"),
        (get("/n\u{f6}thing"), 404, "NOT_FOUND"),
        (get("/docs/errors/%ff"), 400, "SCHEMA_INVALID"),
        (get("/docs/errors/%zz"), 404, "NOT_FOUND"),
        (get("/").replace("GET / ", "OPTIONS * "), 404, "NOT_FOUND"),
        (get("/").replace("GET / ", "CONNECT x:443 "), 404, "NOT_FOUND"),
        (get("/healthz").replace("GET", "OPTIONS"), 405, "METHOD_NOT_ALLOWED"),
        (get("/healthz").replace("GET", "TRACE"), 405, "METHOD_NOT_ALLOWED"),
        (get("/healthz").replace("GET", "get"), 405, "METHOD_NOT_ALLOWED"),
        (order("transfer-encoding: chunked", "zz\r\n"), 400, "SCHEMA_INVALID"),
    ] {
        assert_eq!(answer(&server, &request).await, (status, code.to_owned()), "{request}");
    }
}

#[tokio::test]
async fn what_can_not_be_read_as_a_request_is_refused_by_status_alone() {
    let server = served(edge()).await;
    let long = "a".repeat(limits::HEAD_BYTES_MAX * 4);
    for (request, status) in [
        ("\u{16}\u{3}\u{1}\r\n\r\n".to_owned(), 400),
        ("GET /healthz\r\n\r\n".to_owned(), 400),
        (get("/a b"), 400),
        (get("/healthz").replace("host: x", "host : x"), 400),
        (get("/healthz").replace("host: x", "host: x\r\n folded"), 400),
        (order("content-length: 1x", ORDER), 400),
        (order("content-length: -1", ORDER), 400),
        (order("content-length: 12, 12", ORDER), 400),
        (order("content-length: 12\r\ncontent-length: 11", ORDER), 400),
        (order("transfer-encoding: identity", ORDER), 400),
        (order("transfer-encoding: chunked", "").replace("HTTP/1.1", "HTTP/1.0"), 400),
        (get(&format!("/{long}")), 431),
        (get("/healthz").replace("host: x", &format!("host: x\r\nlong: {long}")), 431),
    ] {
        assert_eq!(answer(&server, &request).await, (status, String::new()), "{request:.200}");
    }
}

#[tokio::test]
async fn a_length_beside_chunks_counts_for_nothing_and_ends_the_connection() {
    let server = served(edge()).await;
    let hidden = format!("c\r\n{ORDER}\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nhost: x\r\n\r\n");
    let request =
        order("content-length: 4\r\ntransfer-encoding: chunked", &hidden).replace("connection: close\r\n", "");
    let text = server.raw(request.as_bytes()).await;
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with(r#"{"name":"a","tags":[]}"#), "{text}");
}

#[tokio::test]
async fn who_expects_to_be_told_to_go_on_is_told_only_if_the_body_is_wanted() {
    let server = served(edge()).await;
    let wanted = server.raw(order("expect: 100-continue\r\ncontent-length: 12", ORDER).as_bytes()).await;
    assert!(wanted.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"), "{wanted}");
    let unwanted = order("expect: 100-continue\r\ncontent-length: 12", "").replace("application/json", "text/plain");
    assert_eq!(answer(&server, &unwanted).await, (415, "UNSUPPORTED_MEDIA_TYPE".to_owned()));
}

#[tokio::test]
async fn every_address_answers_head_as_it_answers_get_but_without_a_body() {
    let server = served(edge()).await;
    for path in route_table().iter().map(|route| route.path).chain(["/nothing/here"]) {
        let got = client().get(server.url(path)).send().await.unwrap();
        let request = get(&path.replace(['{', '}'], "x")).replace("GET", "HEAD");
        let text = server.raw(request.as_bytes()).await;
        assert!(text.starts_with(&format!("HTTP/1.1 {} ", got.status().as_u16())), "{text}");
        let kind = format!("content-type: {}\r\n", got.headers()["content-type"].to_str().unwrap());
        assert!(text.contains(&kind) && text.ends_with("\r\n\r\n"), "{text}");
    }
}

#[tokio::test]
async fn an_error_repeats_little_of_what_was_sent_and_nothing_that_steers_a_terminal() {
    let server = served(edge()).await;
    let key = "k".repeat(100_000);
    for (path, body) in [
        ("/any", format!(r#"{{"{key}":1,"{key}":2}}"#)),
        ("/orders", format!(r#"{{"{key}":1}}"#)),
        ("/any", r#"{"\u001b[31mred":1,"\u001b[31mred":2}"#.to_owned()),
    ] {
        let request = client().post(server.url(path)).header("content-type", "application/json").body(body);
        let answer = crate::errors::problem(request.send().await.unwrap()).await;
        assert_eq!(answer["error"]["code"], "SCHEMA_INVALID");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(!message.contains(char::is_control), "{message}");
        assert!(answer.to_string().len() < 5_000, "{} bytes", answer.to_string().len());
    }
}
