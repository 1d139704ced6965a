//! Mail through a real SMTP server, with and without TLS, and through a connection that is cut.

use crate::fixtures::{call, execute};
use async_trait::async_trait;
use chimera_connect::flow::{InvalidMailSettings, MailSettings, MailTls, mail_tool};
use chimera_core::secret::{Secret, SecretName};
use chimera_core::tool::{EffectKind, Risk};
use chimera_engine::flow::port::{CancelToken, Sent, Tool};
use chimera_engine::port::{SecretError, Secrets};
use chimera_testkit::proxy::{Cut, Proxy};
use chimera_testkit::smtp::{PrivateSmtp, Tls};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

struct OneSecret;

#[async_trait]
impl Secrets for OneSecret {
    async fn resolve(&self, name: &SecretName) -> Result<Secret, SecretError> {
        match name.as_str() {
            "smtp" => Ok(Secret::new("open sesame")),
            "wrong" => Ok(Secret::new("open barley")),
            _ => Err(SecretError::Missing(name.clone())),
        }
    }
}

fn settings(port: u16) -> MailSettings {
    MailSettings {
        server: "localhost".into(),
        port,
        tls: MailTls::None,
        user: None,
        password: None,
        from: "Chimera <chimera@acme.example>".into(),
        roots_pem: None,
    }
}

fn tool(settings: MailSettings) -> Arc<dyn Tool> {
    mail_tool(settings, Arc::new(OneSecret)).unwrap()
}

fn with_login(mut settings: MailSettings, secret: &str) -> MailSettings {
    settings.user = Some(PrivateSmtp::USER.into());
    settings.password = Some(SecretName::new(secret).unwrap());
    settings
}

fn content(message: &Value) -> &str {
    message["content"].as_str().unwrap()
}

#[tokio::test]
async fn a_mail_as_the_documents_workflow_writes_it_arrives() {
    let server = PrivateSmtp::start();
    let mail = tool(settings(server.port()));
    let spec = mail.spec();
    assert_eq!(
        (spec.name.as_str(), spec.effect, spec.metadata.risk_level),
        ("email_send", EffectKind::Write, Risk::High)
    );
    assert!(spec.metadata.requires_approval && spec.metadata.dry_run_supported && !spec.metadata.idempotent);
    assert_eq!(spec.metadata.capabilities, ["email.send", "external_api"]);
    assert_eq!(spec.input.document()["properties"]["dry_run"]["type"], "boolean");

    let input = json!({"to": "ops@acme.com", "subject": "Upload OK 123"});
    let output = execute(&*mail, &call(7), &input).await.unwrap();
    let accepted = server.accepted();
    assert_eq!((accepted.len(), &accepted[0]["to"]), (1, &json!(["ops@acme.com"])));
    assert_eq!(accepted[0]["from"], "chimera@acme.example");
    let text = content(&accepted[0]);
    for line in [
        "Subject: Upload OK 123\r\n",
        "From: Chimera <chimera@acme.example>\r\n",
        "To: ops@acme.com\r\n",
        "Date: Fri, 06 Feb 2026 15:30:00 +0000\r\n",
        "Message-ID: <00000000-0000-0000-0000-000000000007@acme.example>\r\n",
        "Auto-Submitted: auto-generated\r\n",
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
    assert_eq!(output["message_id"], "<00000000-0000-0000-0000-000000000007@acme.example>");
}

#[tokio::test]
async fn receivers_texts_and_other_alphabets_arrive_as_they_were_given() {
    let server = PrivateSmtp::start();
    let mail = tool(settings(server.port()));
    let input = json!({
        "to": ["Ann <ann@a.example>", "bob@b.example"],
        "cc": "cec@c.example, dan@d.example",
        "bcc": "eve@e.example",
        "reply_to": "desk@acme.example",
        "subject": "Grüße, привет",
        "text": ".\r\n.a line with a dot\r\nΚαλημέρα",
        "html": "<p>Καλημέρα</p>",
    });
    let output = execute(&*mail, &call(1), &input).await.unwrap();
    let everybody = ["ann@a.example", "bob@b.example", "cec@c.example", "dan@d.example", "eve@e.example"];
    assert_eq!(output["receivers"], json!(everybody));
    let accepted = server.accepted();
    assert_eq!(accepted[0]["to"], json!(everybody));
    let text = content(&accepted[0]);
    assert!(!text.contains("eve@e.example") && text.contains("Reply-To: desk@acme.example"), "{text}");
    assert!(text.is_ascii() && text.contains("multipart/alternative") && text.contains("=?utf-8?"), "{text}");
    // The same effect gives the same message.
    execute(&*mail, &call(1), &input).await.unwrap();
    assert_eq!(content(&server.accepted()[1]), text);
}

#[tokio::test]
async fn no_input_can_add_a_header_or_a_command() {
    let server = PrivateSmtp::start();
    let mail = tool(settings(server.port()));
    for evil in ["x\r\nBcc: evil@e.example", "x\nBcc: evil@e.example", "x\rBcc: a@b.c", "x\u{0}y"] {
        let subject = json!({"to": "a@b.example", "subject": evil});
        assert!(mail.spec().input.check(&subject).is_err(), "{evil:?}");
        assert_eq!(mail.execute(&call(1), &subject).await.unwrap_err().body.code, "MALFORMED_ARGS");
        for field in ["to", "cc", "bcc", "reply_to"] {
            for address in [evil.to_owned(), format!("{evil} <a@b.example>"), format!("a@b.example>{evil}")] {
                let mut input = json!({"to": "a@b.example", "subject": "s"});
                input[field] = json!(address);
                let error = mail.execute(&call(1), &input).await.unwrap_err();
                assert_eq!((error.body.code.as_str(), error.sent), ("MALFORMED_ARGS", Sent::No), "{field} {address:?}");
            }
        }
    }
    let body = json!({"to": "a@b.example", "subject": "s", "body": "x\r\n.\r\nMAIL FROM:<evil@e.example>\r\n"});
    execute(&*mail, &call(1), &body).await.unwrap();
    assert_eq!(server.accepted().len(), 1, "a dot in the text ends nothing");
    for bad in [
        json!({"subject": "s"}),
        json!({"to": "a@b.example"}),
        json!({"to": [], "subject": "s"}),
        json!({"to": "a@b.example", "subject": "s", "body": "x", "text": "y"}),
        json!({"to": "a@b.example", "subject": "s", "from": "boss@acme.example"}),
    ] {
        assert!(mail.spec().input.check(&bad).is_err(), "{bad}");
    }
}

#[tokio::test]
async fn a_dry_mail_calls_nobody() {
    // Nobody listens there.
    let mail = tool(settings(1));
    let input = json!({"to": "a@b.example", "subject": "s", "body": "x", "dry_run": true});
    let output = execute(&*mail, &call(1), &input).await.unwrap();
    assert_eq!(
        (&output["status"], &output["simulated_output"]["receivers"]),
        (&json!("dry_run"), &json!(["a@b.example"]))
    );
    let bad = json!({"to": "nobody", "subject": "s", "dry_run": true});
    assert_eq!(mail.execute(&call(1), &bad).await.unwrap_err().body.code, "MALFORMED_ARGS");
}

#[tokio::test]
async fn mail_goes_over_tls_and_the_password_with_it() {
    for (kind, tls) in [(Tls::StartTls, MailTls::StartTls), (Tls::Implicit, MailTls::Implicit)] {
        let server = PrivateSmtp::start_with(kind, Some("open sesame"));
        let protected = MailSettings { tls, roots_pem: Some(server.certificate()), ..settings(server.port()) };
        let input = json!({"to": "a@b.example", "subject": "s"});
        execute(&*tool(with_login(protected.clone(), "smtp")), &call(1), &input).await.unwrap();
        let accepted = server.accepted();
        assert_eq!((&accepted[0]["tls"], &accepted[0]["user"]), (&json!(true), &json!(PrivateSmtp::USER)), "{tls:?}");

        let error = execute(&*tool(with_login(protected.clone(), "wrong")), &call(2), &input).await.unwrap_err();
        assert_eq!(
            (error.sent, error.body.retryable, error.body.details["status"].as_str()),
            (Sent::No, false, Some("535"))
        );
        let error = execute(&*tool(with_login(protected.clone(), "unset")), &call(2), &input).await.unwrap_err();
        assert_eq!((error.body.code.as_str(), error.sent), ("TOOL_UNAVAILABLE", Sent::No));
        for told in [format!("{error:?}"), format!("{:?}", error.body)] {
            assert!(!told.contains("open"), "{told}");
        }
        let stranger = MailSettings { roots_pem: None, ..protected };
        let error = execute(&*tool(stranger), &call(3), &input).await.unwrap_err();
        assert_eq!((error.body.code.as_str(), error.sent), ("EXTERNAL_SERVICE_UNAVAILABLE", Sent::No));
        assert_eq!(server.accepted().len(), 1);
    }
}

#[tokio::test]
async fn a_server_without_the_tls_that_is_asked_for_gets_nothing() {
    let server = PrivateSmtp::start();
    let mail = tool(MailSettings { tls: MailTls::StartTls, ..settings(server.port()) });
    let error = execute(&*mail, &call(1), &json!({"to": "a@b.example", "subject": "s"})).await.unwrap_err();
    assert_eq!((error.body.code.as_str(), error.sent, error.body.retryable), ("VALIDATION_FAILED", Sent::No, false));
    assert_eq!(server.accepted().len(), 0);
}

#[test]
fn settings_that_would_give_a_password_away_are_refused() {
    let refused = |settings: MailSettings| mail_tool(settings, Arc::new(OneSecret)).err();
    let remote = MailSettings { server: "mail.example".into(), ..with_login(settings(25), "smtp") };
    assert_eq!(refused(remote), Some(InvalidMailSettings::PlainPassword));
    assert_eq!(refused(MailSettings { from: "nobody".into(), ..settings(25) }), Some(InvalidMailSettings::From));
    assert_eq!(
        refused(MailSettings { user: Some("u".into()), ..settings(25) }),
        Some(InvalidMailSettings::Credentials)
    );
    let roots = MailSettings { tls: MailTls::Implicit, roots_pem: Some(b"no pem".to_vec()), ..settings(25) };
    assert_eq!(refused(roots), Some(InvalidMailSettings::Roots));
}

#[tokio::test]
async fn a_refusal_is_no_send_and_only_a_passing_one_may_be_tried_again() {
    let server = PrivateSmtp::start();
    let mail = tool(settings(server.port()));
    for (to, subject, status, retryable) in [
        ("refused@b.example", "s", "550", false),
        ("later@b.example", "s", "451", true),
        ("later@b.example, refused@b.example", "s", "451", false),
        ("fine@b.example, refused@b.example", "s", "550", false),
        ("fine@b.example", "reject", "554", false),
        ("fine@b.example", "busy", "452", true),
    ] {
        let error = execute(&*mail, &call(1), &json!({"to": to, "subject": subject})).await.unwrap_err();
        assert_eq!((error.sent, error.body.retryable), (Sent::No, retryable), "{to} {subject}");
        assert_eq!(error.body.details["status"], status, "{to} {subject}");
    }
    let error = execute(&*mail, &call(1), &json!({"to": "ok@b.example, refused@b.example", "subject": "s"})).await;
    assert_eq!(error.unwrap_err().body.details["refused"], json!(["refused@b.example"]));
    assert_eq!(server.accepted().len(), 0, "nobody gets a mail that one receiver did not");
}

#[tokio::test]
async fn a_line_that_is_cut_before_the_message_has_sent_nothing() {
    let server = PrivateSmtp::start();
    for (marker, cut) in [
        (&b"EHLO"[..], Cut::BeforeMarker),
        (b"RCPT", Cut::AfterMarker),
        (b"DATA", Cut::BeforeMarker),
        (b"DATA", Cut::AfterMarker),
    ] {
        let relay = Proxy::start(([127, 0, 0, 1], server.port()).into(), marker).await.unwrap();
        relay.arm(cut);
        let mail = tool(settings(relay.address().port()));
        let error = execute(&*mail, &call(1), &json!({"to": "a@b.example", "subject": "s"})).await.unwrap_err();
        assert!(relay.is_spent());
        assert_eq!((error.body.code.as_str(), error.sent), ("EXTERNAL_SERVICE_UNAVAILABLE", Sent::No), "{cut:?}");
        assert!(error.body.retryable);
    }
    let error =
        execute(&*tool(settings(1)), &call(1), &json!({"to": "a@b.example", "subject": "s"})).await.unwrap_err();
    assert_eq!((error.sent, error.body.retryable), (Sent::No, true), "nobody listens");
    assert_eq!(server.accepted().len(), 0);
}

#[tokio::test]
async fn a_line_that_is_cut_after_the_message_leaves_it_open() {
    let server = PrivateSmtp::start();
    for (cut, arrived) in [(Cut::BeforeMarker, 0), (Cut::AfterMarker, 1)] {
        let relay = Proxy::start(([127, 0, 0, 1], server.port()).into(), b"\r\n.\r\n").await.unwrap();
        relay.arm(cut);
        let mail = tool(settings(relay.address().port()));
        let error = execute(&*mail, &call(1), &json!({"to": "a@b.example", "subject": "s"})).await.unwrap_err();
        assert!(relay.is_spent());
        assert_eq!((error.body.code.as_str(), error.sent), ("EXTERNAL_SERVICE_UNAVAILABLE", Sent::Maybe));
        assert_eq!(server.accepted().len(), arrived, "{cut:?}");
    }
}

#[tokio::test]
async fn a_silent_server_is_given_up_in_time_and_on_cancel() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mail = tool(settings(silent.local_addr().unwrap().port()));
    let input = json!({"to": "a@b.example", "subject": "s"});
    let mut short = call(1);
    short.time_left = Duration::from_millis(50);
    let error = execute(&*mail, &short, &input).await.unwrap_err();
    assert!(matches!(error.body.code.as_str(), "REQUEST_TIMEOUT" | "EXTERNAL_SERVICE_UNAVAILABLE"), "{error:?}");
    assert_eq!(error.sent, Sent::No);

    let (wish, cancel) = CancelToken::pair();
    let mut cancelled = call(2);
    cancelled.cancel = cancel;
    wish.send(true).unwrap();
    let error = execute(&*mail, &cancelled, &input).await.unwrap_err();
    assert_eq!((error.to_string().as_str(), error.sent), ("the call was cancelled", Sent::No));
}
