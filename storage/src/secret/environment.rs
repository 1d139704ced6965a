//! Secrets from environment variables.

use super::checked;
use async_trait::async_trait;
use chimera_core::access::{Secret, SecretName};
use chimera_engine::port::{SecretError, Secrets};

type Lookup = dyn Fn(&str) -> Option<String> + Send + Sync;

/// A variable per secret: the prefix, then the name in capitals with `_` for `-` and `.`.
///
/// `secret://smtp.relay-2` is `CHIMERA_SECRET_SMTP_RELAY_2` behind the prefix `CHIMERA_SECRET_`.
/// Names that differ only in these marks share a variable.
pub struct EnvironmentSecrets {
    prefix: String,
    lookup: Box<Lookup>,
}

impl EnvironmentSecrets {
    /// Reads variables through `lookup`, which the process hands in.
    #[must_use]
    pub fn new(prefix: &str, lookup: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self { prefix: prefix.to_owned(), lookup: Box::new(lookup) }
    }

    fn variable(&self, name: &SecretName) -> String {
        let spelled = name.as_str().to_ascii_uppercase().replace(['-', '.'], "_");
        format!("{}{spelled}", self.prefix)
    }
}

#[async_trait]
impl Secrets for EnvironmentSecrets {
    async fn resolve(&self, name: &SecretName) -> Result<Secret, SecretError> {
        let value = (self.lookup)(&self.variable(name)).ok_or_else(|| SecretError::Missing(name.clone()))?;
        checked(name, value)
    }
}
