//! Whether the key that seals actors' keys is the one that they were sealed under.
//!
//! Keys that can't be opened don't count, so with another key nobody can sign in. Whoever opens a
//! store asks here first.

use super::directory::place;
use super::ended;
use crate::port::{ReadError, Records};
use chimera_core::access::seal;
use chimera_core::access::tables::ACTOR_KEYS;
use chimera_core::limits::PAGE_ROWS_MAX;
use chimera_core::record::{InvalidTx, Row, Update};
use chimera_core::time::Timestamp;
use std::collections::BTreeSet;

/// The actors' keys that the store holds sealed and that would count now.
pub struct SealedKeys(Vec<Row>);

impl SealedKeys {
    /// Reads them.
    pub async fn read(records: &dyn Records, now: Timestamp) -> Result<Self, ReadError> {
        let mut rows = Vec::new();
        for select in ended::counting(now) {
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

    /// How many there are.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.0.len()
    }

    /// Those that this key does not open; without a key that is all of them.
    #[must_use]
    pub fn closed_to(self, key: Option<&[u8; 32]>) -> Self {
        let closed = |row: &Row| {
            let sealed = row.get("sealed_key").as_bytes();
            key.zip(sealed).is_none_or(|(key, sealed)| {
                seal::open(key, &place(row.text("actor_id"), row.uuid("id")), sealed).is_none()
            })
        };
        Self(self.0.into_iter().filter(closed).collect())
    }

    /// Whose they are.
    #[must_use]
    pub fn actors(&self) -> BTreeSet<&str> {
        self.0.iter().map(|row| row.text("actor_id")).collect()
    }

    /// Revokes them.
    pub fn revoke(&self, now: Timestamp) -> Result<Vec<Update>, InvalidTx> {
        let revoke = |row: &Row| {
            let unrevoked = vec![("revoked_at", chimera_core::record::Value::Null)];
            Update::of(&ACTOR_KEYS, vec![row.uuid("id").into()], unrevoked, vec![("revoked_at", now.into())])
        };
        self.0.iter().map(revoke).collect()
    }
}
