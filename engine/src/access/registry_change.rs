//! Changes of the registry, which are checked against all of a tenant's registry.
//!
//! Some rules are about many rows: an address belongs to one person, an actor has so many keys, a tenant so many actors.
//! They are checked in the directory's snapshot, which may be older than the store. So every change compares and
//! increments the version of its tenant's row. If the registry has changed since the snapshot was read, the change
//! conflicts, and is checked again in a newer one. The caller's rights are looked up again for each attempt: somebody
//! may have taken them away while the change waited for its turn.

use super::directory::{Directory, Snapshot};
use super::permit::Permit;
use crate::error::EngineError;
use crate::port::CommitError;
use chimera_core::access::tables::TENANTS;
use chimera_core::limits::REGISTRY_CHANGE_TRIES_MAX;
use chimera_core::record::{Conflict, RowKey, Tx, Update};
use futures::future::BoxFuture;

/// Makes a change with what the caller may do now, again if it conflicts.
pub(super) async fn change_registry<'a, T>(
    directory: &Directory,
    permit: &Permit,
    attempt: impl Fn(Permit) -> BoxFuture<'a, Result<T, EngineError>> + Send + Sync,
) -> Result<T, EngineError> {
    // Changes of this process take turns, so that they only conflict with those of other nodes.
    let _turn = directory.changes.acquire(&permit.claimant()).await;
    for _ in 1..REGISTRY_CHANGE_TRIES_MAX {
        match attempt(directory.renew(permit)?).await {
            Err(EngineError::Commit(error @ CommitError::Conflict(_))) if !permit.is_alongside_conflict(&error) => {
                directory.refresh().await?;
            }
            done => return done,
        }
    }
    attempt(directory.renew(permit)?).await
}

/// Makes a transaction conflict if a tenant's registry has changed since `seen` was read.
pub(super) fn expect_registry(tx: &mut Tx, seen: &Snapshot, tenant: &str) -> Result<(), EngineError> {
    let key = vec![tenant.into()];
    let Some(known) = seen.tenants.get(tenant) else {
        // The tenant was stored since then.
        let row = RowKey { table: TENANTS.name, columns: TENANTS.key, values: key };
        return Err(CommitError::Conflict(Conflict::Stale(row)).into());
    };
    tx.updates.push(Update::versioned(&TENANTS, key, known.version, Vec::new())?);
    Ok(())
}
