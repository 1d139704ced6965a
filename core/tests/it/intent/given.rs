//! Envelopes and keys for the tests.

use chimera_core::access::Ed25519PrivateKey;
use chimera_core::intent::{Envelope, EnvelopeReader, sign};
use chimera_core::json::schema::SchemaViolation;
use serde_json::{Value, json};

pub(super) fn key(seed: u8) -> Ed25519PrivateKey {
    Ed25519PrivateKey::from_seed(&[seed; 32])
}

/// The envelope of the specification's section 2, without a signature.
pub(super) fn example() -> Value {
    json!({
        "version": "1.0",
        "intent": {"type": "logs.stream", "args": {"run_id": "7f3e", "filter": "errors", "node_id": "triage"}},
        "actor": {"user_id": "u_123", "tenant": "acme", "roles": ["dev"]},
        "constraints": {"ttl_sec": 120, "idempotency_key": "sha256(run_id|args)", "capabilities": ["logs:read"]},
        "trace_id": "abcd-1234"
    })
}

/// The example with one member replaced, or without it.
pub(super) fn changed(pointer: &str, to: Option<Value>) -> Value {
    let mut envelope = example();
    envelope["sig"] = json!("ed25519:AA==");
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let members = envelope.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    match to {
        Some(value) => members.insert(name.to_owned(), value),
        None => members.remove(name),
    };
    envelope
}

pub(super) fn signed(envelope: Value) -> Value {
    sign(envelope, &key(1)).unwrap()
}

pub(super) fn read(envelope: &Value) -> Result<Envelope, Vec<SchemaViolation>> {
    read_text(&envelope.to_string())
}

pub(super) fn read_text(text: &str) -> Result<Envelope, Vec<SchemaViolation>> {
    EnvelopeReader::new().unwrap().read(text.as_bytes())
}

/// The places of the findings.
pub(super) fn pointers(read: Result<Envelope, Vec<SchemaViolation>>) -> Vec<String> {
    read.unwrap_err().into_iter().map(|found| found.pointer).collect()
}
