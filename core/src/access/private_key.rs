//! Ed25519 private keys, as clients use them. The server never sees one.

use super::pem;
use super::public_key::Ed25519PublicKey;
use crate::limits::KEY_TEXT_BYTES_MAX;
use ed25519_dalek::{Signer as _, SigningKey};
use zeroize::Zeroizing;

/// The start of a PKCS 8 document of an Ed25519 key (RFC 8410). The seed is the rest.
const PKCS8_PREFIX: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the file has no Ed25519 private key: it must be a PEM document with `BEGIN PRIVATE KEY` (PKCS#8, not encrypted)"
)]
pub struct InvalidPrivateKey;

/// An Ed25519 private key.
pub struct Ed25519PrivateKey(SigningKey);

impl Ed25519PrivateKey {
    /// The key of 32 random bytes.
    #[must_use]
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    /// A new key. `fill` draws random bytes.
    pub fn generate(fill: impl FnOnce(&mut [u8])) -> Self {
        let mut seed = Zeroizing::new([0; 32]);
        fill(&mut *seed);
        Self::from_seed(&seed)
    }

    /// Reads a PKCS 8 document, as `chimera key generate` and OpenSSL write it.
    pub fn parse(text: &str) -> Result<Self, InvalidPrivateKey> {
        if text.len() > KEY_TEXT_BYTES_MAX {
            return Err(InvalidPrivateKey);
        }
        let (label, document) = pem::read(text).ok_or(InvalidPrivateKey)?;
        let document = Zeroizing::new(document);
        let seed = document.strip_prefix(&PKCS8_PREFIX).filter(|_| label == "PRIVATE KEY").ok_or(InvalidPrivateKey)?;
        seed.try_into().map(Self::from_seed).map_err(|_| InvalidPrivateKey)
    }

    /// The key as a PKCS 8 document.
    #[must_use]
    pub fn to_pem(&self) -> Zeroizing<String> {
        let document = Zeroizing::new([&PKCS8_PREFIX[..], self.0.as_bytes()].concat());
        Zeroizing::new(pem::write("PRIVATE KEY", &document))
    }

    #[must_use]
    pub fn public(&self) -> Ed25519PublicKey {
        Ed25519PublicKey::of(self.0.verifying_key())
    }

    #[must_use]
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign(message).to_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8410, 10.3
    const OF_THE_STANDARD: &str = "-----BEGIN PRIVATE KEY-----\n\
        MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n-----END PRIVATE KEY-----\n";

    #[test]
    fn the_key_of_the_standard_is_read_and_written() {
        let key = Ed25519PrivateKey::parse(OF_THE_STANDARD).unwrap();
        assert_eq!(*key.to_pem(), OF_THE_STANDARD);
        // RFC 8410, 10.1
        let public = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n\
                      -----END PUBLIC KEY-----\n";
        assert_eq!(key.public().to_pem(), public);
        assert_eq!(Ed25519PublicKey::parse(public), Ok(key.public()));
        assert!(key.public().verify_strict(b"x", &key.sign(b"x")));
    }

    #[test]
    fn anything_else_is_refused() {
        let public = Ed25519PrivateKey::from_seed(&[1; 32]).public().to_pem();
        let encrypted = OF_THE_STANDARD.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
        for text in ["", public.as_str(), encrypted.as_str(), &OF_THE_STANDARD.replace("VhC", "Vg")] {
            assert!(Ed25519PrivateKey::parse(text).is_err(), "{text}");
        }
    }
}
