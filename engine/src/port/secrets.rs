//! Secrets: values looked up by name.

use async_trait::async_trait;
use chimera_core::limits::SECRET_BYTES_MAX;
use chimera_core::secret::{Secret, SecretName};

/// Resolves secrets at the moment of use.
///
/// **Fresh.** Every call reads the source again, so a rotated secret takes effect without a restart. Callers keep a
/// value no longer than they need it.
/// **Quiet.** No error, log line or metric contains a value or a location; errors contain the name.
#[async_trait]
pub trait Secrets: Send + Sync {
    /// The current value. A secret that no source has is `Missing`. A source that has it but can't be read is
    /// `Unreadable`, and no weaker source is tried instead.
    async fn resolve(&self, name: &SecretName) -> Result<Secret, SecretError>;

    /// The current value for a tenant: its own, or one shared with it; any other is `Missing`. A plain source knows no
    /// tenants and treats all alike; `TenantSecrets` separates them.
    async fn resolve_for(&self, _tenant: &str, name: &SecretName) -> Result<Secret, SecretError> {
        self.resolve(name).await
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    #[error("the secret {0} is not set")]
    Missing(SecretName),
    #[error("the secret {name} can't be read: {reason}")]
    Unreadable {
        name: SecretName,
        /// No path, no value.
        reason: String,
    },
    #[error("the secret {0} is larger than {SECRET_BYTES_MAX} bytes")]
    TooLarge(SecretName),
}
