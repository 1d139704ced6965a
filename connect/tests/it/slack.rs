//! `slack_post`.

use crate::server::{FixedSecrets, Reply, Server, call, client, gist, local};
use chimera_connect::flow::slack::SlackPost;
use chimera_connect::http::Client;
use chimera_engine::flow::port::{Sent, Tool};
use serde_json::{Value, json};

fn tool(client: Client, server: &Server) -> SlackPost {
    let hook = server.url("/services/T0/B0/hook-secret-path");
    let secrets = FixedSecrets::of(&[
        ("slack.incidents", &hook),
        ("slack.bot", r#"{"token": "xoxb-1-secret", "channel": "C024"}"#),
        ("slack.odd", "not an address"),
    ]);
    SlackPost::new(client, secrets, server.url("/api/").parse().unwrap()).unwrap()
}

/// The inputs are those of the intent document's patch example.
fn input(alias: &str) -> Value {
    json!({"channel_alias": alias, "text": "Upload FAILED 7f"})
}

#[tokio::test]
async fn an_alias_leads_to_its_webhook() {
    let server = Server::start(|_| Reply::Answer(200, Vec::new(), b"ok".to_vec())).await;
    let output = call(&tool(local(), &server), input("incidents")).await.unwrap();
    assert_eq!(output, json!({"ok": true, "channel_alias": "incidents"}));
    let seen = &server.seen()[0];
    assert_eq!(seen.line(), "POST /services/T0/B0/hook-secret-path");
    assert_eq!(seen.json(), json!({"text": "Upload FAILED 7f"}));
    assert_eq!(seen.header("content-type"), "application/json; charset=utf-8");
}

#[tokio::test]
async fn an_alias_leads_to_a_bot() {
    let server = Server::with_answer(200, json!({"ok": true, "channel": "C024", "ts": "1503435956.000247"})).await;
    let output = call(&tool(local(), &server), input("bot")).await.unwrap();
    assert_eq!(output["ts"], "1503435956.000247");
    let seen = &server.seen()[0];
    assert_eq!(seen.line(), "POST /api/chat.postMessage");
    assert_eq!(seen.header("authorization"), "Bearer xoxb-1-secret");
    assert_eq!(seen.json(), json!({"channel": "C024", "text": "Upload FAILED 7f"}));
}

#[tokio::test]
async fn what_slack_refuses_is_told_as_what_it_is() {
    for (word, code, retryable, sent) in [
        ("channel_not_found", "EXTERNAL_SERVICE_ERROR", false, Sent::No),
        ("ratelimited", "RATE_LIMITED", true, Sent::No),
        ("fatal_error", "EXTERNAL_SERVICE_ERROR", true, Sent::Maybe),
    ] {
        let server = Server::with_answer(200, json!({"ok": false, "error": word})).await;
        let error = call(&tool(local(), &server), input("bot")).await.unwrap_err();
        assert_eq!(gist(&error), (code, retryable, sent), "{word}");
    }
    let busy = Server::start(|_| Reply::status(429).with("retry-after", "30")).await;
    let error = call(&tool(local(), &busy), input("incidents")).await.unwrap_err();
    assert_eq!((gist(&error), error.body.retry_after_seconds), (("RATE_LIMITED", true, Sent::No), Some(30)));
}

#[tokio::test]
async fn neither_address_nor_token_shows_in_an_error() {
    let echo = Server::start(|seen| {
        let last = seen.last().unwrap();
        Reply::json(400, &json!([last.target, last.header("authorization")]))
    })
    .await;
    let cut = Server::start(|_| Reply::Cut).await;
    for (server, alias) in [(&echo, "incidents"), (&echo, "bot"), (&cut, "incidents"), (&cut, "bot"), (&cut, "odd")] {
        let error = call(&tool(local(), server), input(alias)).await.unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(
            !shown.contains("xoxb-1") && !shown.contains("hook-secret") && !shown.contains("not an address"),
            "{shown}"
        );
        assert!(!shown.contains(&server.url("")), "{shown}");
    }
    let refused = call(&tool(client(&[]), &cut), input("incidents")).await.unwrap_err();
    assert_eq!(gist(&refused), ("POLICY_DENIED", false, Sent::No));
    assert!(!format!("{refused:?}").contains("127.0.0.1"));
}

#[tokio::test]
async fn a_dry_run_posts_nothing() {
    let server = Server::start(|_| Reply::status(200)).await;
    let tool = tool(local(), &server);
    let output = call(&tool, json!({"channel_alias": "incidents", "text": "x", "dry_run": true})).await.unwrap();
    assert_eq!(output["would_execute"], "POST to the Slack channel incidents with \"x\"");
    assert!(tool.spec().input.check(&json!({"channel_alias": "../x", "text": "x"})).is_err());
    assert!(server.seen().is_empty());
}
