//! Checks whether the configured sealing key is the one that actors' keys were sealed with.
//!
//! Keys that can't be decrypted are ignored, so with another sealing key nobody can sign in. Commands that open a store
//! check this first.

use super::directory::key_context;
use super::expired_keys;
use crate::error::EngineError;
use crate::port::Records;
use crate::rows;
use chimera_core::access::seal;
use chimera_core::access::tables::{ACTOR_KEYS, ActorKeyRow, actor_keys};
use chimera_core::record::{InvalidTx, Update, Value};
use chimera_core::time::Timestamp;
use std::collections::BTreeSet;

/// The sealed actor keys in the store that are valid now.
pub struct SealedKeys(Vec<ActorKeyRow>);

impl SealedKeys {
    pub async fn read(records: &dyn Records, now: Timestamp) -> Result<Self, EngineError> {
        let mut sealed = Vec::new();
        for select in expired_keys::select_valid_keys(now) {
            rows::each(records, select, |row: ActorKeyRow| {
                sealed.extend(Some(row).filter(|row| row.sealed_key.is_some()));
                Ok(())
            })
            .await?;
        }
        Ok(Self(sealed))
    }

    #[must_use]
    pub const fn count(&self) -> usize {
        self.0.len()
    }

    /// The keys that this sealing key does not decrypt; without one, all of them.
    #[must_use]
    pub fn undecryptable_with(self, key: Option<&[u8; 32]>) -> Self {
        let closed = |row: &ActorKeyRow| {
            key.zip(row.sealed_key.as_deref())
                .is_none_or(|(key, sealed)| seal::open(key, &key_context(&row.actor_id, row.id), sealed).is_none())
        };
        Self(self.0.into_iter().filter(closed).collect())
    }

    #[must_use]
    pub fn actors(&self) -> BTreeSet<&str> {
        self.0.iter().map(|row| row.actor_id.as_str()).collect()
    }

    /// The updates that revoke them.
    pub fn revoke(&self, now: Timestamp) -> Result<Vec<Update>, InvalidTx> {
        let revoke = |row: &ActorKeyRow| {
            let unrevoked = vec![(actor_keys::revoked_at, Value::Null)];
            Update::new(&ACTOR_KEYS, vec![row.id.into()], unrevoked, vec![(actor_keys::revoked_at, now.into())])
        };
        self.0.iter().map(revoke).collect()
    }
}
