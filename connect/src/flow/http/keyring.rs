//! The secrets of one call: resolved when they are needed, and masked in all that comes back.
//!
//! A server may repeat what it was sent, in an error or in its answer. Only this file resolves secrets, and whoever makes a
//! [`Keyring`] gives its result back through [`Keyring::clean`]; a test of the tree says so.

use super::failure::lasting;
use super::request::Call;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chimera_core::access::{Secret, SecretName};
use chimera_core::error::Code;
use chimera_core::ledger::Redactor;
use chimera_core::limits::ERROR_TEXT_CHARS_MAX;
use chimera_engine::port::{SecretError, Secrets, ToolError};
use reqwest::header::HeaderValue;
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;

const SCHEME: &str = "secret://";

/// What was resolved for one call.
pub(crate) struct Keyring {
    secrets: Arc<dyn Secrets>,
    /// Whose secrets; none: those that the process was set up with.
    tenant: Option<String>,
    used: Vec<Secret>,
}

impl Keyring {
    /// For a call of a tool: the secrets of its tenant.
    pub(crate) fn of_call(secrets: &Arc<dyn Secrets>, call: &Call) -> Self {
        Self { secrets: Arc::clone(secrets), tenant: call.tenant.clone(), used: Vec::new() }
    }

    /// For what the configuration names.
    pub(crate) fn of_process(secrets: &Arc<dyn Secrets>) -> Self {
        Self { secrets: Arc::clone(secrets), tenant: None, used: Vec::new() }
    }

    /// The value of a secret, without the line end that files have.
    pub(crate) async fn text(&mut self, name: &SecretName) -> Result<Secret, ToolError> {
        let found = match &self.tenant {
            Some(tenant) => self.secrets.resolve_for(tenant, name).await,
            None => self.secrets.resolve(name).await,
        };
        let secret = found.map_err(|error| {
            let told = ToolError::not_sent(Code::ToolUnavailable, error.to_string());
            if matches!(error, SecretError::Unreadable { .. }) { told } else { lasting(told) }
        })?;
        let text = secret.expose_text().map(str::trim);
        let Some(text) = text.filter(|text| !text.is_empty()) else {
            let what = format!("the secret {name} holds no text");
            return Err(lasting(ToolError::not_sent(Code::ToolUnavailable, what)));
        };
        let secret = Secret::new(text);
        // Names of hosts are in lower case, and a redirect may put a secret into one.
        self.used.push(Secret::new(text.to_ascii_lowercase()));
        self.used.push(secret.clone());
        Ok(secret)
    }

    /// Masks this too: something that was made from a secret, such as a short-lived token.
    pub(crate) fn learn(&mut self, secret: Secret) {
        self.used.push(secret);
    }

    /// `user:secret` as the basic scheme writes it.
    pub(crate) async fn basic(&mut self, user: &str, name: &SecretName) -> Result<HeaderValue, ToolError> {
        let secret = self.text(name).await?;
        let pair = [user.as_bytes(), b":", secret.expose()].concat();
        let encoded = STANDARD.encode(pair);
        let value = sensitive(&format!("Basic {encoded}"), name)?;
        self.used.push(Secret::new(encoded));
        Ok(value)
    }

    /// A secret behind a prefix, as a header's value.
    pub(crate) async fn header(&mut self, prefix: &str, name: &SecretName) -> Result<HeaderValue, ToolError> {
        let secret = self.text(name).await?;
        sensitive(&format!("{prefix}{}", secret.expose_text().unwrap_or_default()), name)
    }

    /// What a call may give back: every secret in its output or in its error is masked, however it is spelled.
    pub(crate) fn clean<T: Output>(&self, told: Result<T, ToolError>) -> Result<T, ToolError> {
        if self.used.is_empty() {
            return told;
        }
        let redactor = Redactor::new(&self.used);
        match told {
            Ok(mut output) => {
                output.documents().for_each(|document| mask(&redactor, document));
                Ok(output)
            }
            Err(mut error) => {
                if let Cow::Owned(masked) = redactor.values(&error.body.message) {
                    error.body.message = masked;
                }
                error.body.details.values_mut().for_each(|detail| mask(&redactor, detail));
                Err(error)
            }
        }
    }

    /// Words of the other side, short and without anything that is or looks like a secret.
    pub(crate) fn quote(&self, text: &str) -> String {
        let clean = Redactor::new(&self.used).text(text).into_owned();
        let printable = clean.chars().map(|c| if c.is_control() { ' ' } else { c });
        printable.take(ERROR_TEXT_CHARS_MAX).collect::<String>().trim().to_owned()
    }
}

/// What a call gives back if it went well, and the parts of it that the other side wrote.
pub(crate) trait Output {
    /// Every document in it.
    fn documents(&mut self) -> impl Iterator<Item = &mut Value>;
}

impl Output for Value {
    fn documents(&mut self) -> impl Iterator<Item = &mut Value> {
        std::iter::once(self)
    }
}

/// What a lookup found, and whether it saw everything.
impl Output for (Option<Value>, bool) {
    fn documents(&mut self) -> impl Iterator<Item = &mut Value> {
        self.0.iter_mut()
    }
}

/// A status: no words of the other side.
impl Output for u16 {
    fn documents(&mut self) -> impl Iterator<Item = &mut Value> {
        std::iter::empty()
    }
}

/// Nothing at all.
impl Output for () {
    fn documents(&mut self) -> impl Iterator<Item = &mut Value> {
        std::iter::empty()
    }
}

fn mask(redactor: &Redactor, value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(masked) = redactor.values(text) {
                *text = masked;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| mask(redactor, item)),
        Value::Object(members) => {
            members.values_mut().for_each(|member| mask(redactor, member));
            if members.keys().any(|name| matches!(redactor.values(name), Cow::Owned(_))) {
                let renamed = std::mem::take(members).into_iter();
                *members = renamed.map(|(name, member)| (redactor.values(&name).into_owned(), member)).collect();
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The reference to a secret within a text: what stands before, the name, what stands behind.
pub(super) fn reference(text: &str) -> Option<(&str, Result<SecretName, ToolError>, &str)> {
    let at = text.find(SCHEME)?;
    let rest = &text[at + SCHEME.len()..];
    let inside = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_' | '.');
    let end = rest.find(|c| !inside(c)).unwrap_or(rest.len());
    let name = SecretName::new(&rest[..end])
        .map_err(|error| ToolError::not_sent(Code::MalformedArgs, format!("a header: {error}")));
    Some((&text[..at], name, &rest[end..]))
}

fn sensitive(text: &str, name: &SecretName) -> Result<HeaderValue, ToolError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| {
        lasting(ToolError::not_sent(Code::ToolUnavailable, format!("the secret {name} can't stand in a header")))
    })?;
    value.set_sensitive(true);
    Ok(value)
}
