//! Composes a mail.
//!
//! Every character that could end a header line is rejected, so no input can inject a header. Nothing is random: the
//! same effect gives the same message, except for the date of the attempt.

use chimera_core::error::Code;
use chimera_core::limits::{MAIL_RECIPIENTS_MAX, MAIL_SUBJECT_CHARS_MAX, MAIL_TEXT_BYTES_MAX};
use chimera_core::time::Timestamp;
use chimera_engine::flow::port::{CallContext, ToolError};
use lettre::address::Envelope;
use lettre::message::header::{HeaderName, HeaderValue};
use lettre::message::{Mailbox, Mailboxes, Message, MultiPart, SinglePart};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::time::{Duration, SystemTime};

/// The tool's input.
#[derive(Deserialize)]
pub(super) struct MailInput {
    to: Addresses,
    cc: Option<Addresses>,
    bcc: Option<Addresses>,
    reply_to: Option<String>,
    subject: String,
    #[serde(alias = "text")]
    body: Option<String>,
    html: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Addresses {
    One(String),
    Many(Vec<String>),
}

/// A composed mail.
pub(super) struct Mail {
    pub(super) id: String,
    /// Sender and recipients.
    pub(super) envelope: Envelope,
    pub(super) bytes: Vec<u8>,
}

pub(super) fn compose(from: &Mailbox, ctx: &CallContext, input: MailInput) -> Result<Mail, ToolError> {
    let refuse = |message: &str| ToolError::not_sent(Code::MalformedArgs, message);
    if input.subject.chars().any(char::is_control) || input.subject.chars().count() > MAIL_SUBJECT_CHARS_MAX {
        return Err(refuse("the subject has control characters or is too long"));
    }
    let texts = [&input.body, &input.html];
    if texts.into_iter().flatten().any(|text| text.len() > MAIL_TEXT_BYTES_MAX) {
        return Err(ToolError::not_sent(Code::PayloadTooLarge, "the text of the mail is too long")
            .with("bytes_max", MAIL_TEXT_BYTES_MAX));
    }
    let id = format!("<{}@{}>", ctx.effect_id, from.email.domain());
    let mut builder = Message::builder()
        .from(from.clone())
        .message_id(Some(id.clone()))
        .date(SystemTime::UNIX_EPOCH + since_epoch(ctx))
        .subject(input.subject)
        .raw_header(HeaderValue::new(HeaderName::new_from_ascii_str("Auto-Submitted"), "auto-generated".to_owned()));
    let mut receivers = 0;
    let fields = [(Some(input.to), "to"), (input.cc, "cc"), (input.bcc, "bcc")];
    for (addresses, field) in fields.into_iter().filter_map(|(addresses, field)| Some((addresses?, field))) {
        for mailbox in mailboxes(addresses, field)? {
            receivers += 1;
            builder = match field {
                "to" => builder.to(mailbox),
                "cc" => builder.cc(mailbox),
                _ => builder.bcc(mailbox),
            };
        }
    }
    if receivers == 0 || receivers > MAIL_RECIPIENTS_MAX {
        return Err(refuse("a mail needs at least one recipient and at most `max`").with("max", MAIL_RECIPIENTS_MAX));
    }
    if let Some(address) = input.reply_to {
        let mut mailboxes = mailboxes(Addresses::One(address), "reply_to")?.into_iter();
        builder = mailboxes.next().into_iter().fold(builder, lettre::message::MessageBuilder::reply_to);
    }
    let text = input.body.map(SinglePart::plain);
    let html = input.html.map(SinglePart::html);
    let message = match (text, html) {
        (Some(text), Some(html)) => {
            let boundary = hex::encode(&Sha256::digest(format!("boundary {id}"))[..18]);
            builder.multipart(MultiPart::alternative().boundary(boundary).singlepart(text).singlepart(html))
        }
        (None, Some(html)) => builder.singlepart(html),
        (text, None) => builder.singlepart(text.unwrap_or_else(|| SinglePart::plain(String::new()))),
    };
    let message = message.map_err(|_| refuse("the input can't be composed into a mail"))?;
    Ok(Mail { id, envelope: message.envelope().clone(), bytes: message.formatted() })
}

/// The addresses of a field; each text may hold several, separated by commas.
fn mailboxes(addresses: Addresses, field: &str) -> Result<Vec<Mailbox>, ToolError> {
    let texts = match addresses {
        Addresses::One(text) => vec![text],
        Addresses::Many(texts) => texts,
    };
    let mut all = Vec::new();
    for text in texts {
        let read: Result<Mailboxes, _> = text.parse();
        match read {
            Ok(mailboxes) if !text.chars().any(char::is_control) => all.extend(mailboxes),
            _ => {
                let message = "not a mail address; expected name@host or Name <name@host>";
                return Err(ToolError::not_sent(Code::MalformedArgs, message).with("field", field));
            }
        }
    }
    Ok(all)
}

/// The time of the call, in whole seconds.
fn since_epoch(ctx: &CallContext) -> Duration {
    let now = ctx.deadline.micros().saturating_sub(i64::try_from(ctx.time_left.as_micros()).unwrap_or(i64::MAX));
    Duration::from_secs(u64::try_from(Timestamp::from_micros(now).micros() / 1_000_000).unwrap_or_default())
}
