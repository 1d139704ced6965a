//! Whose envelope it is: keys, issuers, tenants.

use super::given::{key_of, server};
use chimera_core::access::Ed25519PrivateKey;
use chimera_core::intent::sign;
use chimera_engine::access::revoke_signing_key;
use chimera_testkit::flow::{TENANT, full_permit};
use serde_json::{Value, json};

/// INTENT-016, INTENT-019, INTENT-021, INTENT-078
#[tokio::test]
async fn only_a_valid_key_of_the_actor_signs_for_them() {
    let server = server().await;
    let unsigned = |kid: Option<&Ed25519PrivateKey>| {
        let mut envelope = server.unsigned("user_ann", "logs.stream", json!({"run_id": "7f"}));
        envelope["kid"] = json!(kid.map(|key| key.public().kid()));
        if kid.is_none() {
            envelope.as_object_mut().unwrap().remove("kid");
        }
        envelope
    };
    let reason = async |envelope: Value| {
        let answer = server.send(&envelope).await;
        match answer.code() {
            "SIGNATURE_INVALID" => answer.detail("reason").as_str().unwrap().to_owned(),
            code => code.to_owned(),
        }
    };
    let (own, bobs) = (key_of("user_ann"), key_of("user_bob"));
    let (unknown, second) = (Ed25519PrivateKey::from_seed(&[77; 32]), Ed25519PrivateKey::from_seed(&[78; 32]));
    let signed = |kid, key| sign(unsigned(kid), key).unwrap();
    assert_eq!(reason(signed(Some(&own), &own)).await, "TOOL_UNAVAILABLE");
    assert_eq!(reason(signed(None, &own)).await, "TOOL_UNAVAILABLE", "every valid key of the actor is tried");
    assert_eq!(reason(signed(Some(&bobs), &bobs)).await, "unknown_key", "another's key signs for nobody else");
    assert_eq!(reason(signed(None, &bobs)).await, "mismatch");
    assert_eq!(reason(signed(Some(&own), &bobs)).await, "mismatch");
    assert_eq!(reason(signed(Some(&unknown), &unknown)).await, "unknown_key");
    let mut bare = unsigned(Some(&own));
    bare["sig"] = json!("ed25519:AAAA");
    assert_eq!(reason(bare).await, "malformed");

    server.add_key(TENANT, "user_ann", &second, Some(3_600)).await;
    assert_eq!(reason(signed(Some(&second), &second)).await, "TOOL_UNAVAILABLE", "a rotated key signs as well");
    let admin = full_permit(TENANT, "admin");
    revoke_signing_key(&server.porch.directory, &admin, &own.public().kid(), None).await.unwrap();
    assert_eq!(reason(signed(Some(&own), &own)).await, "revoked");
    assert_eq!(reason(signed(None, &own)).await, "mismatch");
    assert_eq!(reason(signed(None, &second)).await, "TOOL_UNAVAILABLE");
    server.porch.clock.wait(3_601);
    assert_eq!(reason(signed(Some(&second), &second)).await, "expired");
}

/// INTENT-011, INTENT-021
#[tokio::test]
async fn an_envelope_counts_only_for_whoever_sends_it() {
    let server = server().await;
    let envelope = server.envelope("user_ann", "logs.stream", json!({"run_id": "7f"}));
    let answer = server.send_as("user_bob", "/intents", envelope.to_string()).await;
    assert_eq!((answer.status, answer.code()), (403, "RBAC_FORBIDDEN"));
    assert_eq!(answer.detail("pointer"), "/actor/user_id");
    let mut foreign = server.unsigned("user_ann", "logs.stream", json!({"run_id": "7f"}));
    foreign["actor"]["tenant"] = json!("other");
    let answer = server.send(&sign(foreign, &key_of("user_ann")).unwrap()).await;
    assert_eq!((answer.code(), answer.detail("pointer")), ("RBAC_FORBIDDEN", &json!("/actor/tenant")));
    let entries = server.entries("intent.rejected");
    assert!(entries.iter().any(|entry| entry["claimed_actor"]["user_id"] == "user_ann"), "{entries:?}");
}
