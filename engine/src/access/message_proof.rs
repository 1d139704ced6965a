//! Verifying the HTTP message signatures of a request: with the actor's HMAC keys, or with its signing keys.

use super::authenticator::{VerifiedProof, check_clock_skew, unopened};
use super::directory::{ActorKey, Snapshot};
use super::nonces::Nonce;
use chimera_core::access::SigningKey;
use chimera_core::access::signature::{
    ExpectedSigner, NamedKey, RequestParts, SignatureError, UnusableKey, UnverifiedSignature,
};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::limits::SIGNATURE_AHEAD_SECONDS_MAX;
use chimera_core::time::Timestamp;
use std::sync::Arc;
use uuid::Uuid;

/// Verifies the message signatures. Returns the key that made one, and the nonces of all signatures, also of those
/// that are not valid here and now: the request could be replayed with each alone, later or with the fields that
/// were signed. An error tells the caller the signature base that was expected.
pub(super) fn verify_message(
    snapshot: &Snapshot,
    actor: &str,
    parts: &RequestParts<'_>,
    now: Timestamp,
) -> Result<VerifiedProof, ErrorBody> {
    let signing_keys = signing_keys_of(snapshot, actor);
    let signer = ExpectedSigner { actor, signing_keys: &signing_keys };
    let all = UnverifiedSignature::parse(parts, &signer).map_err(|why| signature_refusal(&why))?;
    let keys: Vec<_> = snapshot.keys(actor, now).map(|key| &key.secret).collect();
    // One valid and fresh signature suffices; if there is none, the first one's error is returned.
    let (mut nonces, mut made_by, mut first) = (Vec::new(), None, None);
    for claimed in all {
        let made_at = Timestamp::from_micros(claimed.created.saturating_mul(1_000_000));
        let refusal = match claimed.verify(keys.iter().copied(), now) {
            Ok(()) => check_signature_time(&claimed, now).err(),
            // Another key that can't be opened may have made it.
            Err(SignatureError::Mismatch) if claimed.key == NamedKey::Hmac && snapshot.has_unopened(actor) => {
                Some(unopened())
            }
            Err(why) => Some(mismatch(&claimed, &why)),
        };
        match refusal {
            None => made_by = made_by.or_else(|| credential_of(&claimed, snapshot, actor, now)),
            Some(why) if made_at > now.plus_seconds(SIGNATURE_AHEAD_SECONDS_MAX) => return Err(why),
            Some(why) => first = first.or(Some(why)),
        }
        nonces.push(Nonce { text: claimed.nonce, made_at: Some(made_at) });
    }
    match first {
        Some(why) if made_by.is_none() => Err(why),
        _ => Ok(VerifiedProof { nonces, key: made_by }),
    }
}

/// The signing keys whose signatures are the actor's, valid or not.
pub(super) fn signing_keys_of(snapshot: &Snapshot, actor: &str) -> Vec<Arc<SigningKey>> {
    let tenant = &snapshot.registry.resolve(actor).tenant;
    snapshot.signing_keys.recent(tenant, actor).cloned().collect()
}

/// The key that made a verified signature.
fn credential_of(claimed: &UnverifiedSignature, snapshot: &Snapshot, actor: &str, now: Timestamp) -> Option<Uuid> {
    match &claimed.key {
        NamedKey::Signing(key) => Some(key.public.credential_id()),
        NamedKey::Hmac => {
            let made = |key: &&ActorKey| claimed.verify([&key.secret], now).is_ok();
            snapshot.keys(actor, now).find(made).map(|key| key.id)
        }
    }
}

pub(super) fn signature_refusal(why: &SignatureError) -> ErrorBody {
    let what = match why {
        SignatureError::Mismatch | SignatureError::Key(UnusableKey::NotValid { .. }) => "invalid request signature",
        _ => "the request is not signed",
    };
    ErrorBody::new(Code::SignatureInvalid, format!("{what}: {why}"))
        .with("reason", why.reason())
        .with("header", "signature-input")
}

/// The refusal of a signature that is not valid on this request, with the base that was expected.
fn mismatch(claimed: &UnverifiedSignature, why: &SignatureError) -> ErrorBody {
    let body = signature_refusal(why);
    match &claimed.content {
        Ok(content) => body.with("signature_base", content.base.as_str()),
        Err(_) => body,
    }
}

/// Whether a signature is fresh and has not expired.
fn check_signature_time(claimed: &UnverifiedSignature, now: Timestamp) -> Result<(), ErrorBody> {
    check_clock_skew("created", claimed.created.saturating_mul(1_000), now)?;
    if claimed.expires.is_some_and(|expires| expires < now.millis().div_euclid(1_000)) {
        let body = ErrorBody::new(Code::ExpiredTtl, "the signature has expired");
        return Err(body.with("reason", "expired").with("now", now.to_string()));
    }
    Ok(())
}
