//! Finds the announced signing key of a ledger that has no checkpoint yet.
//!
//! A checkpoint names its signing key. Before the first checkpoint, only ledger entries do: every node records at start
//! which key it signs with. So a key that is lost in between is detected, too, and not silently replaced.

use super::{SYSTEM_TENANT, entries_marked};
use crate::config::Config;
use crate::failure::Outcome;
use chimera_core::ledger::checkpoint::{PublicKey, Signer};
use chimera_core::ledger::stored_names;
use chimera_core::ledger::tables::{EntryRow, audit_log_entries};
use chimera_core::limits::PAGE_ROWS_MAX;
use chimera_core::record::{Scope, StoredRow};
use chimera_engine::EngineError;
use chimera_engine::port::Records;
use serde_json::{Value, json};

pub(super) const STARTED: &str = "node.started";

const SIGNER: &str = "signer";

/// Data of the start entry.
pub(super) fn announcement(signer: &Signer) -> Value {
    json!({ SIGNER: signer.key_id() })
}

/// Whether the store was used from this data folder before. Another folder of a shared database has keys of its own.
pub(super) fn used_this_store(config: &Config) -> bool {
    config.database_url.is_none() || entries_marked(config).is_ok_and(|entries| entries > 0)
}

/// The last announced key, if none of the announced keys is known here.
pub(super) async fn unknown_announced_key(records: &dyn Records, known: &[PublicKey]) -> Outcome<Option<String>> {
    let select = EntryRow::select(Scope::System).with(audit_log_entries::tenant_id, SYSTEM_TENANT);
    let select = select.one_of(audit_log_entries::event_type, stored_names(STARTED));
    let (started, _) = records.first(select, PAGE_ROWS_MAX).await?;
    let mut announced = Vec::new();
    for row in started {
        let data = EntryRow::decode(row).map_err(EngineError::from)?.data_json.value().map_err(EngineError::from)?;
        announced.extend(data[SIGNER].as_str().map(str::to_owned));
    }
    let is_known = |id: &String| known.iter().any(|key| key.id() == *id);
    Ok(if announced.iter().any(is_known) { None } else { announced.into_iter().next_back() })
}
