//! Settings of access control.

use chimera_core::access::registry::ActorEntry;
use chimera_core::access::token::TokenKey;
use chimera_core::access::{Role, TenantSettings};
use chimera_core::secret::Secret;
use std::collections::BTreeMap;
use std::time::Duration;

/// What decides when the shared counters can't be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterFallback {
    /// Requests are refused until they are back.
    Refuse,
    /// The database decides on idempotency keys, and every node counts requests for itself.
    Database,
}

#[derive(Clone, Debug)]
pub struct Settings {
    /// The default tenant.
    pub tenant: String,
    /// Configured entries; they override the built-in ones.
    pub entries: Vec<ActorEntry>,
    /// Configured roles. They name tenants by slug.
    pub roles: Vec<Role>,
    /// Configured tenants. The default one by id, others by slug.
    pub tenants: BTreeMap<String, TenantSettings>,
    /// Configured actor keys.
    pub keys: Vec<(String, Secret)>,
    /// Keys for access tokens; the first one signs.
    pub token_keys: Vec<TokenKey>,
    /// The `aud` claim of tokens.
    pub audience: String,
    /// Apply only the four scope rules of the specification.
    pub strict_scopes: bool,
    /// Draft every kind of action that an actor requests for the first time.
    pub cautious: bool,
    /// How long a response is cached by idempotency key in the shared counters.
    pub idempotency_ttl: Duration,
    /// What decides when the shared counters can't be reached.
    pub counter_fallback: CounterFallback,
}
