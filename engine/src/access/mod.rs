//! The access room in motion: who may use what.

mod actors;
mod directory;
mod door;
mod error;
mod permit;
mod rate;
mod refused;
mod settings;
mod tokens;

pub use actors::{NewKey, Shown};
pub use directory::{Directory, Parts, Snapshot};
pub use door::{Admitted, Door, Presented, Turned};
pub use error::AccessError;
pub use permit::{
    ACTORS_READ, ACTORS_WRITE, APPROVALS_DECIDE, AUDIT_READ, AUTONOMY_OVERRIDE, Permit, RUNS_MANAGE, RUNS_READ,
    WORKFLOWS_READ, WORKFLOWS_WRITE, lacking,
};
pub use rate::{Rate, Rates};
pub use settings::{Settings, WithoutCounters};
pub use tokens::{SignIn, Tokens};
