//! Signing keys: Ed25519 keys that belong to an actor.

use super::public_key::{Ed25519PublicKey, InvalidPublicKey};
use super::tables::SigningKeyRow;
use crate::time::Timestamp;
use crate::words::words;

words! {
    /// What a key counts as at a moment.
    SigningKeyStanding {
        Valid = "valid",
        /// Somebody revoked it. It never counts again.
        Revoked = "revoked",
        /// Its validity period has not begun.
        NotYetValid = "not_yet_valid",
        Expired = "expired",
    }
}

/// Why the row of a key can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DamagedSigningKey {
    #[error(transparent)]
    PublicKey(#[from] InvalidPublicKey),
    #[error("the id is not that of the public key")]
    Kid,
}

/// A public key of an actor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SigningKey {
    pub kid: String,
    pub tenant: String,
    pub actor: String,
    pub public: Ed25519PublicKey,
    pub label: Option<String>,
    pub created_at: Timestamp,
    pub created_by: String,
    pub not_before: Timestamp,
    /// The first moment at which it is no longer valid.
    pub expires_at: Option<Timestamp>,
    pub revocation: Option<Revocation>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocation {
    pub at: Timestamp,
    pub by: String,
    pub reason: Option<String>,
}

impl SigningKey {
    /// The key of a row. `known` is the key as it was read before: its point need not be computed again.
    pub fn from_row(row: SigningKeyRow, known: Option<&Self>) -> Result<Self, DamagedSigningKey> {
        let known = known.filter(|known| known.kid == row.kid && known.public.to_bytes() == row.public_key);
        let public = match known {
            Some(known) => known.public.clone(),
            None => Ed25519PublicKey::from_bytes(&row.public_key)?,
        };
        if known.is_none() && public.kid() != row.kid {
            return Err(DamagedSigningKey::Kid);
        }
        let (by, reason) = (row.revoked_by.unwrap_or_default(), row.reason);
        Ok(Self {
            kid: row.kid,
            tenant: row.tenant_id,
            actor: row.actor,
            public,
            label: row.label,
            created_at: row.created_at,
            created_by: row.created_by,
            not_before: row.not_before,
            expires_at: row.expires_at,
            revocation: row.revoked_at.map(|at| Revocation { at, by, reason }),
        })
    }

    /// A revoked key stays revoked, also when the clock is set back.
    #[must_use]
    pub fn standing(&self, now: Timestamp) -> SigningKeyStanding {
        match () {
            () if self.revocation.is_some() => SigningKeyStanding::Revoked,
            () if self.expires_at.is_some_and(|expires_at| expires_at <= now) => SigningKeyStanding::Expired,
            () if now < self.not_before => SigningKeyStanding::NotYetValid,
            () => SigningKeyStanding::Valid,
        }
    }

    #[must_use]
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.standing(now) == SigningKeyStanding::Valid
    }

    /// Whether it is valid or will be.
    #[must_use]
    pub fn is_usable(&self, now: Timestamp) -> bool {
        matches!(self.standing(now), SigningKeyStanding::Valid | SigningKeyStanding::NotYetValid)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Ed25519PrivateKey;
    use super::*;

    fn row() -> SigningKeyRow {
        let public = Ed25519PrivateKey::from_seed(&[1; 32]).public();
        SigningKeyRow {
            kid: public.kid(),
            tenant_id: "acme".to_owned(),
            actor: "user_ann".to_owned(),
            public_key: public.to_bytes(),
            label: None,
            created_at: at(10),
            created_by: "admin".to_owned(),
            not_before: at(10),
            expires_at: Some(at(20)),
            revoked_at: None,
            revoked_by: None,
            reason: None,
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn a_key_is_valid_from_its_first_moment_to_before_its_last() {
        let key = SigningKey::from_row(row(), None).unwrap();
        let standing = |seconds| key.standing(at(seconds)).as_str();
        assert_eq!([9, 10, 19, 20].map(standing), ["not_yet_valid", "valid", "valid", "expired"]);
        let endless = SigningKey { expires_at: None, ..key.clone() };
        assert!(endless.is_valid(at(1_000_000)) && endless.is_usable(at(0)) && !endless.is_valid(at(0)));
        assert!(!key.is_usable(at(20)));
    }

    #[test]
    fn a_revoked_key_is_never_valid_again() {
        let revoked = SigningKeyRow { revoked_at: Some(at(15)), revoked_by: Some("admin".to_owned()), ..row() };
        let key = SigningKey::from_row(revoked, None).unwrap();
        assert!([0, 14, 15, 19, 20].into_iter().all(|now| key.standing(at(now)) == SigningKeyStanding::Revoked));
        assert_eq!(key.revocation.unwrap().by, "admin");
    }

    #[test]
    fn a_damaged_row_is_no_key() {
        let read = |row: SigningKeyRow| SigningKey::from_row(row, None).unwrap_err();
        assert_eq!(read(SigningKeyRow { kid: "x".repeat(43), ..row() }), DamagedSigningKey::Kid);
        let other = Ed25519PrivateKey::from_seed(&[2; 32]).public();
        assert_eq!(read(SigningKeyRow { public_key: other.to_bytes(), ..row() }), DamagedSigningKey::Kid);
        let weak = read(SigningKeyRow { public_key: [0; 32], ..row() });
        assert_eq!(weak, DamagedSigningKey::PublicKey(InvalidPublicKey::SmallOrder));
        // What was read before is not trusted for another row.
        let known = SigningKey::from_row(row(), None).unwrap();
        let changed = SigningKeyRow { public_key: other.to_bytes(), ..row() };
        assert_eq!(SigningKey::from_row(changed, Some(&known)), Err(DamagedSigningKey::Kid));
        let later = SigningKeyRow { expires_at: Some(at(30)), ..row() };
        assert_eq!(SigningKey::from_row(later, Some(&known)).unwrap().expires_at, Some(at(30)));
    }
}
