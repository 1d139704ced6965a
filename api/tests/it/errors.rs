//! Every way to fail ends in a problem document.

use crate::support::{client, edge, read_to_end, served};
use chimera_core::limits;
use serde_json::Value;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

/// Checks the headers of a problem answer and gives its body.
pub(crate) async fn problem(response: reqwest::Response) -> Value {
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    assert_eq!(response.headers()["cache-control"], "no-store");
    let (status, traceparent) = (response.status(), response.headers()["traceparent"].to_str().unwrap().to_owned());
    let body: Value = response.json().await.unwrap();
    assert_eq!(body["status"], status.as_u16());
    assert!(traceparent.contains(body["trace_id"].as_str().unwrap()));
    body
}

async fn post(path: &str, content_type: &str, body: &str) -> Value {
    let server = served(edge()).await;
    let request = client().post(server.url(path)).header("content-type", content_type).body(body.to_owned());
    problem(request.send().await.unwrap()).await
}

async fn get(path: &str) -> Value {
    let server = served(edge()).await;
    problem(client().get(server.url(path)).send().await.unwrap()).await
}

/// CONTENT-133
#[tokio::test]
async fn an_unknown_address_is_not_found() {
    insta::assert_json_snapshot!(get("/nothing/here?token=secret").await);
}

/// A link that somebody mistyped still lets whoever reads it decide.
#[tokio::test]
async fn an_unknown_address_does_not_say_the_token_of_a_link_again() {
    let token = "kXp7Qe2mZr9vLc4tWn8sYb3hGf6jUa1dKo5iEq0xRzA";
    for before in ["/v1/approvals/", "//approvals/", "/approvals%2F", "/Approvals/", "/approvals/x/"] {
        for after in ["/", "/more"] {
            let answer = get(&format!("{before}{token}{after}")).await;
            assert_eq!(answer["status"], 404, "{answer}");
            assert!(!answer.to_string().contains(token), "{answer}");
        }
    }
}

#[tokio::test]
async fn a_wrong_method_is_refused_with_the_allowed_ones() {
    let server = served(edge()).await;
    let response = client().delete(server.url("/orders")).send().await.unwrap();
    assert_eq!(response.headers()["allow"], "POST");
    insta::assert_json_snapshot!(problem(response).await);
}

#[tokio::test]
async fn malformed_json_is_refused_with_its_position() {
    insta::assert_json_snapshot!(post("/orders", "application/json", "{\n  \"name\": \"a\",\n}").await);
}

/// CONTENT-158, INTENT-065
#[tokio::test]
async fn json_of_another_shape_is_refused_with_a_pointer_and_a_reason() {
    insta::assert_json_snapshot!(post("/orders", "application/json", r#"{"name":"a","tags":[1,"x"]}"#).await);
    let unknown = post("/orders", "application/json", r#"{"name":"a","extra":1}"#).await;
    assert_eq!(unknown["error"]["details"]["reason"], "unknown field `extra`, expected `name` or `tags`");
    let twice = post("/any", "application/json", r#"{"a":1,"a":2}"#).await;
    assert_eq!(twice["error"]["details"]["reason"], "duplicate key `a`");
}

#[tokio::test]
async fn a_body_of_another_type_is_refused() {
    insta::assert_json_snapshot!(post("/orders", "text/plain", "{}").await);
    let form = post("/orders", "application/x-www-form-urlencoded", "name=a").await;
    assert_eq!(form["error"]["code"], "UNSUPPORTED_MEDIA_TYPE");
}

#[tokio::test]
async fn a_body_that_announces_too_many_bytes_is_refused_before_it_is_read() {
    let server = served(edge()).await;
    let head = format!(
        "POST /orders HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        limits::BODY_BYTES_MAX + 1
    );
    let answer = server.raw(head.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    let body: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    insta::assert_json_snapshot!(body);
}

#[tokio::test]
async fn a_chunked_body_without_a_length_is_refused_at_the_limit() {
    let server = served(edge()).await;
    let mut stream = server.connect().await;
    let head = "POST /orders HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let size = limits::BODY_BYTES_MAX + 1;
    stream.write_all(format!("{size:x}\r\n").as_bytes()).await.unwrap();
    stream.write_all(&vec![b' '; size]).await.unwrap();
    let answer = read_to_end(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(answer.contains("\"code\":\"PAYLOAD_TOO_LARGE\""), "{answer}");
}

#[tokio::test]
async fn a_body_of_exactly_the_limit_is_read() {
    let server = served(edge()).await;
    let text = format!("\"{}\"", "a".repeat(limits::BODY_BYTES_MAX - 2));
    let request = client().post(server.url("/any")).header("content-type", "application/json").body(text);
    assert_eq!(request.send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_body_that_breaks_off_is_refused_without_a_panic() {
    let server = served(edge()).await;
    let mut stream = server.connect().await;
    let head = "POST /orders HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{";
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let answer = read_to_end(&mut stream).await;
    assert!(answer.is_empty() || answer.contains("SCHEMA_INVALID"), "{answer}");
    assert_eq!(client().get(server.url("/healthz")).send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn an_answer_that_takes_too_long_is_given_up() {
    let server = served(edge().with_request_timeout(Duration::from_millis(20))).await;
    let response = client().get(server.url("/held")).send().await.unwrap();
    assert_eq!(response.headers()["retry-after"], "1");
    insta::assert_json_snapshot!(problem(response).await);
}

/// CONTENT-141
#[tokio::test]
async fn a_panic_tells_nothing_of_the_inside() {
    let body = get("/panic").await;
    let text = body.to_string();
    assert!(!text.contains("secret") && !text.contains("/etc") && !text.contains(".rs"), "{text}");
    insta::assert_json_snapshot!(body);
}

#[tokio::test]
async fn what_a_library_refuses_on_its_own_is_a_problem_too() {
    assert_eq!(get("/bare").await["error"]["code"], "INTERNAL");
    let plain = get("/plain").await;
    assert_eq!(plain["error"]["code"], "VALIDATION_FAILED");
    assert!(!plain.to_string().contains("library text"));
    assert_eq!(get("/number/300").await["error"]["code"], "SCHEMA_INVALID");
}

/// CONTENT-134
#[tokio::test]
async fn a_waiting_time_stands_in_the_header_and_in_the_body() {
    let server = served(edge()).await;
    let response = client().get(server.url("/teapot")).send().await.unwrap();
    assert_eq!(response.headers()["retry-after"], "7");
    let body = problem(response).await;
    assert_eq!(body["error"]["retry_after_seconds"], 7);
    assert_eq!(body["error"]["retryable"], true);
    assert!(body["error"]["details"].is_object());
}

#[tokio::test]
async fn a_request_that_is_not_http_is_refused_and_the_server_lives_on() {
    let server = served(edge()).await;
    for garbage in ["GARBAGE\r\n\r\n", "GET / HTTP/1.1\r\nbad header\r\n\r\n", "GET / HTTP/9.9\r\n\r\n"] {
        let answer = server.raw(garbage.as_bytes()).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    let mut many = String::from("GET / HTTP/1.1\r\nhost: x\r\n");
    for number in 0..200 {
        many.push_str(&format!("h{number}: v\r\n"));
    }
    let answer = server.raw(format!("{many}\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    assert_eq!(client().get(server.url("/healthz")).send().await.unwrap().status(), 200);
}
