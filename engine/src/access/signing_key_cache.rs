//! The signing keys in a snapshot of the directory: those that are valid, will be, or ended lately.
//!
//! A key that ended is kept for a while, so that a signature with it is refused with the reason.

use super::directory::Snapshot;
use crate::error::EngineError;
use crate::port::Records;
use crate::rows;
use chimera_core::access::SigningKey;
use chimera_core::access::tables::{SigningKeyRow, signing_keys};
use chimera_core::limits::SIGNING_KEY_ENDED_SECONDS;
use chimera_core::record::{Comparison, Scope, Select, StoredRow, Value};
use chimera_core::time::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

/// Signing keys by id and by actor.
#[derive(Default)]
pub(super) struct SigningKeyCache {
    by_kid: BTreeMap<String, Arc<SigningKey>>,
    by_actor: BTreeMap<String, Vec<Arc<SigningKey>>>,
}

impl SigningKeyCache {
    /// Reads the keys. Those that the cache before has are not parsed again.
    pub(super) async fn read(records: &dyn Records, now: Timestamp, before: &Self) -> Result<Self, EngineError> {
        let mut cache = Self::default();
        for select in recent_keys(now) {
            rows::each(records, select, |row: SigningKeyRow| {
                cache.add(row, before);
                Ok(())
            })
            .await?;
        }
        Ok(cache)
    }

    fn add(&mut self, row: SigningKeyRow, before: &Self) {
        let kid = row.kid.clone();
        match SigningKey::from_row(row, before.by_kid.get(&kid).map(|known| &**known)) {
            Ok(key) => {
                let key = Arc::new(key);
                self.by_actor.entry(key.actor.clone()).or_default().push(Arc::clone(&key));
                self.by_kid.insert(kid, key);
            }
            Err(error) => tracing::warn!(kid, %error, "a signing key can't be read and is ignored"),
        }
    }

    pub(super) fn get(&self, kid: &str) -> Option<&Arc<SigningKey>> {
        self.by_kid.get(kid)
    }

    /// The keys of an actor in a tenant, valid or not. A name may belong to another tenant than before.
    pub(super) fn recent(&self, tenant: &str, actor: &str) -> impl Iterator<Item = &Arc<SigningKey>> {
        self.by_actor.get(actor).into_iter().flatten().filter(move |key| key.tenant == tenant)
    }

    /// How many keys belong to tenants that `counts`.
    pub(super) fn count(&self, counts: impl Fn(&str) -> bool) -> usize {
        self.by_kid.values().filter(|key| counts(&key.tenant)).count()
    }
}

/// The keys that others may verify signatures with: the valid ones of actors that are not disabled.
pub(super) fn published_keys(snapshot: &Snapshot, now: Timestamp) -> impl Iterator<Item = &SigningKey> {
    let is_enabled = |actor: &str, tenant: &str| {
        let entry = snapshot.registry.resolve(actor);
        !entry.disabled && !entry.removed && entry.tenant == tenant
    };
    let keys = snapshot.signing_keys.by_kid.values().map(|key| &**key);
    keys.filter(move |key| key.is_valid(now) && is_enabled(&key.actor, &key.tenant))
}

/// Whether an actor has a valid key that is this credential.
pub(super) fn has_credential(snapshot: &Snapshot, actor: &str, credential: Uuid, now: Timestamp) -> bool {
    let tenant = &snapshot.registry.resolve(actor).tenant;
    snapshot.signing_keys_of(tenant, actor, now).any(|key| key.public.credential_id() == credential)
}

/// Selects the keys that did not end long ago.
fn recent_keys(now: Timestamp) -> [Select; 3] {
    let since = now.plus_seconds(-SIGNING_KEY_ENDED_SECONDS);
    let all = || SigningKeyRow::select(Scope::System);
    let unrevoked = || all().with(signing_keys::revoked_at, Value::Null);
    [
        unrevoked().with(signing_keys::expires_at, Value::Null),
        unrevoked().filter(signing_keys::expires_at, Comparison::Above, since),
        all().filter(signing_keys::revoked_at, Comparison::Above, since),
    ]
}
