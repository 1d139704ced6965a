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
mod tenant_secrets;
mod tenants;
mod tokens;

pub use actors::{NewKey, Shown};
pub use directory::{Directory, Parts, Snapshot, stored_entry};
pub use door::{Door, Known, Presented, Proof, Turned};
pub use entrance::Access;
pub(crate) use once::{is_repeated, used_before};
pub(crate) use permit::link_holder;
pub use permit::{
    ACTORS_READ, ACTORS_WRITE, APPROVALS_DECIDE, AUDIT_READ, AUTONOMY_OVERRIDE, Permit, RUNS_MANAGE, RUNS_READ,
    WORKFLOWS_READ, WORKFLOWS_WRITE, lacking, local_operator,
};
pub use rate::{Rate, Rates};
pub use sealed::SealedKeys;
pub use settings::{Settings, WithoutCounters};
pub use tenant_secrets::TenantSecrets;
pub use tenants::TenantShown;
pub use tokens::{SignIn, Tokens};
