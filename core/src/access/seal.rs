//! Small secrets at rest: sealed with XChaCha20-Poly1305 under a key that is not in the store.
//!
//! A box is bound to the row it lies in: moved to another row it does not open.

use super::Secret;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

const NONCE_BYTES: usize = 24;

/// Seals a secret for the row that `place` names, with a nonce that is used once.
#[must_use]
pub fn seal(key: &[u8; 32], place: &str, nonce: [u8; NONCE_BYTES], secret: &Secret) -> Option<Vec<u8>> {
    let payload = Payload { msg: secret.expose(), aad: place.as_bytes() };
    let sealed = XChaCha20Poly1305::new(key.into()).encrypt(&XNonce::from(nonce), payload).ok()?;
    Some([&nonce[..], &sealed].concat())
}

/// Opens what was sealed for this row with this key.
#[must_use]
pub fn open(key: &[u8; 32], place: &str, sealed: &[u8]) -> Option<Secret> {
    let (nonce, sealed) = sealed.split_first_chunk::<NONCE_BYTES>()?;
    let payload = Payload { msg: sealed, aad: place.as_bytes() };
    XChaCha20Poly1305::new(key.into()).decrypt(&XNonce::from(*nonce), payload).ok().map(Secret::new)
}

#[cfg(test)]
mod tests {
    use super::*;

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
