//! `chimera audit …`: reads, exports and verifies the ledger.

pub(super) mod export;
pub(crate) mod ledger;
pub(super) mod list;
pub(super) mod verify;

use crate::failure::Outcome;
use chimera_core::access::tables::{TenantRow, tenants};
use chimera_core::record::{Scope, StoredRow};
use chimera_engine::EngineError;
use chimera_engine::port::Records;

/// Resolves a tenant slug; any other text is taken as an id.
async fn tenant_id(records: &dyn Records, named: &str) -> Outcome<String> {
    let select = TenantRow::select(Scope::System).with(tenants::slug, named).take(1);
    let row = records.read(select).await?.rows.into_iter().next();
    let row = row.map(TenantRow::decode).transpose().map_err(EngineError::from)?;
    Ok(row.map_or_else(|| named.to_owned(), |row| row.id))
}
