//! Access: authentication, authorization, rate limits, and the registry of actors and tenants.

mod actors;
mod directory;
mod door;
mod ended;
mod entrance;
mod flood;
mod once;
mod permit;
pub mod port;
mod rank;
mod rate;
mod refused;
mod remove;
mod sealed;
mod settings;
mod strangers;
mod tenant_secrets;
mod tenants;
mod tokens;

pub use actors::{NewKey, ActorView};
pub use directory::{Directory, DirectoryPorts, Snapshot, stored_entry};
pub use door::{Authenticator, AuthenticatedCaller, Credentials, RequestProof, Rejection};
pub use entrance::Access;
pub(crate) use once::{is_nonce_conflict, nonce_used};
pub(crate) use permit::link_holder;
pub use permit::{
    ACTORS_READ, ACTORS_WRITE, APPROVALS_DECIDE, AUDIT_READ, AUTONOMY_OVERRIDE, Permit, RUNS_MANAGE, RUNS_READ,
    WORKFLOWS_READ, WORKFLOWS_WRITE, missing_scope_error, local_operator,
};
pub use rate::{Rate, Rates};
pub use sealed::SealedKeys;
pub use settings::{Settings, CounterFallback};
pub use tenant_secrets::TenantSecrets;
pub use tenants::TenantView;
pub use tokens::{SignIn, Tokens};
