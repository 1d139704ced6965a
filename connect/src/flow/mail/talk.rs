//! The SMTP dialogue.
//!
//! A failure before the first byte of the message has no effect, and neither has a rejecting reply. A missing reply
//! after that leaves the outcome unknown: the server may have accepted the message and lost the connection before it
//! replied.

use super::message::Mail;
use super::{InvalidMailSettings, MailSettings, MailTls};
use crate::http::Keyring;
use chimera_core::error::Code;
use chimera_core::limits;
use chimera_core::secret::SecretName;
use chimera_engine::flow::port::{CallContext, Sent, ToolError};
use lettre::transport::smtp::Error;
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{AsyncSmtpConnection, Certificate, TlsParameters};
use lettre::transport::smtp::commands::{Data, Mail as From, Rcpt};
use lettre::transport::smtp::extension::{ClientId, Extension, MailParameter};
use std::sync::atomic::{AtomicBool, Ordering};

/// The server and its connection settings.
pub(super) struct SmtpServer {
    host: String,
    port: u16,
    tls: MailTls,
    parameters: Option<TlsParameters>,
    login: Option<(String, SecretName)>,
    hello: ClientId,
}

impl SmtpServer {
    pub(super) fn authority(&self) -> String {
        format!("{}:{}", self.host.to_ascii_lowercase(), self.port)
    }

    pub(super) fn new(settings: &MailSettings) -> Result<Self, InvalidMailSettings> {
        let login = match (&settings.user, &settings.password) {
            (Some(user), Some(password)) => Some((user.clone(), password.clone())),
            (None, None) => None,
            _ => return Err(InvalidMailSettings::Credentials),
        };
        let local = matches!(settings.server.as_str(), "localhost" | "127.0.0.1" | "::1");
        if settings.tls == MailTls::None && login.is_some() && !local {
            return Err(InvalidMailSettings::PlainPassword);
        }
        let parameters = match settings.tls {
            MailTls::None => None,
            MailTls::StartTls | MailTls::Implicit => {
                let mut builder = TlsParameters::builder(settings.server.clone());
                if let Some(pem) = &settings.roots_pem {
                    // Text without a certificate would be accepted as an empty list.
                    if !String::from_utf8_lossy(pem).contains("-----BEGIN CERTIFICATE-----") {
                        return Err(InvalidMailSettings::Roots);
                    }
                    builder = builder
                        .add_root_certificate(Certificate::from_pem(pem).map_err(|_| InvalidMailSettings::Roots)?);
                }
                Some(builder.build_rustls().map_err(|_| InvalidMailSettings::Roots)?)
            }
        };
        let (host, port, tls) = (settings.server.clone(), settings.port, settings.tls);
        // The EHLO name reveals nothing about the machine; servers that check it check the sender's domain too.
        let domain = settings.from.rsplit('@').next().unwrap_or_default().trim_end_matches('>').trim();
        Ok(Self { host, port, tls, parameters, login, hello: ClientId::Domain(domain.to_owned()) })
    }

    /// The credentials for the server, if it requires any.
    async fn credentials(&self, keys: &mut Keyring) -> Result<Option<Credentials>, ToolError> {
        let Some((user, password)) = &self.login else { return Ok(None) };
        let password = keys.text(password).await?;
        Ok(Some(Credentials::new(user.clone(), password.expose_text().unwrap_or_default().to_owned())))
    }

    /// Delivers a mail to the server within the time limit of the call.
    pub(super) async fn send(&self, ctx: &CallContext, mail: &Mail, keys: &mut Keyring) -> Result<(), ToolError> {
        let credentials = self.credentials(keys).await?;
        let begun = AtomicBool::new(false);
        let mut cancel = ctx.cancel.clone();
        let (code, why) = tokio::select! {
            biased;
            outcome = self.run_dialogue(ctx, mail, credentials, &begun) => {
                return outcome.map_err(|error| truncate_reply(error, keys));
            }
            () = cancel.cancelled() => (Code::InvalidTransition, "the call was cancelled"),
            () = tokio::time::sleep(ctx.time_left) => (Code::RequestTimeout, "the mail server took too long"),
        };
        let sent = if begun.load(Ordering::SeqCst) { Sent::Maybe } else { Sent::No };
        Err(ToolError { sent, ..ToolError::not_sent(code, why) })
    }

    async fn run_dialogue(
        &self,
        ctx: &CallContext,
        mail: &Mail,
        credentials: Option<Credentials>,
        begun: &AtomicBool,
    ) -> Result<(), ToolError> {
        let mut line = self.connect(ctx).await?;
        if let Some(credentials) = credentials {
            let outcome = line.auth(&[Mechanism::Plain, Mechanism::Login], &credentials).await;
            outcome.map_err(|error| failed(&error, "rejected the login", Sent::No))?;
        }
        let mut parameters = Vec::new();
        if mail.envelope.to().iter().chain(mail.envelope.from()).any(|address| !address.to_string().is_ascii()) {
            if !line.server_info().supports_feature(Extension::SmtpUtfEight) {
                let why = "the mail server accepts only ASCII addresses";
                return Err(ToolError::not_sent(Code::ValidationFailed, why));
            }
            parameters.push(MailParameter::SmtpUtfEight);
        }
        let from = From::new(mail.envelope.from().cloned(), parameters);
        line.command(from).await.map_err(|error| failed(&error, "rejected the sender", Sent::No))?;
        send_recipients(&mut line, mail).await?;
        line.command(Data).await.map_err(|error| failed(&error, "rejected the DATA command", Sent::No))?;
        begun.store(true, Ordering::SeqCst);
        let outcome = line.message(&mail.bytes).await;
        outcome.map_err(|error| failed(&error, "did not accept the message", Sent::Maybe))?;
        let _ = tokio::time::timeout(limits::MAIL_QUIT_TIMEOUT, line.quit()).await;
        Ok(())
    }

    /// A connection on which nothing is sent before TLS is established.
    async fn connect(&self, ctx: &CallContext) -> Result<AsyncSmtpConnection, ToolError> {
        let refused = |error: Error| failed(&error, "can't be reached or refuses TLS", Sent::No);
        let implicit = self.parameters.clone().filter(|_| self.tls == MailTls::Implicit);
        let timeout = Some(limits::MAIL_CONNECT_TIMEOUT.min(ctx.time_left));
        let place = (self.host.as_str(), self.port);
        let mut line =
            AsyncSmtpConnection::connect_tokio1(place, timeout, &self.hello, implicit, None).await.map_err(refused)?;
        if let (MailTls::StartTls, Some(parameters)) = (self.tls, &self.parameters) {
            if !line.can_starttls() {
                let why = "the mail server does not offer STARTTLS; nothing is sent in the clear";
                return Err(ToolError::not_sent(Code::ValidationFailed, why));
            }
            line.starttls(parameters.clone(), &self.hello).await.map_err(refused)?;
        }
        Ok(line)
    }
}

/// Announces all recipients; if one is rejected, nobody gets the mail.
async fn send_recipients(line: &mut AsyncSmtpConnection, mail: &Mail) -> Result<(), ToolError> {
    let (mut refused, mut for_good) = (Vec::new(), false);
    let mut first = None;
    for receiver in mail.envelope.to() {
        if let Err(error) = line.command(Rcpt::new(receiver.clone(), Vec::new())).await {
            if error.status().is_none() {
                return Err(failed(&error, "closed the connection", Sent::No));
            }
            for_good |= error.is_permanent();
            refused.push(receiver.to_string());
            first.get_or_insert(failed(&error, "rejected a recipient", Sent::No));
        }
    }
    let Some(mut error) = first else { return Ok(()) };
    line.abort().await;
    error.body.retryable = !for_good;
    Err(error.with("refused", refused))
}

/// Truncates the server's reply in an error. Secrets are masked before it is cut.
fn truncate_reply(mut error: ToolError, keys: &Keyring) -> ToolError {
    if let Some(reply) = error.body.details.get_mut("reply") {
        *reply = keys.quote(reply.as_str().unwrap_or_default()).into();
    }
    error
}

/// The error for a failed step. A reply is definite: what it rejects did not happen, and its code says whether a
/// retry may help.
fn failed(error: &Error, what: &str, unanswered: Sent) -> ToolError {
    tracing::debug!(status = error.status().map(tracing::field::display), "mail server failed");
    let message = format!("the mail server {what}");
    match error.status() {
        Some(status) => {
            let mut refusal = ToolError::not_sent(Code::ExternalServiceError, message)
                .with("status", status.to_string())
                .with("reply", error.to_string());
            refusal.body.retryable = error.is_transient();
            refusal
        }
        None if error.is_client() => ToolError::not_sent(Code::ValidationFailed, message),
        None => ToolError { sent: unanswered, ..ToolError::not_sent(Code::ExternalServiceUnavailable, message) },
    }
}
