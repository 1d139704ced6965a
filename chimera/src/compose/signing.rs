//! Who was going to sign the ledger, before anything is signed.
//!
//! A checkpoint tells whose key signs. Before the first one only the ledger's own entries do: every node says when it
//! starts which key it signs with. So a key that is lost in between is missed as well, and not replaced without a word.

use super::{SYSTEM_TENANT, entries_marked};
use crate::config::Config;
use crate::failure::Outcome;
use chimera_core::ledger::checkpoint::{PublicKey, Signer};
use chimera_core::ledger::tables::AUDIT_LOG_ENTRIES;
use chimera_core::limits::PAGE_ROWS_MAX;
use chimera_core::record::{Row, Scope, Select};
use chimera_engine::port::Records;
use serde_json::{Value, json};

/// The entry of a node that starts.
pub(super) const STARTED: &str = "NodeStarted";

/// The member of that entry that names the key.
const SIGNER: &str = "signer";

/// What a node that starts says about its key.
pub(super) fn announcement(signer: &Signer) -> Value {
    json!({ SIGNER: signer.key_id() })
}

/// Whether the store was used from this data folder before. Another folder of a shared database has keys of its own.
pub(super) fn was_here(config: &Config) -> bool {
    config.database_url.is_none() || entries_marked(config).is_ok_and(|entries| entries > 0)
}

/// A key that was announced, if some were and none of them is known here.
pub(super) async fn unknown(records: &dyn Records, known: &[PublicKey]) -> Outcome<Option<String>> {
    let select = Select::from(&AUDIT_LOG_ENTRIES, Scope::System).with("tenant_id", SYSTEM_TENANT);
    let (started, _) = records.first(select.with("event_type", STARTED), PAGE_ROWS_MAX).await?;
    let announced: Vec<String> = started.iter().filter_map(announced).collect();
    let is_known = |id: &String| known.iter().any(|key| key.id() == *id);
    Ok(if announced.iter().any(is_known) { None } else { announced.into_iter().next_back() })
}

fn announced(row: &Row) -> Option<String> {
    row.get("data_json").as_json()?.to_value()[SIGNER].as_str().map(str::to_owned)
}
