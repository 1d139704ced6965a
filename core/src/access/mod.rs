//! The access room.

mod actor;
pub mod address;
mod autonomy;
mod kind;
mod layout;
pub mod mac;
mod plan;
pub mod planner;
mod pool;
pub mod registry;
pub mod risk;
mod role;
pub mod scope;
pub mod seal;
mod secret;
pub mod signature;
pub mod tables;
pub mod tenant;
pub mod token;
pub mod window;

pub use actor::Actor;
pub use autonomy::{Because, Decided, Facts, Level, OverrideForbidden, determine_autonomy_level};
pub use kind::{ADMIN, fits, overlap};
pub use layout::Children;
pub(crate) use layout::{Beforehand, OfItem};
pub use plan::{Plan, PlanStep};
pub use planner::PlanError;
pub use pool::Pool;
pub use registry::{ANONYMOUS, BadEntry, Entry, Kind, Registry};
pub use role::{BadRole, Role, Roles};
pub use secret::{InvalidSecretName, Secret, SecretName};
pub use tenant::{Guest, Shared, Tenant};
