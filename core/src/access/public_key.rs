//! Ed25519 public keys: reading them, their id, and strict verification.
//!
//! A key is only accepted in its one canonical form and with a point of prime order. With other points one signature
//! fits several messages or keys, or libraries disagree about it. For the same reason a signature is verified strictly:
//! `S` is reduced, and neither point has a small order.
//!
//! The id of a key is its JWK thumbprint (RFC 7638), so nobody can choose it.

use super::pem;
use crate::limits::KEY_TEXT_BYTES_MAX;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use ed25519_dalek::{Signature, VerifyingKey};
use sha2::{Digest as _, Sha256};
use std::fmt;
use uuid::Uuid;

/// The start of a SubjectPublicKeyInfo document of an Ed25519 key (RFC 8410). The key is the rest.
const SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// Why a text or bytes are not a public key that is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPublicKey {
    #[error(
        "the public key can't be read: give 32 bytes in Base64, the `x` of a JWK, or a PEM document with `BEGIN PUBLIC KEY`"
    )]
    Unreadable,
    #[error("this is a private key: keep it, and give the public key; consider the private key exposed")]
    Private,
    #[error("the public key is not an Ed25519 key")]
    OtherAlgorithm,
    #[error("a public key has 32 bytes, and this one has {0}")]
    Length(usize),
    #[error("the public key is not a point of the curve")]
    NotAPoint,
    #[error("the public key is not encoded canonically")]
    NotCanonical,
    #[error("the public key is a point of small order")]
    SmallOrder,
    #[error("the public key is not a point of prime order")]
    MixedOrder,
}

/// An Ed25519 public key that is canonical and not of small order.
#[derive(Clone, PartialEq, Eq)]
pub struct Ed25519PublicKey(VerifyingKey);

impl Ed25519PublicKey {
    /// Reads a key of the store: one that was accepted before.
    pub fn from_bytes(bytes: &[u8; 32]) -> Result<Self, InvalidPublicKey> {
        let key = VerifyingKey::from_bytes(bytes).map_err(|_| InvalidPublicKey::NotAPoint)?;
        if key.to_edwards().compress().as_bytes() != bytes {
            return Err(InvalidPublicKey::NotCanonical);
        }
        if key.is_weak() {
            return Err(InvalidPublicKey::SmallOrder);
        }
        Ok(Self(key))
    }

    /// Reads a new key: Base64 or URL-safe Base64 of its bytes, or a PEM document.
    pub fn parse(text: &str) -> Result<Self, InvalidPublicKey> {
        let text = text.trim();
        if text.len() > KEY_TEXT_BYTES_MAX {
            return Err(InvalidPublicKey::Unreadable);
        }
        let bytes = if text.starts_with("-----") { from_pem(text)? } else { from_base64(text)? };
        let bytes: [u8; 32] = bytes.as_slice().try_into().map_err(|_| InvalidPublicKey::Length(bytes.len()))?;
        let key = Self::from_bytes(&bytes)?;
        if key.0.to_edwards().is_torsion_free() { Ok(key) } else { Err(InvalidPublicKey::MixedOrder) }
    }

    pub(super) const fn of(key: VerifyingKey) -> Self {
        Self(key)
    }

    #[must_use]
    pub fn to_bytes(&self) -> [u8; 32] {
        self.0.to_bytes()
    }

    /// The member `x` of the key as a JWK.
    #[must_use]
    pub fn x(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0.as_bytes())
    }

    /// The key as a PEM document.
    #[must_use]
    pub fn to_pem(&self) -> String {
        pem::write("PUBLIC KEY", &[&SPKI_PREFIX[..], self.0.as_bytes()].concat())
    }

    /// The id of the key: the thumbprint of its JWK.
    #[must_use]
    pub fn kid(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.thumbprint())
    }

    /// The key among what an actor may prove its identity with. The start of the thumbprint.
    #[must_use]
    pub fn credential_id(&self) -> Uuid {
        let thumbprint = self.thumbprint();
        Uuid::from_bytes(std::array::from_fn(|at| thumbprint[at]))
    }

    fn thumbprint(&self) -> [u8; 32] {
        Sha256::digest(format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{}"}}"#, self.x())).into()
    }

    /// Whether `signature` is this key's over `message`, in the one form that a signer produces.
    #[must_use]
    pub fn verify_strict(&self, message: &[u8], signature: &[u8]) -> bool {
        Signature::from_slice(signature).is_ok_and(|signature| self.0.verify_strict(message, &signature).is_ok())
    }
}

impl fmt::Debug for Ed25519PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ed25519PublicKey({})", self.kid())
    }
}

/// Whether a text has the form of a key id.
#[must_use]
pub fn is_kid(text: &str) -> bool {
    text.len() == 43 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

fn from_pem(text: &str) -> Result<Vec<u8>, InvalidPublicKey> {
    let (label, document) = pem::read(text).ok_or(InvalidPublicKey::Unreadable)?;
    match label {
        "PUBLIC KEY" => {}
        label if label.ends_with("PRIVATE KEY") => return Err(InvalidPublicKey::Private),
        _ => return Err(InvalidPublicKey::Unreadable),
    }
    match document.strip_prefix(&SPKI_PREFIX) {
        Some(key) => Ok(key.to_vec()),
        None => Err(InvalidPublicKey::OtherAlgorithm),
    }
}

fn from_base64(text: &str) -> Result<Vec<u8>, InvalidPublicKey> {
    let alphabets = [&URL_SAFE_NO_PAD, &STANDARD_NO_PAD, &STANDARD];
    alphabets.iter().find_map(|alphabet| alphabet.decode(text).ok()).ok_or(InvalidPublicKey::Unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8037, A.2 and A.3
    const X: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

    #[test]
    fn the_id_is_the_thumbprint_of_the_standard() {
        let key = Ed25519PublicKey::parse(X).unwrap();
        assert_eq!(key.kid(), "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
        assert!(is_kid(&key.kid()) && !is_kid("user_ann") && !is_kid(&format!("{} ", &key.kid()[1..])));
        assert_eq!(&key.credential_id().as_bytes()[..], &URL_SAFE_NO_PAD.decode(key.kid()).unwrap()[..16]);
    }

    #[test]
    fn every_spelling_is_the_same_key() {
        let key = Ed25519PublicKey::parse(X).unwrap();
        let standard = STANDARD.encode(key.to_bytes());
        // RFC 8410, 10.1 has another key; this is the document that OpenSSL makes of this one.
        let pem = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n\
                   -----END PUBLIC KEY-----\n";
        assert_eq!(key.to_pem(), pem);
        for text in [X, &standard, standard.trim_end_matches('='), &format!(" {X}\n"), pem, &pem.replace('\n', "\r\n")]
        {
            assert_eq!(Ed25519PublicKey::parse(text).as_ref(), Ok(&key), "{text}");
        }
        assert_eq!(Ed25519PublicKey::from_bytes(&key.to_bytes()), Ok(key));
    }

    #[test]
    fn what_is_no_public_key_is_refused_with_the_reason() {
        let private = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
                       -----END PRIVATE KEY-----";
        let of_an_ecdsa_key =
            "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE\n-----END PUBLIC KEY-----";
        let cut = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA11qYAYKxCrfVS/7T\n-----END PUBLIC KEY-----";
        let long = "A".repeat(KEY_TEXT_BYTES_MAX + 1);
        let cases = [
            ("", InvalidPublicKey::Length(0)),
            ("AAAA", InvalidPublicKey::Length(3)),
            ("not base64!", InvalidPublicKey::Unreadable),
            // The last digit has bits that the key does not.
            (&X.replace("URo", "URp"), InvalidPublicKey::Unreadable),
            (&hex::encode([7; 32]), InvalidPublicKey::Length(48)),
            (&long, InvalidPublicKey::Unreadable),
            (private, InvalidPublicKey::Private),
            (of_an_ecdsa_key, InvalidPublicKey::OtherAlgorithm),
            (cut, InvalidPublicKey::Length(12)),
            ("-----BEGIN PUBLIC KEY-----", InvalidPublicKey::Unreadable),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----", InvalidPublicKey::Unreadable),
        ];
        for (text, wrong) in cases {
            assert_eq!(Ed25519PublicKey::parse(text), Err(wrong), "{text}");
        }
    }
}
