//! Notifications that a run ended or waits, by signed webhook and by mail.

use crate::server::{FixedSecrets, ReceivedRequest, Reply, Server, gist, local};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chimera_connect::flow::notify::NotificationChannels;
use chimera_connect::flow::webhook::{SigningKeySource, WebhookSender, own_key, sign};
use chimera_connect::flow::{MailSettings, MailTls, mail_tool};
use chimera_connect::http::{Client, ClientSettings, Egress};
use chimera_core::flow::review::{ApprovalRecord, Review};
use chimera_core::secret::SecretName;
use chimera_engine::flow::port::{Message, Notifier, Sent};
use chimera_engine::flow::{self, StartRun};
use chimera_testkit::build::NOON;
use chimera_testkit::flow::{EngineSetup, World, chain, stage};
use chimera_testkit::seeded::FakeClock;
use chimera_testkit::smtp::PrivateSmtp;
use ed25519_dalek::{Signature, Verifier, VerifyingKey};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn channels(smtp: Option<&PrivateSmtp>) -> NotificationChannels {
    let secrets = FixedSecrets::of(&[("webhook.runs", KEY)]);
    let settings = |smtp: &PrivateSmtp| MailSettings {
        server: "localhost".into(),
        port: smtp.port(),
        tls: MailTls::None,
        user: None,
        password: None,
        from: "Chimera <chimera@acme.example>".into(),
        roots_pem: None,
    };
    NotificationChannels {
        webhook: Some((
            WebhookSender::new(local(), secrets.clone()),
            SigningKeySource::Secret(SecretName::new("webhook.runs").unwrap()),
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

/// Engines whose webhooks are signed with their own key, and their shared clock.
fn own_voice(clock: &Arc<FakeClock>) -> (EngineSetup, Arc<NotificationChannels>) {
    let egress = Egress::new(["127.0.0.1"]).unwrap();
    let settings = ClientSettings { egress, clock: clock.clone(), names: BTreeMap::new() };
    let sender = WebhookSender::new(Client::new(settings).unwrap(), FixedSecrets::of(&[]));
    let webhook = Some((sender, SigningKeySource::Own(own_key(&[9; 32]))));
    let channels = Arc::new(NotificationChannels { webhook, mail: None, clock: clock.clone() });
    let world = World { clock: clock.clone(), ..World::new(1) };
    (stage(1).world(world).notifier(channels.clone()), channels)
}

/// Verifies a delivery with only the public key, as a receiver does.
fn verify(seen: &ReceivedRequest, public: &str) {
    let key = STANDARD.decode(public.strip_prefix("whpk_").unwrap()).unwrap();
    let key = VerifyingKey::from_bytes(&key.try_into().unwrap()).unwrap();
    let signature = STANDARD.decode(seen.header("webhook-signature").strip_prefix("v1a,").unwrap()).unwrap();
    let signed = format!("{}.{}.", seen.header("webhook-id"), seen.header("webhook-timestamp"));
    let signed = [signed.as_bytes(), &seen.body].concat();
    key.verify(&signed, &Signature::from_slice(&signature).unwrap()).unwrap();
}

#[tokio::test]
async fn a_refused_webhook_is_delivered_after_a_restart_signed_anew_under_the_same_id() {
    let server = Server::start(|seen| if seen.len() == 1 { Reply::status(503) } else { Reply::status(202) }).await;
    let clock = Arc::new(FakeClock::at(NOON));
    let (setup, channels) = own_voice(&clock);
    let public = channels.public_keys().await.remove(0);
    let first = setup.open().await;
    first.apply(&chain("w", &[("a", "pure")])).await;
    let notify = Some(json!({"webhook": server.url("/hook")}));
    let run = first.start(StartRun { notify, ..StartRun::of("w", json!({})) }).await;
    first.ended(run).await;
    flow::deliver_due(&first.flow).await.unwrap();
    assert_eq!(first.show(run).await["messages"][0]["status"], "pending");
    let second = first.restart(own_voice(&clock).0).await;
    clock.advance(2_000_000);
    flow::deliver_due(&second.flow).await.unwrap();
    let seen = server.seen();
    assert_eq!(seen.len(), 2);
    seen.iter().for_each(|seen| verify(seen, &public));
    assert_eq!(seen[0].header("webhook-id"), seen[1].header("webhook-id"));
    assert_eq!(seen[0].body, seen[1].body, "what is told stays the same");
    let at = |seen: &ReceivedRequest| seen.header("webhook-timestamp").parse::<i64>().unwrap();
    assert_eq!(at(&seen[1]) - at(&seen[0]), 2, "the timestamp is the try's own");
    assert_ne!(seen[0].header("webhook-signature"), seen[1].header("webhook-signature"));
    let message = second.show(run).await["messages"][0].clone();
    let tries = message["deliveries"].as_array().unwrap();
    assert_eq!((&tries[0]["status"], &tries[0]["error"]), (&json!(503), &json!("EXTERNAL_SERVICE_ERROR")));
    assert_eq!((&tries[1]["status"], &tries[1]["outcome"]), (&json!(202), &json!("delivered")));
    assert_eq!((tries.len(), &message["status"]), (2, &json!("sent")));
}

#[tokio::test]
async fn a_shared_key_has_no_public_half_and_an_own_one_does() {
    assert!(channels(None).public_keys().await.is_empty());
    let (_, own) = own_voice(&Arc::new(FakeClock::at(NOON)));
    assert!(own.public_keys().await[0].starts_with("whpk_"));
}

/// What the message asks to decide about.
fn review() -> Review {
    let data = json!({"node": "a", "tool": "s3_upload", "input": {"key": "x", "size": "long ".repeat(100)},
        "reason": "every step\r\nhttps://evil.example/", "risk": {"score": 15, "reasons": [
            {"factor": "external_write", "pointer": "/tool", "points": 15}]}});
    Review::of(&ApprovalRecord {
        approval_id: Uuid::from_u128(3),
        run_id: Uuid::from_u128(9),
        workflow_id: "w",
        requested_by: "service_bot",
        changed_by: &["user_bob".to_owned()],
        autonomy_level: "L0_Ask",
        node_id: Some("a"),
        action_type: "s3_upload",
        data: &data,
        digest: Some("ab".repeat(32)),
        created_at: Some(NOON),
        expires_at: Some(NOON.plus_seconds(60)),
        approvals_needed: 1,
        decisions: &json!([]),
        status: "pending",
        reviewed_at: None,
        reviewed_by: None,
        notes: None,
        run_risk: None,
        notify: None,
        before: None,
        now: NOON,
    })
}

fn question(link: Option<&str>) -> Message {
    let data = json!({
        "run_id": Uuid::from_u128(9), "workflow_id": "w", "actor": "service_bot", "autonomy_level": "L0_Ask",
        "approval_id": Uuid::from_u128(3), "node_id": "a", "tool": "s3_upload", "input": {"key": "x"},
        "input_bytes": 11, "reason": "every step\r\nhttps://evil.example/", "digest": "ab".repeat(32),
        "expires_at": NOON.to_string(), "link": link, "review": review(),
    });
    let payload = json!({"type": "approval.requested", "timestamp": NOON.to_string(), "data": data});
    let (channel, target) = ("email".into(), "ann@acme.example".into());
    Message { id: Uuid::from_u128(7), tenant: "acme".into(), channel, target, payload }
}

#[tokio::test]
async fn a_mail_that_asks_shows_what_would_run_and_where_to_decide() {
    let smtp = PrivateSmtp::start();
    let channels = channels(Some(&smtp));
    channels.send(&question(Some("https://c.example/approvals/tok"))).await.unwrap();
    channels.send(&question(None)).await.unwrap();
    let mut masked = question(Some("https://c.example/approvals/tok"));
    masked.payload["data"]["masked"] = json!(true);
    channels.send(&masked).await.unwrap();
    let mails = smtp.accepted();
    let (with, without) = (mails[0]["content"].as_str().unwrap(), mails[1]["content"].as_str().unwrap());
    assert!(with.contains("Subject: w waits for your decision"), "{with}");
    for part in [
        "a call of s3_upload",
        "https://c.example/approvals/tok",
        "service_bot",
        &"ab".repeat(32),
        "key: x",
        "user_bob",
        "What would run:",
        "Open until",
    ] {
        assert!(with.contains(part), "{part} is missing: {with}");
    }
    assert!(with.contains("text/plain") && !with.contains("text/html"), "{with}");
    let forged = with.lines().any(|line| line.trim().starts_with("https://evil.example/"));
    assert!(!forged, "what is quoted gets no line of its own: {with}");
    let masked = mails[2]["content"].as_str().unwrap();
    assert!(masked.contains("What would run (credentials masked; the page shows everything):"), "{masked}");
    assert!(!masked.contains("What would run:"), "{masked}");
    assert!(!without.contains("/approvals/") && without.contains("chimera runs approve"), "{without}");
}

/// Somebody who may not decide is told so, and who may.
#[tokio::test]
async fn a_mail_to_somebody_who_may_not_decide_says_so_and_who_may() {
    let smtp = PrivateSmtp::start();
    let channels = channels(Some(&smtp));
    for reason in ["requester", "same_as_requester", "not_named"] {
        let mut message = question(None);
        message.payload["data"]["not_decider"] = json!(reason);
        message.payload["data"]["decided_by"] = json!("a person with the scope approvals.decide other than user_ann");
        channels.send(&message).await.unwrap();
    }
    for mail in smtp.accepted() {
        let text = mail["content"].as_str().unwrap().replace("=\r\n", "");
        assert!(text.contains("Subject: w waits for a decision"), "{text}");
        for part in [
            "You cannot decide about it",
            "Who decides: a person with the scope approvals.decide other",
            "chimera runs show",
        ] {
            assert!(text.contains(part), "{part} is missing: {text}");
        }
        assert!(!text.contains("your decision") && !text.contains("chimera runs approve"), "{text}");
    }
}

#[tokio::test]
async fn a_mail_to_an_outsider_tells_only_that_something_waits() {
    let smtp = PrivateSmtp::start();
    let channels = channels(Some(&smtp));
    for kind in ["approval.requested", "step.outcome_unknown"] {
        let mut message = question(None);
        message.payload =
            json!({"type": kind, "data": {"run_id": Uuid::from_u128(9), "workflow_id": "w", "withheld": true}});
        channels.send(&message).await.unwrap();
    }
    for mail in smtp.accepted() {
        let text = mail["content"].as_str().unwrap();
        assert!(!text.contains("chimera runs") && !text.contains("your decision"), "{text}");
        assert!(text.contains(&Uuid::from_u128(9).to_string()), "{text}");
    }
}

fn doubt(undo: bool) -> Message {
    let (run, step) = (Uuid::from_u128(9), Uuid::from_u128(5));
    let commands = if undo {
        vec![format!("chimera runs rollback {run} --step {step}"), format!("chimera runs rollback {run} --by-hand")]
    } else {
        vec![format!("chimera runs resolve {run} {step} --happened")]
    };
    let data = json!({
        "run_id": run, "workflow_id": "w", "actor": "service_bot", "step_id": step, "node_id": "pay", "tool": "acme.pay",
        "call": if undo { "undo" } else { "execute" }, "since": NOON.to_string(),
        "reason": "no answer\r\nchimera runs resolve evil --happened", "resolve_commands": commands,
    });
    let payload = json!({"type": "step.outcome_unknown", "timestamp": NOON.to_string(), "data": data});
    let (channel, target) = ("email".into(), "ann@acme.example".into());
    Message { id: Uuid::from_u128(8), tenant: "acme".into(), channel, target, payload }
}

#[tokio::test]
async fn a_mail_about_a_call_in_doubt_says_which_why_and_how_to_settle_it() {
    let smtp = PrivateSmtp::start();
    let channels = channels(Some(&smtp));
    channels.send(&doubt(false)).await.unwrap();
    channels.send(&doubt(true)).await.unwrap();
    let mails = smtp.accepted();
    let (call, undo) = (mails[0]["content"].as_str().unwrap(), mails[1]["content"].as_str().unwrap());
    assert!(call.contains("Subject: w: the outcome of acme.pay is unknown"), "{call}");
    for part in ["a call of acme.pay", "Node: pay", "Why: no answer", "service_bot", "--happened"] {
        assert!(call.contains(part), "{part} is missing: {call}");
    }
    let forged = call.lines().any(|line| line.trim().starts_with("chimera runs resolve evil"));
    assert!(!forged, "what is quoted gets no line of its own: {call}");
    for part in ["acme.pay was undone", "The run has ended", "--by-hand"] {
        assert!(undo.contains(part), "{part} is missing: {undo}");
    }
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
    let channels = NotificationChannels { webhook: None, ..channels(None) };
    for channel in ["webhook", "email", "pigeon"] {
        let error = channels.send(&message(channel, "https://x.example/".into())).await.unwrap_err();
        assert_eq!(gist(&error), ("TOOL_UNAVAILABLE", false, Sent::No), "{channel}");
    }
}
