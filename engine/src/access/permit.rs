//! The proof that somebody may act. Every use case asks for one, and only this room makes them.
//!
//! Until the doors with their own credentials stand, there is one token, printed by `dev`: whoever
//! holds it operates the process, as `admin` or as the actor that they name.

use chimera_core::access::{ADMIN, kind_of};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::ledger::ActorType;
use chimera_core::limits::ACTOR_CHARS_MAX;
use sha2::{Digest, Sha256};

/// Somebody may act for a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permit {
    tenant: String,
    actor: String,
}

impl Permit {
    /// Of the person to whom a link was sent that is valid: whoever has read the link's row may ask.
    pub(crate) fn of_link(tenant: &str, actor: &str) -> Self {
        Self { tenant: tenant.to_owned(), actor: actor.to_owned() }
    }

    /// For whom.
    #[must_use]
    pub fn tenant(&self) -> &str {
        &self.tenant
    }

    /// Who.
    #[must_use]
    pub fn actor(&self) -> &str {
        &self.actor
    }

    /// A person or not.
    #[must_use]
    pub fn kind(&self) -> ActorType {
        kind_of(&self.actor)
    }
}

/// Admits whoever has the token.
pub struct Doorkeeper {
    tenant: String,
    token: Option<[u8; 32]>,
}

impl Doorkeeper {
    /// Admits holders of `token` to `tenant`.
    #[must_use]
    pub fn new(tenant: impl Into<String>, token: &str) -> Self {
        Self { tenant: tenant.into(), token: Some(Sha256::digest(token.as_bytes()).into()) }
    }

    /// Admits everybody: for measurements on a listener of their own.
    #[must_use]
    pub fn open(tenant: impl Into<String>) -> Self {
        Self { tenant: tenant.into(), token: None }
    }

    /// The operator at the machine itself, who can read the data folder anyway.
    #[must_use]
    pub fn operator(tenant: impl Into<String>) -> Permit {
        Permit { tenant: tenant.into(), actor: ADMIN.to_owned() }
    }

    /// Admits the holder of a token, as the actor that they name or as `admin`.
    pub fn admit(&self, token: Option<&str>, actor: Option<&str>) -> Result<Permit, ErrorBody> {
        let refused = |why: &str| ErrorBody::new(Code::Unauthenticated, why);
        if let Some(expected) = &self.token {
            let token = token.ok_or_else(|| refused("the request has no bearer token"))?;
            // Digests of equal length: comparing them tells nothing about the token.
            if <[u8; 32]>::from(Sha256::digest(token.as_bytes())) != *expected {
                return Err(refused("the bearer token is not valid"));
            }
        }
        let actor = actor.unwrap_or(ADMIN);
        let strange = |c: char| c.is_control() || c.is_whitespace();
        if !(1..=ACTOR_CHARS_MAX).contains(&actor.chars().count()) || actor.contains(strange) {
            let message = format!("an actor's name has 1 to {ACTOR_CHARS_MAX} characters, none of them a space");
            return Err(ErrorBody::new(Code::SchemaInvalid, message).with("header", "x-chimera-actor"));
        }
        Ok(Permit { tenant: self.tenant.clone(), actor: actor.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_opens_the_door() {
        let door = Doorkeeper::new("acme", "open sesame");
        assert!(door.admit(None, None).is_err());
        assert!(door.admit(Some("open sesam"), None).is_err());
        let permit = door.admit(Some("open sesame"), Some("user_ann")).unwrap();
        assert_eq!((permit.tenant(), permit.actor(), permit.kind()), ("acme", "user_ann", ActorType::Human));
        assert_eq!(door.admit(Some("open sesame"), None).unwrap().actor(), "admin");
        for name in ["", " ", "user ann", "a\nb", "user_ann ", &"x".repeat(256)] {
            let refused = door.admit(Some("open sesame"), Some(name)).unwrap_err();
            assert_eq!(refused.code, "SCHEMA_INVALID", "{name:?}");
        }
    }
}
