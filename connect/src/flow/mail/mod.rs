//! `email_send`: sends a mail through the operator's SMTP server.
//!
//! The sender is a setting, not an input. The message is composed before any connection is made. Its `Message-ID` is
//! the effect's id, so a recipient can recognize a duplicate. It goes to all recipients or to none: one rejected
//! recipient ends the call before the message is sent.

mod message;
mod talk;

use super::input::read;
use crate::http::Keyring;
use async_trait::async_trait;
use chimera_core::access::destination::DESTINATIONS_MEMBER as DESTINATIONS;
use chimera_core::json::schema::InvalidSchema;
use chimera_core::limits::{MAIL_RECIPIENTS_MAX, MAIL_SUBJECT_CHARS_MAX, MAIL_TEXT_BYTES_MAX};
use chimera_core::secret::SecretName;
use chimera_core::tool::{EffectKind, Metadata, Risk, Rollback, Spec, ToolDeclaration, is_dry_run};
use chimera_engine::flow::port::{CallContext, Tool, ToolError};
use chimera_engine::port::Secrets;
use lettre::message::Mailbox;
use serde_json::{Value, json};
use std::sync::Arc;
use talk::SmtpServer;

/// The SMTP server and the sender.
#[derive(Clone, Debug)]
pub struct MailSettings {
    /// Host name of the SMTP server; its certificate must be for this name.
    pub server: String,
    /// 587 for `StartTls` and 465 for `Implicit`, as a rule.
    pub port: u16,
    pub tls: MailTls,
    /// The SMTP user, if the server requires authentication.
    pub user: Option<String>,
    pub password: Option<SecretName>,
    /// The sender: an address, or `Name <address>`.
    pub from: String,
    /// Additional root certificates, as PEM.
    pub roots_pem: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MailTls {
    /// Starts in plain text and must upgrade before anything else is sent.
    #[default]
    StartTls,
    /// TLS from the first byte.
    Implicit,
    /// No TLS: only for a relay on this machine.
    None,
}

/// Invalid mail settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMailSettings {
    /// The sender is not an address.
    #[error("the sender is not a mail address")]
    From,
    /// A user without a password, or a password without a user.
    #[error("mail user and password must be set together")]
    Credentials,
    /// The password would be sent in plain text.
    #[error("a mail password requires TLS, unless the server is on this machine")]
    PlainPassword,
    /// The certificates can't be read.
    #[error("the certificates are not PEM")]
    Roots,
    /// The tool's own schema is invalid.
    #[error(transparent)]
    Schema(#[from] InvalidSchema),
}

struct EmailSend {
    spec: Arc<Spec>,
    from: Mailbox,
    server: SmtpServer,
    secrets: Arc<dyn Secrets>,
}

/// The tool, with these settings. Does not connect yet; the password is resolved for each mail.
pub fn mail_tool(settings: MailSettings, secrets: Arc<dyn Secrets>) -> Result<Arc<dyn Tool>, InvalidMailSettings> {
    let from = settings.from.parse().map_err(|_| InvalidMailSettings::From)?;
    let server = SmtpServer::new(&settings)?;
    Ok(Arc::new(EmailSend { spec: Arc::new(declare_tool().compile()?), from, server, secrets }))
}

fn declare_tool() -> ToolDeclaration {
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
        let mail = message::compose(&self.from, ctx, read(input)?)?;
        let output = json!({
            "success": true,
            "message_id": mail.id,
            "receivers": mail.envelope.to().iter().map(ToString::to_string).collect::<Vec<_>>(),
            "bytes": mail.bytes.len(),
        });
        if is_dry_run(input) {
            let what = format!("send a mail of {} bytes to {} recipients", mail.bytes.len(), mail.envelope.to().len());
            return Ok(Spec::dry_run_response(output, what));
        }
        let mut keys = Keyring::of_process(&self.secrets);
        let outcome = self.server.send(ctx, &mail, &mut keys).await;
        keys.clean(outcome).await.map(|()| output)
    }
}
