//! Encryption of small secrets at rest: XChaCha20-Poly1305 under a key that is not in the store.
//!
//! A ciphertext is bound to its row: moved to another row, it does not decrypt.

use crate::secret::Secret;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use hmac::{Hmac, Mac};
use sha2::Sha256;

const NONCE_BYTES: usize = 24;

/// Encrypts a secret for the row that `place` names. The nonce must be unique.
#[must_use]
pub fn seal(key: &[u8; 32], place: &str, nonce: [u8; NONCE_BYTES], secret: &Secret) -> Option<Vec<u8>> {
    let payload = Payload { msg: secret.expose(), aad: place.as_bytes() };
    let sealed = XChaCha20Poly1305::new(key.into()).encrypt(&XNonce::from(nonce), payload).ok()?;
    Some([&nonce[..], &sealed].concat())
}

/// Decrypts a secret of this row.
#[must_use]
pub fn open(key: &[u8; 32], place: &str, sealed: &[u8]) -> Option<Secret> {
    let (nonce, sealed) = sealed.split_first_chunk::<NONCE_BYTES>()?;
    let payload = Payload { msg: sealed, aad: place.as_bytes() };
    XChaCha20Poly1305::new(key.into()).decrypt(&XNonce::from(*nonce), payload).ok().map(Secret::new)
}

/// PBKDF2 iterations.
const STRETCH_ROUNDS: u32 = 100_000;

/// Derives a key from a passphrase: PBKDF2 with HMAC-SHA256 (RFC 8018), to slow down guessing.
#[must_use]
pub fn derive_key(passphrase: &Secret, salt: &[u8]) -> Option<[u8; 32]> {
    let mac = Hmac::<Sha256>::new_from_slice(passphrase.expose()).ok()?;
    let first = mac.clone().chain_update(salt).chain_update(1_u32.to_be_bytes()).finalize().into_bytes();
    let mut key: [u8; 32] = first.into();
    let mut last = key;
    for _ in 1..STRETCH_ROUNDS {
        last = mac.clone().chain_update(last).finalize().into_bytes().into();
        key.iter_mut().zip(last).for_each(|(byte, next)| *byte ^= next);
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vectors of RFC 6070 are for SHA-1; these come from other implementations.
    #[test]
    fn a_key_is_made_as_others_make_it() {
        let key = derive_key(&Secret::new("password"), b"salt").unwrap();
        assert_eq!(hex::encode(key), "0394a2ede332c9a13eb82e9b24631604c31df978b4e2f0fbd2c549944f9d79a5");
    }

    #[test]
    fn a_box_opens_with_its_key_in_its_place_unchanged() {
        let sealed = seal(&[1; 32], "user_1:k", [9; 24], &Secret::new("hunter2")).unwrap();
        assert!(!sealed.windows(7).any(|part| part == b"hunter2"));
        assert_eq!(open(&[1; 32], "user_1:k", &sealed).unwrap().expose(), b"hunter2");
        assert!(open(&[2; 32], "user_1:k", &sealed).is_none());
        assert!(open(&[1; 32], "user_2:k", &sealed).is_none());
        for at in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[at] ^= 1;
            assert!(open(&[1; 32], "user_1:k", &damaged).is_none(), "{at}");
        }
        assert!(open(&[1; 32], "user_1:k", b"short").is_none());
    }
}
