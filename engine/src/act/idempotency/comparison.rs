//! Whether two requests under one key are the same.
//!
//! A request is stored with its secrets masked, and masks hide differences. So a masked request also gets a keyed
//! digest of what it was before.

use crate::access::Permit;
use chimera_core::access::mac;
use chimera_core::json::Digest32;
use chimera_core::secret::Secret;
use serde_json::Value;

/// The member of a stored request with its keyed digest.
const SEALED: &str = "request_seal";

/// Adds a keyed digest to a masked request.
pub(super) fn seal_request(request: &mut Value, key: &Secret, permit: &Permit, unmasked: Digest32) {
    if let Some(members) = request.as_object_mut() {
        members.insert(SEALED.to_owned(), seal_of(key, permit, unmasked).into());
    }
}

/// Whether a request differs from an earlier one.
pub(super) fn differ(before: &Value, now: &Value) -> bool {
    let seal = |request: &Value| request.get(SEALED).and_then(Value::as_str).map(str::to_owned);
    let sealed = seals_differ(seal(before).as_deref(), seal(now).as_deref());
    sealed.unwrap_or_else(|| digest_of(before) != digest_of(now))
}

/// A keyed digest of the unmasked request. Keyed, because a plain digest would let others find a short secret by
/// guessing. Prefixed with the name of its key.
fn seal_of(key: &Secret, permit: &Permit, unmasked: Digest32) -> String {
    let name = mac::sign(key, b"request");
    let place = format!("request\0{}\0{}\0{unmasked}", permit.tenant(), permit.actor());
    format!("{}:{}", name.get(..8).unwrap_or_default(), mac::sign(key, place.as_bytes()))
}

/// Whether two requests differ; `None` if their digests were made with different keys.
fn seals_differ(one: Option<&str>, other: Option<&str>) -> Option<bool> {
    let (one, other) = (one?, other?);
    let (one_key, other_key) = (one.split_once(':')?.0, other.split_once(':')?.0);
    (one_key == other_key).then(|| one != other)
}

/// The digest of a request without its seal.
fn digest_of(request: &Value) -> Digest32 {
    let mut request = request.clone();
    if let Some(members) = request.as_object_mut() {
        members.remove(SEALED);
    }
    Digest32::of(&request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::local_operator;

    #[test]
    fn requests_that_differ_in_a_masked_place_are_told_apart_unless_their_keys_differ() {
        let (permit, key) = (local_operator("acme"), Secret::new([7; 32]));
        let seal = |key: &Secret, permit: &Permit, said: &str| seal_of(key, permit, Digest32::of(&Value::from(said)));
        let one = seal(&key, &permit, "one");
        assert_eq!(seals_differ(Some(&one), Some(&seal(&key, &permit, "one"))), Some(false));
        assert_eq!(seals_differ(Some(&one), Some(&seal(&key, &permit, "two"))), Some(true));
        assert_eq!(seals_differ(Some(&one), Some(&seal(&Secret::new([8; 32]), &permit, "one"))), None);
        assert_eq!((seals_differ(None, Some(&one)), seals_differ(Some("?"), Some(&one))), (None, None));
        assert_ne!(one, seal(&key, &local_operator("other"), "one"), "nobody can compare with another's");
    }
}
