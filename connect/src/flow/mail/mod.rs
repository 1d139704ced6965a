//! `email_send`: a mail through the operator's SMTP server.
//!
//! Who it comes from is a setting, not an input. The message is made whole before anybody is
//! called, and its `Message-ID` is the effect's id, so that a mail that was sent twice can be told
//! by its receiver. It goes to all receivers or to none: one refused receiver ends the call before
//! the message is sent.

mod message;
mod talk;

use super::input::read;
use crate::http::Keyring;
use async_trait::async_trait;
use chimera_core::flow::destination::DESTINATIONS_MEMBER as DESTINATIONS;
use chimera_core::json::schema::InvalidSchema;
use chimera_core::limits::{MAIL_RECIPIENTS_MAX, MAIL_SUBJECT_CHARS_MAX, MAIL_TEXT_BYTES_MAX};
use chimera_core::secret::SecretName;
use chimera_core::tool::{ToolDeclaration, Metadata, EffectKind, Risk, Rollback, Spec, is_dry_run};
use chimera_engine::flow::port::{CallContext, Tool, ToolError};
use chimera_engine::port::Secrets;
use lettre::message::Mailbox;
use serde_json::{Value, json};
use std::sync::Arc;
use talk::Server;

/// Where mail is handed over, and in whose name.
#[derive(Clone, Debug)]
pub struct MailSettings {
    /// Host name of the SMTP server; its certificate must be for this name.
    pub server: String,
    /// Its port: 587 for `StartTls`, 465 for `Implicit`, as a rule.
    pub port: u16,
    /// How the connection is protected.
    pub tls: MailTls,
    /// Who we are to it, if it asks.
    pub user: Option<String>,
    /// The password that goes with the user.
    pub password: Option<SecretName>,
    /// Who mails are from: an address, or `Name <address>`.
    pub from: String,
    /// Certificates, as PEM, that are trusted besides the system's.
    pub roots_pem: Option<Vec<u8>>,
}

/// How a connection is protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MailTls {
    /// It begins in the clear and must be upgraded before anything else is said.
    #[default]
    StartTls,
    /// TLS from the first byte.
    Implicit,
    /// Not at all: for a relay on this machine.
    None,
}

/// Settings that no mail can be sent with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMail {
    /// The sender is not an address.
    #[error("the sender is not a mail address")]
    From,
    /// There is a user without a password, or the other way round.
    #[error("a user needs a password, and a password a user")]
    Credentials,
    /// The password would travel in the clear.
    #[error("a password is sent over TLS only, unless the server is this machine")]
    PlainPassword,
    /// The certificates can't be read.
    #[error("the certificates are not PEM")]
    Roots,
    /// The tool's own description can't be used.
    #[error(transparent)]
    Schema(#[from] InvalidSchema),
}

struct EmailSend {
    spec: Arc<Spec>,
    from: Mailbox,
    server: Server,
    secrets: Arc<dyn Secrets>,
}

/// The tool, with these settings. Does not connect yet; the password is resolved for each mail.
pub fn mail_tool(settings: MailSettings, secrets: Arc<dyn Secrets>) -> Result<Arc<dyn Tool>, InvalidMail> {
    let from = settings.from.parse().map_err(|_| InvalidMail::From)?;
    let server = Server::new(&settings)?;
    Ok(Arc::new(EmailSend { spec: Arc::new(declared().compile()?), from, server, secrets }))
}

fn declared() -> ToolDeclaration {
    let address = json!({"type": "string", "minLength": 3, "maxLength": 2_000});
    let addresses = json!({"anyOf": [
        address, {"type": "array", "items": address, "minItems": 1, "maxItems": MAIL_RECIPIENTS_MAX}
    ]});
    let text = json!({"type": "string", "maxLength": MAIL_TEXT_BYTES_MAX});
    ToolDeclaration {
        name: "email_send",
        version: "1",
        description: "Sends a mail.",
        metadata: Metadata {
            requires_approval: true,
            dry_run_supported: true,
            idempotent: false,
            capabilities: vec!["email.send".to_owned(), "external_api".to_owned()],
            risk_level: Risk::High,
        },
        effect: EffectKind::Write,
        reads_when: None,
        checkable: false,
        rollback: Rollback::Unsupported,
        timeout_ms: 60_000,
        input: json!({
            "type": "object",
            "properties": {
                "to": addresses,
                "cc": addresses,
                "bcc": addresses,
                "reply_to": address,
                "subject": {
                    "type": "string", "maxLength": MAIL_SUBJECT_CHARS_MAX, "pattern": "^[^\\x00-\\x1f\\x7f]*$"
                },
                "body": text,
                "text": {"type": "string", "maxLength": MAIL_TEXT_BYTES_MAX, "description": "The same as body."},
                "html": text
            },
            "required": ["to", "subject"],
            "not": {"required": ["body", "text"]},
            "additionalProperties": false,
            DESTINATIONS: ["to", "cc", "bcc"],
        }),
        output: json!({
            "type": "object",
            "properties": {
                "success": {"const": true},
                "message_id": {"type": "string"},
                "receivers": {"type": "array", "items": {"type": "string"}},
                "bytes": {"type": "integer"}
            },
            "required": ["success", "message_id", "receivers", "bytes"],
            "additionalProperties": false
        }),
    }
}

#[async_trait]
impl Tool for EmailSend {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn host(&self, _input: &Value) -> Option<String> {
        Some(self.server.authority())
    }

    async fn execute(&self, ctx: &CallContext, input: &Value) -> Result<Value, ToolError> {
        let mail = message::write(&self.from, ctx, read(input)?)?;
        let output = json!({
            "success": true,
            "message_id": mail.id,
            "receivers": mail.envelope.to().iter().map(ToString::to_string).collect::<Vec<_>>(),
            "bytes": mail.bytes.len(),
        });
        if is_dry_run(input) {
            let what = format!("send a mail of {} bytes to {} receivers", mail.bytes.len(), mail.envelope.to().len());
            return Ok(Spec::dry_run_response(output, what));
        }
        let mut keys = Keyring::of_process(&self.secrets);
        let told = self.server.hand_over(ctx, &mail, &mut keys).await;
        keys.clean(told).await.map(|()| output)
    }
}
