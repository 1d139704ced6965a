//! Secrets, separated by tenant.
//!
//! The default tenant may name every configured secret, except those that belong to one tenant. Any other tenant sees
//! its own and those shared with it; all others are missing, with the same message as a secret that does not exist.

use crate::access::port::Tenancy;
use crate::port::{SecretError, Secrets};
use async_trait::async_trait;
use chimera_core::access::tenant::is_guest_secret;
use chimera_core::secret::{Secret, SecretName};
use std::sync::Arc;

/// A [`Secrets`] source that separates tenants.
pub struct TenantSecrets {
    secrets: Arc<dyn Secrets>,
    tenancy: Arc<dyn Tenancy>,
}

impl TenantSecrets {
    /// Reads from `secrets`, separated by `tenancy`.
    #[must_use]
    pub const fn new(secrets: Arc<dyn Secrets>, tenancy: Arc<dyn Tenancy>) -> Self {
        Self { secrets, tenancy }
    }
}

#[async_trait]
impl Secrets for TenantSecrets {
    async fn resolve(&self, name: &SecretName) -> Result<Secret, SecretError> {
        self.secrets.resolve(name).await
    }

    async fn resolve_for(&self, tenant: &str, name: &SecretName) -> Result<Secret, SecretError> {
        let names: Vec<SecretName> = match self.tenancy.guest(tenant) {
            None => (!is_guest_secret(name)).then(|| name.clone()).into_iter().collect(),
            Some(guest) => guest.secret_names(name).collect(),
        };
        for place in names {
            match self.secrets.resolve(&place).await {
                Err(SecretError::Missing(_)) => {}
                // Report the name that the tenant used.
                Err(SecretError::Unreadable { reason, .. }) => {
                    return Err(SecretError::Unreadable { name: name.clone(), reason });
                }
                Err(SecretError::TooLarge(_)) => return Err(SecretError::TooLarge(name.clone())),
                Ok(found) => return Ok(found),
            }
        }
        Err(SecretError::Missing(name.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimera_core::access::{Guest, SharedResources};

    struct Everything;

    #[async_trait]
    impl Secrets for Everything {
        async fn resolve(&self, name: &SecretName) -> Result<Secret, SecretError> {
            match name.as_str() {
                "smtp" | "slack.ops" | "tenants.acme.slack.ops" | "tenants.globex.smtp" => {
                    Ok(Secret::new(name.as_str()))
                }
                _ => Err(SecretError::Missing(name.clone())),
            }
        }
    }

    struct Guests;

    impl Tenancy for Guests {
        fn guest(&self, tenant: &str) -> Option<Arc<Guest>> {
            let secrets = if tenant == "acme" { vec!["slack.*".to_owned()] } else { Vec::new() };
            let guest = || {
                let shared = SharedResources { secrets, ..SharedResources::default() };
                Arc::new(Guest { id: tenant.to_owned(), slug: tenant.to_owned(), shared })
            };
            (tenant != "default").then(guest)
        }

        fn is_shared(&self) -> bool {
            true
        }
    }

    #[tokio::test]
    async fn nobody_resolves_the_secret_of_another_tenant() {
        let secrets = TenantSecrets::new(Arc::new(Everything), Arc::new(Guests));
        for (tenant, name, found) in [
            ("default", "smtp", Some("smtp")),
            ("default", "tenants.globex.smtp", None),
            ("acme", "smtp", None),
            ("acme", "slack.ops", Some("tenants.acme.slack.ops")),
            ("acme", "tenants.globex.smtp", None),
            ("globex", "smtp", Some("tenants.globex.smtp")),
            ("globex", "slack.ops", None),
            ("initech", "smtp", None),
        ] {
            let name = SecretName::new(name).unwrap();
            let value = secrets.resolve_for(tenant, &name).await;
            let missing = SecretError::Missing(name.clone());
            let value = value.map(|value| value.expose_text().unwrap().to_owned());
            assert_eq!(value, found.map(str::to_owned).ok_or(missing), "{tenant} {name}");
        }
    }
}
