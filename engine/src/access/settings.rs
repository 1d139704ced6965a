//! How the door is set up.

use chimera_core::access::registry::Entry;
use chimera_core::access::token::TokenKey;
use chimera_core::access::{Role, Tenant};
use chimera_core::secret::Secret;
use std::collections::BTreeMap;
use std::time::Duration;

/// What decides when the shared counters can't be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithoutCounters {
    /// Nobody: requests are refused until they are back.
    Refuse,
    /// The database decides about keys, and every node counts requests for itself.
    Database,
}

/// How the door is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The tenant of whoever has no other.
    pub tenant: String,
    /// Entries of the configuration, over the shipped ones.
    pub entries: Vec<Entry>,
    /// Roles of the configuration. They name tenants by their slugs.
    pub roles: Vec<Role>,
    /// What tenants registered, by their ids.
    pub tenants: BTreeMap<String, Tenant>,
    /// Keys of actors that the configuration holds.
    pub keys: Vec<(String, Secret)>,
    /// Keys of access tokens; the first one signs.
    pub token_keys: Vec<TokenKey>,
    /// Whom tokens are for.
    pub audience: String,
    /// Only the document's four rules about scopes count.
    pub strict_scopes: bool,
    /// What an actor does for the first time is drafted.
    pub cautious: bool,
    /// How long an answer under a key is remembered in the shared counters.
    pub idempotency_ttl: Duration,
    /// What decides when the shared counters can't be reached.
    pub without_counters: WithoutCounters,
}
