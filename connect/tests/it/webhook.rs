//! `webhook_send` and the sender below it.

use crate::server::{FixedSecrets, Reply, Server, call, call_as, ctx, gist, local};
use chimera_connect::flow::webhook::{WebhookSend, WebhookSender, sign};
use chimera_core::tool::EffectKind;
use chimera_engine::flow::port::{Sent, Tool};
use chimera_testkit::build::NOON;
use serde_json::{Value, json};
use std::time::Duration;

const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn tool() -> WebhookSend {
    let secrets = FixedSecrets::of(&[("webhook.crm", KEY), ("webhook.bad", "hunter-2-hunter")]);
    WebhookSend::new(WebhookSender::new(local(), secrets)).unwrap()
}

fn input(url: String) -> Value {
    json!({"url": url, "event_type": "run.completed", "data": {"run": 7}, "secret": "secret://webhook.crm"})
}

#[tokio::test]
async fn a_message_is_signed_over_id_time_and_body() {
    let server = Server::start(|_| Reply::status(204)).await;
    let output = call(&tool(), input(server.url("/hook"))).await.unwrap();
    let id = ctx().effect_id.to_string();
    assert_eq!(output, json!({"delivered": true, "status": 204, "webhook_id": id}));
    let seen = &server.seen()[0];
    assert_eq!(seen.line(), "POST /hook");
    assert_eq!(seen.json(), json!({"type": "run.completed", "timestamp": NOON.to_string(), "data": {"run": 7}}));
    let at = NOON.micros() / 1_000_000;
    assert_eq!((seen.header("webhook-id"), seen.header("webhook-timestamp")), (id.as_str(), at.to_string().as_str()));
    assert_eq!(seen.header("webhook-signature"), sign(KEY, &id, at, &seen.body).unwrap());
    assert_eq!(seen.header("content-type"), "application/json");
    assert_eq!(seen.header("idempotency-key"), "key-3");
}

#[tokio::test]
async fn a_lost_answer_may_be_sent_again_under_the_same_id() {
    let server = Server::start(|seen| if seen.len() == 1 { Reply::Cut } else { Reply::status(200) }).await;
    assert!(tool().spec().metadata.idempotent && tool().spec().effect == EffectKind::Write);
    let error = call(&tool(), input(server.url("/"))).await.unwrap_err();
    assert_eq!(gist(&error), ("EXTERNAL_SERVICE_ERROR", true, Sent::Maybe));
    call(&tool(), input(server.url("/"))).await.unwrap();
    assert_eq!(server.seen()[0].header("webhook-id"), server.seen()[1].header("webhook-id"));
}

#[tokio::test]
async fn refusals_redirects_and_bad_keys_are_told() {
    let server = Server::start(|seen| match seen.last().unwrap().target.as_str() {
        "/gone" => Reply::status(410),
        "/away" => Reply::to(307, "/hook"),
        "/busy" => Reply::status(503).with("retry-after", "9"),
        _ => Reply::Hang,
    })
    .await;
    let ask = async |path: &str| call(&tool(), input(server.url(path))).await.unwrap_err();
    assert_eq!(gist(&ask("/gone").await), ("EXTERNAL_SERVICE_ERROR", false, Sent::No));
    assert_eq!(gist(&ask("/away").await), ("EXTERNAL_SERVICE_ERROR", false, Sent::Maybe));
    assert_eq!(ask("/busy").await.body.retry_after_seconds, Some(9));
    let mut short = ctx();
    short.time_left = Duration::from_secs(1);
    let slow = call_as(&tool(), &short, input(server.url("/slow"))).await.unwrap_err();
    assert_eq!(gist(&slow), ("REQUEST_TIMEOUT", true, Sent::Maybe));

    let before = server.seen().len();
    let mut bad = input(server.url("/hook"));
    bad["secret"] = "secret://webhook.bad".into();
    let error = call(&tool(), bad).await.unwrap_err();
    assert_eq!(gist(&error), ("TOOL_UNAVAILABLE", false, Sent::No));
    assert!(!format!("{error:?}").contains("hunter"));
    assert_eq!(server.seen().len(), before);
}

#[tokio::test]
async fn only_keys_for_webhooks_sign_and_a_dry_run_sends_nothing() {
    let server = Server::start(|_| Reply::status(200)).await;
    let mut other = input(server.url("/"));
    other["secret"] = "secret://smtp".into();
    assert!(tool().spec().input.check(&other).is_err());
    let mut dry = input(server.url("/hook"));
    dry["dry_run"] = true.into();
    let output = call(&tool(), dry).await.unwrap();
    assert_eq!(output["would_execute"], format!("POST {} with run.completed {{\"run\":7}}", server.url("/hook")));
    assert!(server.seen().is_empty());
}
