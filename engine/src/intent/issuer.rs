//! Who signed an envelope, and whether they may.
//!
//! A key signs for its own actor. The keys of a configured issuer, a service such as an assistant, also sign for
//! whoever sends the envelope with their own token.

use super::router::IntentRouter;
use crate::access::{Permit, Snapshot};
use chimera_core::access::{SigningKey, SigningKeyStanding};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::intent::{Envelope, EnvelopeSignature};
use chimera_core::limits::ENVELOPE_KEYS_TRIED_MAX;
use chimera_core::time::Timestamp;
use std::sync::Arc;

/// The key that signed an envelope.
pub(super) struct IssuerKey {
    pub(super) kid: String,
    pub(super) expires_at: Option<Timestamp>,
}

impl IssuerKey {
    fn of(key: &SigningKey) -> Self {
        Self { kid: key.kid.clone(), expires_at: key.expires_at }
    }
}

/// The key that signed the envelope, if it is valid and may sign for the envelope's actor.
pub(super) fn verify(router: &IntentRouter, permit: &Permit, envelope: &Envelope) -> Result<IssuerKey, ErrorBody> {
    let refused =
        |reason: &str, message: String| ErrorBody::new(Code::SignatureInvalid, message).with("reason", reason);
    let signature = EnvelopeSignature::parse(&envelope.sig).map_err(|fault| refused("malformed", fault.to_string()))?;
    let directory = router.actions.access().directory();
    let (snapshot, now) = (directory.snapshot(), router.now());
    let issuers = Issuers { router, snapshot: &snapshot, permit, envelope };
    let matches = |key: &SigningKey| signature.verify(envelope.signed(), &key.public).is_ok();
    let mismatch = || refused("mismatch", "the signature does not match the envelope".to_owned());
    // Only the actor itself learns which keys it has.
    let is_callers = envelope.user_id == permit.actor();
    let Some(kid) = &envelope.kid else {
        let mut tried = issuers.keys(now);
        let found = tried.by_ref().take(ENVELOPE_KEYS_TRIED_MAX).find(|key| matches(key));
        return match found {
            Some(key) => Ok(IssuerKey::of(key)),
            None if is_callers && tried.next().is_some() => {
                Err(refused("many_keys", "the actor has many keys: name the one that signed in `kid`".to_owned()))
            }
            None => Err(mismatch()),
        };
    };
    let Some(key) = snapshot.signing_key(kid).filter(|key| issuers.may_sign(key)) else {
        let unknown = || refused("unknown_key", format!("no key `{kid}` signs for you")).with("kid", &**kid);
        return Err(if is_callers { unknown() } else { mismatch() });
    };
    // First: only the holder of a key learns what became of it.
    if !matches(key) {
        return Err(mismatch());
    }
    match key.standing(now) {
        SigningKeyStanding::Valid => Ok(IssuerKey::of(key)),
        standing => {
            let message = format!("the key `{kid}` is {}", standing.as_str().replace('_', " "));
            Err(refused(standing.as_str(), message).with("kid", &**kid))
        }
    }
}

/// Who may sign an envelope.
struct Issuers<'a> {
    router: &'a IntentRouter,
    snapshot: &'a Snapshot,
    permit: &'a Permit,
    envelope: &'a Envelope,
}

impl<'a> Issuers<'a> {
    /// Whether a key signs for the envelope's actor.
    fn may_sign(&self, key: &SigningKey) -> bool {
        let entry = self.snapshot.registry.resolve(&key.actor);
        if entry.disabled || entry.tenant != key.tenant {
            return false;
        }
        let own = key.actor == self.envelope.user_id;
        let home = &self.router.actions.access().directory().settings.tenant;
        let as_issuer = self.router.issuers.contains(&key.actor)
            && self.envelope.user_id == self.permit.actor()
            && (key.tenant == self.permit.tenant() || key.tenant == *home);
        own || as_issuer
    }

    /// The valid keys that may sign, the actor's own first.
    fn keys(&self, now: Timestamp) -> impl Iterator<Item = &'a Arc<SigningKey>> {
        let snapshot = self.snapshot;
        let own = std::iter::once(&self.envelope.user_id);
        let names = own.chain(self.router.issuers.iter().filter(|issuer| **issuer != self.envelope.user_id));
        let mut keys = Vec::new();
        for name in names {
            let tenant = &snapshot.registry.resolve(name).tenant;
            let valid = snapshot.signing_keys_of(tenant, name, now).filter(|key| self.may_sign(key));
            keys.extend(valid.take(ENVELOPE_KEYS_TRIED_MAX + 1));
        }
        keys.into_iter()
    }
}
