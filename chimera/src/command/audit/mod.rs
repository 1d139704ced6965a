//! `chimera audit …`: reads, exports and verifies the ledger.

pub(super) mod export;
pub(crate) mod ledger;
pub(super) mod list;
pub(super) mod verify;

use crate::failure::Outcome;
use chimera_core::access::tables::TENANTS;
use chimera_core::record::{Scope, Select};
use chimera_engine::port::Records;

/// Resolves a tenant slug; any other text is taken as an id.
async fn tenant_id(records: &dyn Records, named: &str) -> Outcome<String> {
    let select = Select::from(&TENANTS, Scope::System).with("slug", named).take(1);
    let page = records.read(select).await?;
    Ok(page.rows.first().map_or_else(|| named.to_owned(), |row| row.text("id").to_owned()))
}
