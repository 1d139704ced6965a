//! Secrets: values behind names.

use async_trait::async_trait;
use chimera_core::limits::SECRET_BYTES_MAX;
use chimera_core::secret::{Secret, SecretName};

/// Finds the value of a secret, at the moment it is used.
///
/// **Fresh.** Every call reads the source again, so that a rotated secret is used without a
/// restart. Callers keep a value no longer than they need it.
/// **Quiet.** No error, log line or metric carries a value or a place; errors carry the name.
#[async_trait]
pub trait Secrets: Send + Sync {
    /// The current value. A secret that no source has is `Missing`; a source that has it but
    /// can't be read is `Unreadable`, and is not passed over in favour of a weaker source.
    async fn resolve(&self, name: &SecretName) -> Result<Secret, SecretError>;

    /// The current value for a tenant: its own, or one that is shared with it; any other is `Missing`. A source
    /// by itself knows no tenants and answers all alike; `TenantSecrets` keeps them apart.
    async fn resolve_for(&self, _tenant: &str, name: &SecretName) -> Result<Secret, SecretError> {
        self.resolve(name).await
    }
}

/// Why a secret has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// No source has it.
    #[error("the secret {0} is not set")]
    Missing(SecretName),
    /// Its source can't be read.
    #[error("the secret {name} can't be read: {reason}")]
    Unreadable {
        /// Which.
        name: SecretName,
        /// Why: no path, no value.
        reason: String,
    },
    /// Its value is beyond the limit.
    #[error("the secret {0} is larger than {SECRET_BYTES_MAX} bytes")]
    TooLarge(SecretName),
}
