//! Signatures: what verifies, and what must not.

use super::given::{changed, example, key, read, read_text, signed};
use chimera_core::access::Ed25519PublicKey;
use chimera_core::intent::{EnvelopeSignature, SignatureFault, idempotency_key, sign};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Whether an envelope has the signature of the first key.
fn verify(text: &str) -> Result<(), SignatureFault> {
    let envelope = read_text(text).unwrap();
    EnvelopeSignature::parse(&envelope.sig)?.verify(envelope.signed(), &key(1).public())
}

/// The same document with its members in reverse order and other white space.
fn respelled(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let each = members.iter().rev().map(|(name, value)| format!("{} :\n{}", json!(name), respelled(value)));
            format!("{{ {} }}", each.collect::<Vec<_>>().join(" ,\t"))
        }
        Value::Array(items) => format!("[ {} ]", items.iter().map(respelled).collect::<Vec<_>>().join(" , ")),
        plain => plain.to_string(),
    }
}

/// INTENT-014, INTENT-015, INTENT-016
#[test]
fn the_example_of_the_specification_is_signed_and_verifies_in_any_spelling() {
    let envelope = signed(example());
    let sig = envelope["sig"].as_str().unwrap();
    assert_eq!((&sig[..8], sig.len()), ("ed25519:", 8 + 88));
    assert_eq!(verify(&envelope.to_string()), Ok(()));
    assert_eq!(verify(&respelled(&envelope)), Ok(()));
    assert_eq!(verify(&envelope.to_string().replace("triage", "tri\\u0061ge")), Ok(()));
    assert_eq!(verify(&envelope.to_string().replace("120", "1.2e2")), Ok(()));
}

/// INTENT-016, INTENT-021
#[test]
fn whatever_is_changed_breaks_the_signature() {
    let envelope = signed(example());
    for (pointer, to) in [
        ("/version", json!("1.1")),
        ("/intent/type", json!("kb.search")),
        ("/intent/args/run_id", json!("7f3f")),
        ("/actor/user_id", json!("u_124")),
        ("/actor/tenant", json!("Acme")),
        ("/actor/roles/0", json!("admin")),
        ("/constraints/ttl_sec", json!(120.5)),
        ("/constraints/idempotency_key", json!("another")),
        ("/constraints/capabilities/0", json!("runs:start")),
        ("/trace_id", json!("abcd-1235")),
    ] {
        let mut other = envelope.clone();
        *other.pointer_mut(pointer).unwrap() = to;
        assert_eq!(verify(&other.to_string()), Err(SignatureFault::Mismatch), "{pointer}");
    }
    for member in ["issued_at", "kid", "more"] {
        let mut other = envelope.clone();
        other[member] = json!("2026-01-01T00:00:00Z");
        assert_eq!(verify(&other.to_string()), Err(SignatureFault::Mismatch), "{member} is signed");
    }
    let composed = sign(changed("/actor/user_id", Some(json!("re\u{301}ne"))), &key(1)).unwrap();
    assert_eq!(verify(&composed.to_string()), Ok(()));
    let normalized = composed.to_string().replace("re\u{301}ne", "r\u{e9}ne");
    assert_eq!(verify(&normalized), Err(SignatureFault::Mismatch), "text is not normalized");
}

/// INTENT-014, INTENT-021
#[test]
fn a_signature_has_one_spelling() {
    let good = signed(example());
    let sig = good["sig"].as_str().unwrap();
    let (stem, last) = sig.split_at(sig.len() - 3);
    let next = char::from(last.as_bytes()[0] + 1);
    for bad in [
        "",
        "ed25519:",
        &sig[8..],
        &format!("Ed25519:{}", &sig[8..]),
        &format!(" {sig}"),
        &format!("{sig}\n"),
        sig.trim_end_matches('='),
        &format!("{stem}{next}=="),
        &format!("ed25519:{}", &sig[12..]),
        &format!("ed25519:-{}", &sig[9..]),
    ] {
        let parsed = EnvelopeSignature::parse(bad);
        let envelope = read(&good).unwrap();
        let verified = parsed.and_then(|sig| sig.verify(envelope.signed(), &key(1).public()));
        assert!(verified.is_err(), "{bad}");
    }
    let other = EnvelopeSignature::parse(sig).unwrap();
    let envelope = read(&good).unwrap();
    assert_eq!(other.verify(envelope.signed(), &key(2).public()), Err(SignatureFault::Mismatch));
}

/// The published edge cases of "Taming the many EdDSAs".
///
/// INTENT-016
#[test]
fn small_orders_and_scalars_that_are_not_reduced_never_verify() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("../../data/ed25519.json")).unwrap();
    let bytes = |case: &Value, name: &str| hex::decode(case[name].as_str().unwrap()).unwrap();
    let verifies = |case: &Value| {
        let Ok(key) = Ed25519PublicKey::from_bytes(&bytes(case, "pub_key").try_into().unwrap()) else { return false };
        use base64::Engine as _;
        let sig = base64::engine::general_purpose::STANDARD.encode(bytes(case, "signature"));
        let sig = EnvelopeSignature::parse(&format!("ed25519:{sig}")).unwrap();
        sig.verify(&bytes(case, "message"), &key).is_ok()
    };
    let accepted: Vec<&str> =
        cases.iter().filter(|case| verifies(case)).map(|case| case["case"].as_str().unwrap()).collect();
    assert_eq!(cases.len(), 10);
    assert_eq!(accepted, ["key and commitment of mixed order"], "only the holder of that key could make it");
}

/// INTENT-013
#[test]
fn the_key_of_an_intent_follows_from_its_run_and_arguments() {
    let args = json!({"run_id": "7f", "filter": "all"});
    let key = idempotency_key("7f", &args);
    assert_eq!(key.len(), 64);
    assert_eq!(key, idempotency_key("7f", &json!({"filter": "all", "run_id": "7f"})));
    assert_ne!(key, idempotency_key("7e", &args));
    assert_ne!(key, idempotency_key("7f", &json!({"run_id": "7f", "filter": "errors"})));
    let spelled = chimera_core::json::Digest32::of_bytes(br#"7f|{"filter":"all","run_id":"7f"}"#);
    assert_eq!(key, spelled.to_string());
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-9_007_199_254_740_991_i64..=9_007_199_254_740_991).prop_map(Value::from),
        "[^\\x00]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[^\\x00]{0,6}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// INTENT-016
    #[test]
    fn any_arguments_verify_in_any_spelling_and_no_others_do(inputs in any_json(), other in any_json()) {
        let with = |inputs: &Value| {
            let mut envelope = example();
            envelope["intent"] = json!({"type": "workflow.start", "args": {"inputs": inputs}});
            envelope
        };
        let envelope = signed(with(&inputs));
        prop_assert_eq!(verify(&envelope.to_string()), Ok(()));
        prop_assert_eq!(verify(&respelled(&envelope)), Ok(()));
        let mut swapped = with(&other);
        swapped["sig"] = envelope["sig"].clone();
        let same = chimera_core::json::canonical(&inputs) == chimera_core::json::canonical(&other);
        prop_assert_eq!(verify(&swapped.to_string()).is_ok(), same);
    }

    /// INTENT-021, INTENT-065
    #[test]
    fn a_changed_byte_is_never_accepted(at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let envelope = signed(example());
        let mut bytes = envelope.to_string().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = to;
        let read = chimera_core::intent::EnvelopeReader::new().unwrap().read(&bytes);
        if let Ok(read) = read {
            let verified = EnvelopeSignature::parse(&read.sig).and_then(|sig| sig.verify(read.signed(), &key(1).public()));
            let same = serde_json::from_slice::<Value>(&bytes).unwrap() == envelope;
            prop_assert!(verified.is_err() || same);
        }
    }
}
