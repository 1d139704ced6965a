//! The signature of an envelope: `ed25519:` and base64 over the canonical bytes without `sig`.
//!
//! Base64 that is not the one spelling of its bytes is refused, and keys verify strictly, so that one content has one
//! signature per key and nobody but the holder of the key makes it.

use crate::access::{Ed25519PrivateKey, Ed25519PublicKey};
use crate::json::{CanonicalJson, Digest32, TooDeep, canonical};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

const PREFIX: &str = "ed25519:";

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureFault {
    #[error("the signature must be `ed25519:` followed by the base64 of 64 bytes")]
    Form,
    #[error("the signature does not match the envelope")]
    Mismatch,
}

/// A signature of the right form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvelopeSignature([u8; 64]);

impl EnvelopeSignature {
    pub fn parse(text: &str) -> Result<Self, SignatureFault> {
        let encoded = text.strip_prefix(PREFIX).ok_or(SignatureFault::Form)?;
        let bytes = STANDARD.decode(encoded).map_err(|_| SignatureFault::Form)?;
        bytes.try_into().map(Self).map_err(|_| SignatureFault::Form)
    }

    /// Whether the key made it over these bytes.
    pub fn verify(&self, signed: &[u8], key: &Ed25519PublicKey) -> Result<(), SignatureFault> {
        if key.verify_strict(signed, &self.0) { Ok(()) } else { Err(SignatureFault::Mismatch) }
    }
}

/// Signs an envelope: replaces its `sig`. Anything but an object is returned as it is.
pub fn sign(mut envelope: Value, key: &Ed25519PrivateKey) -> Result<Value, TooDeep> {
    let Some(members) = envelope.as_object_mut() else { return Ok(envelope) };
    members.remove("sig");
    let unsigned = CanonicalJson::new(envelope)?;
    let signature = key.sign(canonical(unsigned.value()).as_bytes());
    let mut signed = (**unsigned.value()).clone();
    signed["sig"] = format!("{PREFIX}{}", STANDARD.encode(signature)).into();
    Ok(signed)
}

/// The idempotency key of an intent: the SHA-256 of the run it is about and its arguments. `subject` is the run's id
/// or, if the arguments name none, the id of the request.
#[must_use]
pub fn idempotency_key(subject: &str, args: &Value) -> String {
    Digest32::of_bytes(format!("{subject}|{}", canonical(args)).as_bytes()).to_string()
}
