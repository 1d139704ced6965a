//! Checks whether the configured sealing key is the one that actors' keys were sealed with.
//!
//! Keys that can't be decrypted are ignored, so with another sealing key nobody can sign in. Commands that open a store
//! check this first.

use super::directory::key_context;
use super::expired_keys;
use crate::port::{ReadError, Records};
use chimera_core::access::seal;
use chimera_core::access::tables::ACTOR_KEYS;
use chimera_core::limits::PAGE_ROWS_MAX;
use chimera_core::record::{InvalidTx, Row, Update};
use chimera_core::time::Timestamp;
use std::collections::BTreeSet;

/// The sealed actor keys in the store that are valid now.
pub struct SealedKeys(Vec<Row>);

impl SealedKeys {
    pub async fn read(records: &dyn Records, now: Timestamp) -> Result<Self, ReadError> {
        let mut rows = Vec::new();
        for select in expired_keys::select_valid_keys(now) {
            let mut select = select.take(PAGE_ROWS_MAX);
            loop {
                let page = records.read(select.clone()).await?;
                rows.extend(page.rows);
                match page.next {
                    Some(after) => select.after = Some(after),
                    None => break,
                }
            }
        }
        rows.retain(|row| row.get("sealed_key").as_bytes().is_some());
        Ok(Self(rows))
    }

    #[must_use]
    pub const fn count(&self) -> usize {
        self.0.len()
    }

    /// The keys that this sealing key does not decrypt; without one, all of them.
    #[must_use]
    pub fn undecryptable_with(self, key: Option<&[u8; 32]>) -> Self {
        let closed = |row: &Row| {
            let sealed = row.get("sealed_key").as_bytes();
            key.zip(sealed).is_none_or(|(key, sealed)| {
                seal::open(key, &key_context(row.text("actor_id"), row.uuid("id")), sealed).is_none()
            })
        };
        Self(self.0.into_iter().filter(closed).collect())
    }

    #[must_use]
    pub fn actors(&self) -> BTreeSet<&str> {
        self.0.iter().map(|row| row.text("actor_id")).collect()
    }

    /// The updates that revoke them.
    pub fn revoke(&self, now: Timestamp) -> Result<Vec<Update>, InvalidTx> {
        let revoke = |row: &Row| {
            let unrevoked = vec![("revoked_at", chimera_core::record::Value::Null)];
            Update::new(&ACTOR_KEYS, vec![row.uuid("id").into()], unrevoked, vec![("revoked_at", now.into())])
        };
        self.0.iter().map(revoke).collect()
    }
}
