//! Secrets from environment variables.

use super::checked;
use async_trait::async_trait;
use chimera_core::secret::{Secret, SecretName};
use chimera_engine::port::{SecretError, Secrets};

type Lookup = dyn Fn(&str) -> Option<String> + Send + Sync;

/// One variable per secret: the prefix, then the name in capitals with `_` for `.`, `__` for `-` and `___` for `_`.
///
/// `secret://smtp.relay-2` is `CHIMERA_SECRET_SMTP_RELAY__2` with the prefix `CHIMERA_SECRET_`. No two names share a
/// variable: a name with two adjacent separators would be ambiguous, and has none.
pub struct EnvironmentSecrets {
    prefix: String,
    lookup: Box<Lookup>,
}

impl EnvironmentSecrets {
    /// Reads variables through `lookup`, which the caller provides.
    #[must_use]
    pub fn new(prefix: &str, lookup: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self { prefix: prefix.to_owned(), lookup: Box::new(lookup) }
    }

    fn variable(&self, name: &SecretName) -> Option<String> {
        let is_mark = |byte: &u8| matches!(byte, b'.' | b'-' | b'_');
        if name.as_str().as_bytes().windows(2).any(|pair| pair.iter().all(is_mark)) {
            return None;
        }
        // Underscores first: the other separators are encoded with them.
        let spelled = name.as_str().to_ascii_uppercase().replace('_', "___").replace('-', "__").replace('.', "_");
        Some(format!("{}{spelled}", self.prefix))
    }
}

#[async_trait]
impl Secrets for EnvironmentSecrets {
    async fn resolve(&self, name: &SecretName) -> Result<Secret, SecretError> {
        let value = self.variable(name).and_then(|variable| (self.lookup)(&variable));
        let value = value.ok_or_else(|| SecretError::Missing(name.clone()))?;
        checked(name, value)
    }
}
