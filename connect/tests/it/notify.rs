//! Telling how a run ended, by signed webhook and by mail.

use crate::server::{Known, Reply, Server, gist, local};
use chimera_connect::flow::notify::Channels;
use chimera_connect::flow::webhook::{Key, WebhookSender, own_key, sign};
use chimera_connect::flow::{MailSettings, MailTls, mail_tool};
use chimera_core::access::SecretName;
use chimera_engine::port::{Message, Notifier, Sent};
use chimera_testkit::build::NOON;
use chimera_testkit::seeded::FakeClock;
use chimera_testkit::smtp::PrivateSmtp;
use serde_json::json;
use std::sync::Arc;
use uuid::Uuid;

const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn channels(smtp: Option<&PrivateSmtp>) -> Channels {
    let secrets = Known::of(&[("webhook.runs", KEY)]);
    let settings = |smtp: &PrivateSmtp| MailSettings {
        server: "localhost".into(),
        port: smtp.port(),
        tls: MailTls::None,
        user: None,
        password: None,
        from: "Chimera <chimera@acme.example>".into(),
        roots_pem: None,
    };
    Channels {
        webhook: Some((
            WebhookSender::new(local(), secrets.clone()),
            Key::Named(SecretName::new("webhook.runs").unwrap()),
        )),
        mail: smtp.map(|smtp| mail_tool(settings(smtp), secrets).unwrap()),
        clock: Arc::new(FakeClock::at(NOON)),
    }
}

fn message(channel: &str, target: String) -> Message {
    let data = json!({
        "run_id": Uuid::from_u128(9), "status": "failed", "workflow_id": "w", "actor": "user_ann",
        "result": null, "error": {"message": "the printer\r\nBcc: x@y.example is on fire"},
    });
    let payload = json!({"type": "run.failed", "timestamp": NOON.to_string(), "data": data});
    Message { id: Uuid::from_u128(7), tenant: "acme".into(), channel: channel.into(), target, payload }
}

#[tokio::test]
async fn a_webhook_is_told_under_the_messages_own_id_every_time() {
    let server = Server::start(|seen| if seen.len() == 1 { Reply::status(503) } else { Reply::status(204) }).await;
    let (channels, message) = (channels(None), message("webhook", server.url("/hook")));
    let error = channels.send(&message).await.unwrap_err();
    assert!(error.body.retryable, "{error:?}");
    channels.send(&message).await.unwrap();
    let seen = server.seen();
    let id = message.id.to_string();
    assert_eq!([seen[0].header("webhook-id"), seen[1].header("webhook-id")], [id.as_str(); 2]);
    let at = seen[1].header("webhook-timestamp").parse().unwrap();
    assert_eq!(seen[1].header("webhook-signature"), sign(KEY, &id, at, &seen[1].body).unwrap());
    assert_eq!((&seen[1].json()["type"], &seen[1].json()["data"]), (&json!("run.failed"), &message.payload["data"]));
    assert!(seen[1].header("traceparent").starts_with(&format!("00-{}-", Uuid::from_u128(9).simple())));
}

#[tokio::test]
async fn a_mail_says_which_run_ended_how_and_why() {
    let smtp = PrivateSmtp::start();
    let (channels, message) = (channels(Some(&smtp)), message("email", "ann@acme.example".into()));
    channels.send(&message).await.unwrap();
    let mails = smtp.accepted();
    let content = mails[0]["content"].as_str().unwrap();
    assert!(content.contains("Subject: w is failed") && content.contains(&Uuid::from_u128(9).to_string()), "{content}");
    assert!(content.contains("the printer"), "{content}");
    assert_eq!(mails[0]["to"], json!(["ann@acme.example"]), "{}", mails[0]);
}

#[tokio::test]
async fn a_channel_that_is_not_set_up_is_not_tried_again() {
    let channels = Channels { webhook: None, ..channels(None) };
    for channel in ["webhook", "email", "pigeon"] {
        let error = channels.send(&message(channel, "https://x.example/".into())).await.unwrap_err();
        assert_eq!(gist(&error), ("TOOL_UNAVAILABLE", false, Sent::No), "{channel}");
    }
}
