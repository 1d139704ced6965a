//! The secrets of one call: resolved on use, and masked in everything that comes back.
//!
//! A server may echo what it was sent, in an error or in its answer. Only this file resolves secrets, and whoever
//! creates a [`Keyring`] returns its result through [`Keyring::clean`]; a tidy test enforces both.

use super::failure::{failed, not_retryable};
use super::request::Call;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chimera_core::error::Code;
use chimera_core::limits::{ERROR_TEXT_CHARS_MAX, REDACT_INLINE_BYTES_MAX};
use chimera_core::redact::Redactor;
use chimera_core::secret::{Secret, SecretName};
use chimera_engine::flow::port::{Sent, ToolError};
use chimera_engine::port::{SecretError, Secrets};
use reqwest::header::HeaderValue;
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;

const SCHEME: &str = "secret://";
/// The usual maximum of bytes that encode one byte of a secret.
const SPELLED_RATIO: usize = 8;

/// The secrets resolved for one call.
pub(crate) struct Keyring {
    secrets: Arc<dyn Secrets>,
    /// The tenant whose secrets are used; `None` for the process's own.
    tenant: Option<String>,
    used: Vec<Secret>,
}

impl Keyring {
    /// For a tool call: the secrets of its tenant.
    pub(crate) fn of_call(secrets: &Arc<dyn Secrets>, call: &Call) -> Self {
        Self { secrets: Arc::clone(secrets), tenant: call.tenant.clone(), used: Vec::new() }
    }

    /// For secrets that the configuration names.
    pub(crate) fn of_process(secrets: &Arc<dyn Secrets>) -> Self {
        Self { secrets: Arc::clone(secrets), tenant: None, used: Vec::new() }
    }

    /// The value of a secret, without the trailing line end that files have.
    pub(crate) async fn text(&mut self, name: &SecretName) -> Result<Secret, ToolError> {
        let found = match &self.tenant {
            Some(tenant) => self.secrets.resolve_for(tenant, name).await,
            None => self.secrets.resolve(name).await,
        };
        let secret = found.map_err(|error| {
            let error_body = ToolError::not_sent(Code::ToolUnavailable, error.to_string());
            if matches!(error, SecretError::Unreadable { .. }) { error_body } else { not_retryable(error_body) }
        })?;
        let text = secret.expose_text().map(str::trim);
        let Some(text) = text.filter(|text| !text.is_empty()) else {
            let what = format!("the secret {name} is not valid text");
            return Err(not_retryable(ToolError::not_sent(Code::ToolUnavailable, what)));
        };
        let secret = Secret::new(text);
        // Host names are lower-cased, and a redirect may put a secret into one.
        self.used.push(Secret::new(text.to_ascii_lowercase()));
        self.used.push(secret.clone());
        Ok(secret)
    }

    /// Masks this too: a value derived from a secret, such as a short-lived token.
    pub(crate) fn add(&mut self, secret: Secret) {
        self.used.push(secret);
    }

    /// `user:secret` for the Basic scheme.
    pub(crate) async fn basic(&mut self, user: &str, name: &SecretName) -> Result<HeaderValue, ToolError> {
        let secret = self.text(name).await?;
        let pair = [user.as_bytes(), b":", secret.expose()].concat();
        let encoded = STANDARD.encode(pair);
        let value = sensitive(&format!("Basic {encoded}"), name)?;
        self.used.push(Secret::new(encoded));
        Ok(value)
    }

    /// A secret behind a prefix, as a header value.
    pub(crate) async fn header(&mut self, prefix: &str, name: &SecretName) -> Result<HeaderValue, ToolError> {
        let secret = self.text(name).await?;
        sensitive(&format!("{prefix}{}", secret.expose_text().unwrap_or_default()), name)
    }

    /// Masks every secret in a call's output or error, in any encoding. Large results are processed on blocking
    /// threads.
    pub(crate) async fn clean<T: MaskedOutput>(&self, outcome: Result<T, ToolError>) -> Result<T, ToolError> {
        if self.used.is_empty() {
            return outcome;
        }
        let redactor = Redactor::new(&self.used);
        let mut outcome = outcome;
        let sent = outcome.as_ref().err().map_or(Sent::Maybe, |error| error.sent);
        let bytes = match &mut outcome {
            Ok(output) => output.documents().map(|document| bytes_of(document)).sum(),
            Err(error) => error.body.message.len() + error.body.details.values().map(bytes_of).sum::<usize>(),
        };
        if bytes <= REDACT_INLINE_BYTES_MAX {
            return masked(&redactor, outcome);
        }
        // What can't be masked is not given back, but it has happened.
        let masked = tokio::task::spawn_blocking(move || masked(&redactor, outcome)).await;
        masked
            .unwrap_or_else(|_| Err(failed(sent, Code::Internal, "the answer could not be looked through".to_owned())))
    }

    /// The secrets sent so far, to search for in an answer.
    pub(crate) fn sent(&self) -> SentSecrets {
        SentSecrets(self.used.clone())
    }

    /// Quotes the other side, shortened and with secrets masked.
    pub(crate) fn quote(&self, text: &str) -> String {
        // Only the beginning is quoted. A truncated secret would not be recognized, so enough is read to contain the
        // longest one.
        let longest = self.used.iter().map(|secret| secret.expose().len()).max().unwrap_or_default();
        let end = text.floor_char_boundary(REDACT_INLINE_BYTES_MAX.max(longest * SPELLED_RATIO));
        let clean = Redactor::new(&self.used).text(&text[..end]).into_owned();
        let printable = clean.chars().map(|c| if c.is_control() { ' ' } else { c });
        printable.take(ERROR_TEXT_CHARS_MAX).collect::<String>().trim().to_owned()
    }
}

/// The secrets that a request carried.
pub(crate) struct SentSecrets(Vec<Secret>);

impl SentSecrets {
    /// Whether bytes that can't be masked contain one of them, in any encoding.
    pub(crate) fn is_in(&self, bytes: &[u8]) -> bool {
        !self.0.is_empty()
            && matches!(Redactor::new(&self.0).mask_values(&String::from_utf8_lossy(bytes)), Cow::Owned(_))
    }
}

fn masked<T: MaskedOutput>(redactor: &Redactor, outcome: Result<T, ToolError>) -> Result<T, ToolError> {
    match outcome {
        Ok(mut output) => {
            output.documents().for_each(|document| redactor.mask_document_values(document));
            Ok(output)
        }
        Err(mut error) => {
            if let Cow::Owned(masked) = redactor.mask_values(&error.body.message) {
                error.body.message = masked;
            }
            error.body.details.values_mut().for_each(|detail| redactor.mask_document_values(detail));
            Err(error)
        }
    }
}

/// The approximate number of bytes to search.
fn bytes_of(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => size_of::<Value>(),
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(bytes_of).sum(),
        Value::Object(members) => members.iter().map(|(name, member)| name.len() + bytes_of(member)).sum(),
    }
}

/// The result of a successful call, and the parts of it that the other side wrote.
pub(crate) trait MaskedOutput: Send + 'static {
    fn documents(&mut self) -> impl Iterator<Item = &mut Value>;
}

impl MaskedOutput for Value {
    fn documents(&mut self) -> impl Iterator<Item = &mut Value> {
        std::iter::once(self)
    }
}

/// What a lookup found, and whether the search was complete.
impl MaskedOutput for (Option<Value>, bool) {
    fn documents(&mut self) -> impl Iterator<Item = &mut Value> {
        self.0.iter_mut()
    }
}

/// A status contains no text of the other side.
impl MaskedOutput for u16 {
    fn documents(&mut self) -> impl Iterator<Item = &mut Value> {
        std::iter::empty()
    }
}

impl MaskedOutput for () {
    fn documents(&mut self) -> impl Iterator<Item = &mut Value> {
        std::iter::empty()
    }
}

/// The secret reference in a text: the text before it, the name, the text behind it.
pub(crate) fn reference(text: &str) -> Option<(&str, Result<SecretName, ToolError>, &str)> {
    let at = text.find(SCHEME)?;
    let rest = &text[at + SCHEME.len()..];
    let inside = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_' | '.');
    let end = rest.find(|c| !inside(c)).unwrap_or(rest.len());
    let name = SecretName::new(&rest[..end]).map_err(|error| {
        ToolError::not_sent(Code::MalformedArgs, format!("invalid secret reference in a header: {error}"))
    });
    Some((&text[..at], name, &rest[end..]))
}

fn sensitive(text: &str, name: &SecretName) -> Result<HeaderValue, ToolError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| {
        not_retryable(ToolError::not_sent(
            Code::ToolUnavailable,
            format!("the secret {name} is not a valid header value"),
        ))
    })?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use async_trait::async_trait;
    use serde_json::json;
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    const SECRET: &str = "Hunter2-Hunter2";

    struct One;

    #[async_trait]
    impl Secrets for One {
        async fn resolve(&self, _: &SecretName) -> Result<Secret, SecretError> {
            Ok(Secret::new(SECRET))
        }
    }

    /// Other work does not wait for the masking.
    #[tokio::test]
    async fn what_is_large_is_masked_where_it_holds_up_nobody() {
        let mut keys = Keyring::of_process(&(Arc::new(One) as Arc<dyn Secrets>));
        keys.text(&SecretName::new("one").unwrap()).await.unwrap();
        let lines = |bytes: usize| "abcdefgh\n".repeat(bytes / 9) + SECRET;
        let context = &mut Context::from_waker(Waker::noop());
        let small = pin!(keys.clean(Ok(json!({"body": lines(1_000)})))).poll(context);
        assert!(matches!(small, Poll::Ready(Ok(output)) if output["body"].as_str().unwrap().ends_with("\n[redacted]")));
        let listed: Vec<u64> = (0..REDACT_INLINE_BYTES_MAX as u64).collect();
        let large = lines(REDACT_INLINE_BYTES_MAX + 9);
        for large in [json!({"body": large}), json!([{"a": listed}, SECRET]), json!({large: 1, "b": SECRET})] {
            let mut cleaned = pin!(keys.clean(Ok(large.clone())));
            assert!(cleaned.as_mut().poll(context).is_pending());
            let shown = cleaned.await.unwrap().to_string();
            assert!(shown.contains("[redacted]") && !shown.contains(SECRET));
            let mut failed = ToolError::not_sent(Code::Internal, "no");
            failed.body.details.insert("answer".to_owned(), large);
            let mut cleaned = pin!(keys.clean(Err::<(), _>(failed)));
            assert!(cleaned.as_mut().poll(context).is_pending());
            let shown = json!(cleaned.await.unwrap_err().body).to_string();
            assert!(shown.contains("[redacted]") && !shown.contains(SECRET));
        }
    }

    #[tokio::test]
    async fn only_the_begin_of_what_is_quoted_is_read() {
        let mut keys = Keyring::of_process(&(Arc::new(One) as Arc<dyn Secrets>));
        keys.text(&SecretName::new("one").unwrap()).await.unwrap();
        let words = keys.quote(&format!("no {SECRET} {}", "é\n".repeat(2_000_000)));
        assert!(words.starts_with("no [redacted] é é") && words.chars().count() <= ERROR_TEXT_CHARS_MAX, "{words}");
    }
}
