//! Request signatures: HMAC-SHA256 over the raw bytes of a body, as lower-case hex.

use crate::secret::Secret;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// Block size of SHA-256.
const BLOCK: usize = 64;

/// Signs a body.
#[must_use]
pub fn sign(key: &Secret, body: &[u8]) -> String {
    hex::encode(bytes(key, body))
}

/// Signs a body; returns the raw bytes.
#[must_use]
pub fn bytes(key: &Secret, body: &[u8]) -> [u8; 32] {
    new_mac(key).chain_update(body).finalize().into_bytes().into()
}

/// The keyed HMAC. HMAC starts by padding the key to a block; done here, construction cannot fail.
fn new_mac(key: &Secret) -> Hmac<Sha256> {
    let mut block = [0_u8; BLOCK];
    let hashed;
    let bytes = if key.expose().len() > BLOCK {
        hashed = Sha256::digest(key.expose());
        hashed.as_slice()
    } else {
        key.expose()
    };
    block[..bytes.len()].copy_from_slice(bytes);
    Hmac::new(&block.into())
}

/// Whether one of the keys made this signature. Every key is tried and compared in constant time, so timing reveals
/// nothing.
#[must_use]
pub fn verify<'a>(keys: impl IntoIterator<Item = &'a Secret>, body: &[u8], signature: &str) -> bool {
    let mut presented = [0_u8; 32];
    let read = is_well_formed(signature) && hex::decode_to_slice(signature, &mut presented).is_ok();
    verify_bytes(keys, body, &presented) & read
}

/// Whether a text has the form of a signature: 64 lower-case hex digits.
#[must_use]
pub fn is_well_formed(signature: &str) -> bool {
    signature.len() == 64 && signature.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Like [`verify`], for a raw signature.
#[must_use]
pub fn verify_bytes<'a>(keys: impl IntoIterator<Item = &'a Secret>, body: &[u8], signature: &[u8]) -> bool {
    keys.into_iter().fold(false, |signed, key| signed | new_mac(key).chain_update(body).verify_slice(signature).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CORE-097, CORE-105
    #[test]
    fn the_signature_is_the_lower_case_hex_of_hmac_sha256_over_the_raw_bytes() {
        // RFC 4231, test case 2.
        let key = Secret::new("Jefe");
        let body = b"what do ya want for nothing?";
        let signature = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(sign(&key, body), signature);
        assert!(verify([&key], body, signature));
        assert!(!verify([&key], b"what do ya want for nothing? ", signature));
        assert!(!verify([&key], body, &signature.to_uppercase()));
    }

    /// CORE-106
    #[test]
    fn signatures_of_any_length_are_refused_unless_they_fit() {
        let key = Secret::new("k");
        let right = sign(&key, b"x");
        for wrong in ["", "0", &right[..63], &format!("{right}0"), &"0".repeat(64), &"é".repeat(32), &"g".repeat(64)] {
            assert!(!verify([&key], b"x", wrong), "{wrong}");
        }
        assert!(!verify([], b"x", &right));
        // Timing cannot be measured reliably here, so this checks the source: it must use the constant-time comparison
        // of the library and must not stop at the first key that matches.
        let (code, _) = include_str!("mac.rs").split_once("#[cfg(test)]").unwrap();
        let compared = code.split_once("pub fn verify_bytes").unwrap().1;
        assert!(compared.contains(".verify_slice(signature)") && compared.contains("signed |"), "{compared}");
        assert!(!["==", "||", ".any(", ".find("].iter().any(|early| compared.contains(early)), "{compared}");
    }

    /// CORE-109
    #[test]
    fn keys_overlap_while_one_replaces_the_other() {
        let (old, new) = (Secret::new("old"), Secret::new("new"));
        let signature = sign(&old, b"x");
        assert!(verify([&new, &old], b"x", &signature));
        assert!(!verify([&new], b"x", &signature));
    }
}
