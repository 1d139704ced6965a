//! Whose signatures count on a request, and with which key a signature was made.

use super::signature::{ED25519, SignatureError, text};
use super::signing_key::{SigningKey, SigningKeyStanding};
use crate::time::Timestamp;
use sfv::{InnerList, ListEntry};
use std::sync::Arc;

/// Whose signatures count.
#[derive(Clone, Copy, Debug)]
pub struct ExpectedSigner<'a> {
    /// The `keyid` of signatures with its HMAC key.
    pub actor: &'a str,
    /// Its signing keys, also those that are no longer valid: the request could be replayed with what it is signed with.
    pub signing_keys: &'a [Arc<SigningKey>],
}

/// The key that a signature names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamedKey {
    /// One of the actor's HMAC keys.
    Hmac,
    Signing(Arc<SigningKey>),
}

/// Why none of the keys counts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnusableKey {
    #[error("no signature has the keyid {0:?} (the actor of the token) or that of a signing key of this actor")]
    NoMatch(String),
    /// The signing key is not valid now.
    #[error("the signing key {kid} is {}", standing.as_str().replace('_', " "))]
    NotValid { kid: String, standing: SigningKeyStanding },
}

impl UnusableKey {
    pub(super) const fn reason(&self) -> &'static str {
        match self {
            Self::NoMatch(_) => "keyid",
            Self::NotValid { standing: SigningKeyStanding::Revoked, .. } => "key_revoked",
            Self::NotValid { standing: SigningKeyStanding::NotYetValid, .. } => "key_not_yet_valid",
            Self::NotValid { .. } => "key_expired",
        }
    }
}

impl NamedKey {
    /// Which of the actor's HMAC keys are valid is the caller's to say.
    pub(super) fn check_valid(&self, now: Timestamp) -> Result<(), SignatureError> {
        match self {
            Self::Signing(key) if !key.is_valid(now) => {
                Err(UnusableKey::NotValid { kid: key.kid.clone(), standing: key.standing(now) }.into())
            }
            _ => Ok(()),
        }
    }
}

impl ExpectedSigner<'_> {
    /// The covered components of a signature by this signer, and its key.
    pub(super) fn covered_list<'a>(&self, entry: &'a ListEntry) -> Option<(NamedKey, &'a InnerList)> {
        let ListEntry::InnerList(list) = entry else { return None };
        let keyid = text(list, "keyid")?;
        // An actor may have the name of a key.
        if keyid == self.actor && text(list, "alg") != Some(ED25519) {
            return Some((NamedKey::Hmac, list));
        }
        match self.signing_keys.iter().find(|key| key.kid == keyid) {
            Some(key) => Some((NamedKey::Signing(Arc::clone(key)), list)),
            None => (keyid == self.actor).then_some((NamedKey::Hmac, list)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Ed25519PrivateKey;
    use super::super::signature::{RequestParts, Signed, UnverifiedSignature};
    use super::super::tables::SigningKeyRow;
    use super::*;
    use crate::secret::Secret;

    const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);
    const BODY: &[u8] = b"{}";

    fn private(seed: u8) -> Ed25519PrivateKey {
        Ed25519PrivateKey::from_seed(&[seed; 32])
    }

    fn key(seed: u8) -> SigningKey {
        let public = private(seed).public();
        let row = SigningKeyRow {
            kid: public.kid(),
            tenant_id: "acme".to_owned(),
            actor: "user_ann".to_owned(),
            public_key: public.to_bytes(),
            label: None,
            created_at: NOW,
            created_by: "user_ann".to_owned(),
            not_before: NOW,
            expires_at: None,
            revoked_at: None,
            revoked_by: None,
            reason: None,
        };
        SigningKey::from_row(row, None).unwrap()
    }

    fn parts<'a>(fields: &'a [(String, String)], method: &'a str) -> RequestParts<'a> {
        let (scheme, authority, path, query) = ("http", "h", "/runs/7/approve", None);
        RequestParts { method, scheme, authority, path, prefix: "", query, fields, body: BODY }
    }

    fn headers(signed: &Signed) -> Vec<(String, String)> {
        signed.headers().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn signed(seed: u8) -> Signed {
        Signed::with_private_key(&parts(&[], "POST"), &private(seed), 1_700_000_000, "n").unwrap()
    }

    fn verify(fields: &[(String, String)], method: &str, keys: &[Arc<SigningKey>]) -> Result<(), SignatureError> {
        let signer = ExpectedSigner { actor: "user_ann", signing_keys: keys };
        let parts = parts(fields, method);
        UnverifiedSignature::check_head(&parts, &signer)?;
        let found = UnverifiedSignature::parse(&parts, &signer)?;
        found[0].verify([&Secret::new("key")], NOW)
    }

    #[test]
    fn a_signing_key_of_the_actor_signs_like_its_hmac_key() {
        let keys = [Arc::new(key(1)), Arc::new(key(2))];
        let fields = headers(&signed(2));
        assert_eq!(verify(&fields, "POST", &keys), Ok(()));
        assert_eq!(verify(&fields, "PUT", &keys), Err(SignatureError::Mismatch));
        let unknown = Err(UnusableKey::NoMatch("user_ann".to_owned()).into());
        assert_eq!(verify(&fields, "POST", &keys[..1]), unknown);
        let hmac = Signed::new(&parts(&[], "POST"), "user_ann", &Secret::new("key"), 1_700_000_000, "n").unwrap();
        assert_eq!(verify(&headers(&hmac), "POST", &keys), Ok(()));
    }

    #[test]
    fn a_key_that_is_not_valid_now_is_named() {
        let signed = headers(&signed(1));
        let with = |change: &dyn Fn(&mut SigningKey)| {
            let mut key = key(1);
            change(&mut key);
            verify(&signed, "POST", &[Arc::new(key)]).unwrap_err()
        };
        let revocation = || super::super::Revocation { at: NOW, by: "admin".to_owned(), reason: None };
        let revoked = with(&|key| key.revocation = Some(revocation()));
        let expired = with(&|key| key.expires_at = Some(NOW));
        let early = with(&|key| key.not_before = NOW.plus_seconds(1));
        let reasons = [&revoked, &expired, &early].map(SignatureError::reason);
        assert_eq!(reasons, ["key_revoked", "key_expired", "key_not_yet_valid"]);
        assert_eq!(revoked, UnusableKey::NotValid { kid: key(1).kid, standing: SigningKeyStanding::Revoked }.into());
        assert_eq!(early.to_string(), format!("the signing key {} is not yet valid", key(1).kid));
    }

    #[test]
    fn the_key_determines_the_algorithm() {
        let keys = [Arc::new(key(1))];
        let with_input = |change: &dyn Fn(String) -> String| {
            let mut fields = headers(&signed(1));
            fields[1].1 = change(fields[1].1.clone());
            verify(&fields, "POST", &keys)
        };
        let not_ed25519 = Err(SignatureError::Parameter("alg", "is not ed25519"));
        assert_eq!(with_input(&|input| input.replace("\"ed25519\"", "\"hmac-sha256\"")), not_ed25519);
        // Another parameter list is another signature base.
        let without = with_input(&|input| input.replace(";alg=\"ed25519\"", ""));
        assert_eq!(without, Err(SignatureError::Mismatch));
        let of_actor = with_input(&|input| input.replace(&keys[0].kid, "user_ann"));
        assert_eq!(of_actor, Err(SignatureError::Parameter("alg", "is not hmac-sha256")));
        // With the public key as the secret of an HMAC, nothing is signed.
        let public = Secret::new(private(1).public().to_bytes().to_vec());
        let forged = Signed::new(&parts(&[], "POST"), &keys[0].kid, &public, 1_700_000_000, "n").unwrap();
        assert_eq!(verify(&headers(&forged), "POST", &keys), not_ed25519);
    }

    #[test]
    fn an_actor_named_like_a_key_has_both() {
        let keys = [Arc::new(key(1))];
        let signer = ExpectedSigner { actor: &keys[0].kid, signing_keys: &keys };
        let hmac = Signed::new(&parts(&[], "POST"), &keys[0].kid, &Secret::new("key"), 1_700_000_000, "n").unwrap();
        for signed in [hmac, signed(1)] {
            let fields = headers(&signed);
            let found = UnverifiedSignature::parse(&parts(&fields, "POST"), &signer).unwrap();
            assert_eq!(found[0].verify([&Secret::new("key")], NOW), Ok(()));
        }
    }
}
