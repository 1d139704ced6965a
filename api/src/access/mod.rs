//! Endpoints for sign-in, actors and tenants.

pub(crate) mod actor_get;
pub(crate) mod actor_key;
pub(crate) mod actor_list;
pub(crate) mod actor_put;
pub(crate) mod actor_remove;
pub(crate) mod intent_keys;
pub(crate) mod jwks;
pub(crate) mod notify;
pub(crate) mod signing_key_add;
pub(crate) mod signing_key_list;
pub(crate) mod signing_key_revoke;
pub(crate) mod signing_key_rotate;
pub(crate) mod tenant_add;
pub(crate) mod tenant_get;
pub(crate) mod tenant_list;
pub(crate) mod tenant_set;
pub(crate) mod token;
pub(crate) mod token_refresh;
pub(crate) mod token_revoke;
pub(crate) mod wire;
