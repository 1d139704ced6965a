//! Webhook signatures as defined by Standard Webhooks.
//!
//! The signed content is `id.timestamp.payload`. A key is `whsec_…` (HMAC-SHA256, version `v1`) or `whsk_…` (Ed25519,
//! version `v1a`). Several keys, separated by spaces, give several signatures, so that a receiver can rotate keys.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chimera_core::secret::Secret;
use ed25519_dalek::{Signer, SigningKey};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Allowed length of a shared key.
const SHARED_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// An invalid signing key. The error doesn't show the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a webhook key; expected whsec_ and 24 to 64 bytes in base64, or whsk_ and an Ed25519 key")]
pub struct InvalidWebhookKey;

/// The value of `webhook-signature` for one message, one signature per key.
pub fn sign(keys: &str, id: &str, timestamp: i64, payload: &[u8]) -> Result<String, InvalidWebhookKey> {
    let signed = [id.as_bytes(), b".", timestamp.to_string().as_bytes(), b".", payload].concat();
    let signatures = keys.split_whitespace().map(|key| signature(key, &signed)).collect::<Result<Vec<_>, _>>()?;
    if signatures.is_empty() { Err(InvalidWebhookKey) } else { Ok(signatures.join(" ")) }
}

fn signature(key: &str, signed: &[u8]) -> Result<String, InvalidWebhookKey> {
    let decode = |text: &str| STANDARD.decode(text).map_err(|_| InvalidWebhookKey);
    if let Some(shared) = key.strip_prefix("whsec_") {
        let shared = decode(shared)?;
        if !SHARED_BYTES.contains(&shared.len()) {
            return Err(InvalidWebhookKey);
        }
        let mut mac = Hmac::<Sha256>::new_from_slice(&shared).map_err(|_| InvalidWebhookKey)?;
        mac.update(signed);
        return Ok(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())));
    }
    let signer = signing_key(key).ok_or(InvalidWebhookKey)?;
    Ok(format!("v1a,{}", STANDARD.encode(signer.sign(signed).to_bytes())))
}

/// An Ed25519 key from its seed, in Standard Webhooks notation.
#[must_use]
pub fn own_key(seed: &[u8; 32]) -> Secret {
    Secret::new(format!("whsk_{}", STANDARD.encode(seed)))
}

/// The public keys (`whpk_…`) of those keys that have one, in order.
#[must_use]
pub fn public_keys(keys: &str) -> Vec<String> {
    let public = |key: SigningKey| format!("whpk_{}", STANDARD.encode(key.verifying_key().as_bytes()));
    keys.split_whitespace().filter_map(signing_key).map(public).collect()
}

/// Parses a `whsk_…` key: a seed, optionally followed by its public key.
fn signing_key(key: &str) -> Option<SigningKey> {
    let own = STANDARD.decode(key.strip_prefix("whsk_")?).ok()?;
    match own.len() {
        32 => Some(SigningKey::from_bytes(&own.try_into().ok()?)),
        64 => SigningKey::from_keypair_bytes(&own.try_into().ok()?).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ed25519_dalek::{Signature, Verifier};

    const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const AT: i64 = 1_614_265_330;
    const PAYLOAD: &[u8] = br#"{"test": 2432232314}"#;
    const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    #[test]
    fn the_vector_of_the_specification_comes_out() {
        assert_eq!(sign(KEY, ID, AT, PAYLOAD).as_deref(), Ok(SIGNATURE));
        assert_ne!(sign(KEY, ID, AT + 1, PAYLOAD).as_deref(), Ok(SIGNATURE));
    }

    #[test]
    fn an_asymmetric_signature_verifies_with_the_public_key() {
        let signer = SigningKey::from_bytes(&[7; 32]);
        let long = format!("whsk_{}", STANDARD.encode(signer.to_keypair_bytes()));
        let short = format!("whsk_{}", STANDARD.encode([7; 32]));
        let value = sign(&long, ID, AT, PAYLOAD).unwrap();
        assert_eq!(sign(&short, ID, AT, PAYLOAD).unwrap(), value);
        let bytes = STANDARD.decode(value.strip_prefix("v1a,").unwrap()).unwrap();
        let signed = [ID.as_bytes(), b".1614265330.", PAYLOAD].concat();
        signer.verifying_key().verify(&signed, &Signature::from_slice(&bytes).unwrap()).unwrap();
    }

    /// Computed with Python's `cryptography` from the seed 00 01 … 1f.
    #[test]
    fn the_key_of_a_seed_signs_as_another_program_does() {
        let seed: [u8; 32] = std::array::from_fn(|at| u8::try_from(at).unwrap());
        let key = own_key(&seed);
        let key = key.expose_text().unwrap();
        assert_eq!(key, "whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=");
        assert_eq!(public_keys(&format!("{KEY} {key}")), ["whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg="]);
        assert_eq!(
            sign(key, ID, AT, PAYLOAD).unwrap(),
            "v1a,yoUrgEkc12aGqm0n4Sydmdz55xJfTz4AsAgieHFjmkR7LJtqVCZOQYzvvHjI5kAey+r4iaBGxTFRrl2iBQxtDQ=="
        );
    }

    #[test]
    fn several_keys_give_several_signatures() {
        let both = sign(&format!("{KEY} whsk_{}", STANDARD.encode([7; 32])), ID, AT, PAYLOAD).unwrap();
        let (first, second) = both.split_once(' ').unwrap();
        assert!(first == SIGNATURE && second.starts_with("v1a,"));
    }

    #[test]
    fn what_is_no_key_signs_nothing() {
        for key in ["", "hunter2", "whsec_", "whsec_!!!", "whsec_c2hvcnQ=", "whsk_c2hvcnQ=", "whpk_AAAA"] {
            assert_eq!(sign(key, ID, AT, PAYLOAD), Err(InvalidWebhookKey), "{key}");
        }
    }
}
