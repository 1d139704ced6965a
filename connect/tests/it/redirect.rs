//! Redirects: every target is checked again, and headers for one origin never reach another.

use crate::server::{FixedSecrets, Reply, Server, call, client, gist, local};
use chimera_connect::flow::HttpRequest;
use chimera_connect::http::Client;
use chimera_engine::flow::port::Sent;
use serde_json::{Value, json};

fn tool(client: Client) -> HttpRequest {
    HttpRequest::new(client, FixedSecrets::of(&[("http.127.0.0.1", "hunter-2-hunter")])).unwrap()
}

fn post(url: String) -> Value {
    json!({"method": "POST", "url": url, "json": {"n": 1}, "headers": {
        "Authorization": "Bearer secret://http.127.0.0.1", "Cookie": "s=1", "Accept": "text/html", "X-Own": "mine"}})
}

#[tokio::test]
async fn the_method_changes_only_where_the_status_says_so() {
    for (status, method, body) in
        [(301, "GET", 0), (302, "GET", 0), (303, "GET", 0), (307, "POST", 7), (308, "POST", 7)]
    {
        let server =
            Server::start(move |seen| if seen.len() == 1 { Reply::to(status, "/there") } else { Reply::status(200) })
                .await;
        call(&tool(local()), post(server.url("/here"))).await.unwrap();
        let seen = &server.seen()[1];
        assert_eq!((seen.line(), seen.body.len()), (format!("{method} /there"), body), "{status}");
        let key = if method == "POST" { "key-3" } else { "" };
        assert_eq!((seen.header("idempotency-key"), seen.header("authorization")), (key, "Bearer hunter-2-hunter"));
    }
    let server =
        Server::start(|seen| if seen.len() == 1 { Reply::to(302, "/there") } else { Reply::status(200) }).await;
    call(&tool(local()), json!({"method": "PUT", "url": server.url("/"), "text": "x"})).await.unwrap();
    assert_eq!(server.lines(), ["PUT /", "PUT /there"]);
}

#[tokio::test]
async fn another_origin_gets_neither_credentials_nor_key() {
    let other = Server::with_answer(200, json!({})).await;
    let target = other.url("/landing");
    let first = Server::start(move |_| Reply::to(307, target.clone())).await;
    call(&tool(local()), post(first.url("/"))).await.unwrap();
    let seen = &other.seen()[0];
    assert_eq!(seen.line(), "POST /landing");
    for name in ["authorization", "cookie", "idempotency-key", "x-own", "traceparent"] {
        assert_eq!(seen.header(name), "", "{name}");
    }
    assert_eq!((seen.header("accept"), seen.json()), ("text/html", json!({"n": 1})));
}

#[tokio::test]
async fn a_redirect_to_a_private_address_is_refused() {
    let inside = Server::with_answer(200, json!({})).await;
    for (target, status, sent) in [
        (inside.url("/"), 307, Sent::No),
        (format!("http://localhost:{}/", inside.address.port()), 308, Sent::No),
        ("http://169.254.169.254/".into(), 302, Sent::Maybe),
        ("http://[::ffff:7f00:1]/".into(), 303, Sent::Maybe),
        ("file:///etc/passwd".into(), 307, Sent::No),
    ] {
        let first = Server::start(move |_| Reply::to(status, target.clone())).await;
        let rules = format!("127.0.0.1:{}", first.address.port());
        let error = call(&tool(client(&["*", &rules])), post(first.url("/"))).await.unwrap_err();
        assert_eq!(gist(&error), ("POLICY_DENIED", false, sent));
    }
    assert!(inside.seen().is_empty());
}

#[tokio::test]
async fn redirects_come_to_an_end() {
    let server = Server::start(|seen| Reply::to(307, format!("/{}", seen.len()))).await;
    let error = call(&tool(local()), post(server.url("/"))).await.unwrap_err();
    assert_eq!(gist(&error), ("EXTERNAL_SERVICE_ERROR", false, Sent::No));
    assert_eq!(server.seen().len(), 6);
    let mut input = post(server.url("/"));
    input["follow_redirects"] = false.into();
    let output = call(&tool(local()), input).await.unwrap();
    assert_eq!((output["status"].as_u64(), output["headers"]["location"].as_str()), (Some(307), Some("/7")));
}

/// A server that answers 303 has done its work: a later failure does not undo it.
#[tokio::test]
async fn a_failure_behind_see_other_is_not_unsent() {
    let server = Server::start(|seen| if seen.len() == 1 { Reply::to(303, "/made") } else { Reply::status(404) }).await;
    let error = call(&tool(local()), post(server.url("/"))).await.unwrap_err();
    assert_eq!(gist(&error), ("EXTERNAL_SERVICE_ERROR", false, Sent::Maybe));
    assert_eq!(server.lines(), ["POST /", "GET /made"]);
}
