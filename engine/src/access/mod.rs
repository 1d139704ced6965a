//! Access: authentication, authorization, rate limits, and the registry of actors and tenants.

mod actors;
mod alongside;
mod authenticator;
mod directory;
mod expired_keys;
mod flood;
mod message_proof;
mod nonces;
mod permit;
pub mod port;
mod published_keys;
mod rank;
mod rate;
mod refusals;
mod registry_change;
mod remove;
mod sealed_keys;
mod service;
mod settings;
mod signing_key_cache;
mod signing_key_limits;
mod signing_keys;
mod strangers;
mod tenant_secrets;
mod tenants;
mod tokens;

pub use actors::{ActorView, NewKey, add_key, list_actors, put_actor, show_actor, stored_entry};
pub use authenticator::{AuthenticatedCaller, Authenticator, Credentials, Rejection, RequestProof};
pub use directory::{Directory, DirectoryPorts, Snapshot};
pub(crate) use nonces::{is_nonce_conflict, nonce_used};
pub(crate) use permit::link_holder;
pub use permit::{
    ACTORS_READ, ACTORS_WRITE, APPROVALS_DECIDE, AUDIT_READ, AUTONOMY_OVERRIDE, Credential, EVENTS_PUBLISH, Permit,
    RUNS_MANAGE, RUNS_READ, WORK_CLAIM, WORKFLOWS_READ, WORKFLOWS_WRITE, local_operator, missing_scope_error,
};
pub use rate::{Rate, Rates};
pub use remove::remove_actor;
pub(crate) use remove::stored_person;
pub use sealed_keys::SealedKeys;
pub use service::Access;
pub use settings::{CounterFallback, Settings};
pub use signing_keys::{
    AddedSigningKey, NewSigningKey, RotatedSigningKey, SigningKeyView, add_signing_key, list_signing_keys,
    revoke_signing_key, rotate_signing_key,
};
pub use tenant_secrets::TenantSecrets;
pub use tenants::{TenantView, act_for, add_tenant, list_tenants, set_tenant_disabled, show_tenant};
pub use tokens::{SignIn, Tokens, issue_operator_token, refresh_tokens, revoke_token, sign_in};
