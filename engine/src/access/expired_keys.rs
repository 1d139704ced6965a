//! Expired and revoked actor keys: they are no longer loaded, and their rows are deleted.
//!
//! The row of a key from the configuration is kept forever: it records that the key was replaced. Without the row the
//! key would be valid again.

use super::directory::Directory;
use crate::error::EngineError;
use crate::rows;
use chimera_core::access::tables::{ACTOR_KEYS, ActorKeyRow, actor_keys};
use chimera_core::limits::EXPIRED_KEYS_SWEPT_MAX;
use chimera_core::record::{Comparison, Condition, Row, RowCount, Scope, Select, Step, StoredRow, Tx, Value};
use chimera_core::secret::Secret;
use chimera_core::time::Timestamp;
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// Selects all keys that are valid now or will be.
pub(super) fn select_valid_keys(now: Timestamp) -> [Select; 2] {
    let unrevoked = || ActorKeyRow::select(Scope::System).with(actor_keys::revoked_at, Value::Null);
    [
        unrevoked().with(actor_keys::expires_at, Value::Null),
        unrevoked().filter(actor_keys::expires_at, Comparison::Above, now),
    ]
}

/// The row id of a configured key. A row exists only once the key was replaced.
pub(super) fn configured_id(actor: &str, secret: &Secret) -> Uuid {
    let digest = Sha256::new().chain_update(b"configured").chain_update(actor).chain_update([0]);
    let digest = digest.chain_update(secret.expose()).finalize();
    Uuid::from_bytes(std::array::from_fn(|at| digest[at]))
}

/// Whether a configured key has a row, which means that it was replaced.
pub(super) async fn is_replaced(directory: &Directory, id: Uuid) -> Result<bool, EngineError> {
    let select = Select::from(&ACTOR_KEYS, Scope::System).with(actor_keys::id, id).take(1);
    Ok(!directory.parts.records.read(select).await?.rows.is_empty())
}

/// Deletes keys that expired or were revoked by this time.
pub(super) async fn sweep_keys(directory: &Directory, now: Timestamp) -> Result<(), EngineError> {
    for column in [actor_keys::expires_at, actor_keys::revoked_at] {
        let select = ActorKeyRow::select(Scope::System).filter(column, Comparison::AtMost, now);
        let mut select = select.take(EXPIRED_KEYS_SWEPT_MAX);
        loop {
            let page = directory.parts.records.read(select.clone()).await?;
            delete_expired(directory, page.rows, column, now).await?;
            match page.next {
                Some(after) => select.after = Some(after),
                None => break,
            }
        }
    }
    Ok(())
}

async fn delete_expired(
    directory: &Directory,
    rows: Vec<Row>,
    column: &'static str,
    now: Timestamp,
) -> Result<(), EngineError> {
    let mut steps = Vec::new();
    for row in rows::decodable::<ActorKeyRow>(rows) {
        if is_stored_key(directory, &row).await {
            let is = |column, compare, value| Condition { column, compare, value };
            let conditions =
                vec![is(actor_keys::id, Comparison::Is, row.id.into()), is(column, Comparison::AtMost, now.into())];
            steps.push(Step::Delete { table: &ACTOR_KEYS, conditions, rows: RowCount::AtMost(1) });
        }
    }
    if !steps.is_empty() {
        directory.parts.records.commit(Tx { steps, ..Tx::default() }).await?;
    }
    Ok(())
}

/// Whether a key was created in the store. One that can't be decrypted may come from the configuration.
async fn is_stored_key(directory: &Directory, row: &ActorKeyRow) -> bool {
    let opened = directory.open(row).await;
    opened.is_some_and(|secret| configured_id(&row.actor_id, &secret) != row.id)
}
