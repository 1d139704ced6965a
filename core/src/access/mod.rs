//! The access room: actors, scopes, roles, tokens, signatures, rate limits and tenants.

mod actor;
pub mod address;
mod kind;
mod level;
mod line;
pub mod mac;
mod mail;
mod not_decider;
mod person;
mod pool;
pub mod registry;
mod role;
pub mod scope;
pub mod seal;
pub mod signature;
pub mod tables;
pub mod tenant;
pub mod token;
pub mod window;

pub use actor::Actor;
pub use kind::{ADMIN, matches_pattern, overlap};
pub use level::Level;
pub use line::{Claimant, FairQueue, QueueFull};
pub use mail::{BadMail, check_mail, normalize_mail_address};
pub use not_decider::DeciderRefusal;
pub use pool::Pool;
pub use registry::{ANONYMOUS, InvalidActorEntry, Entry, Kind, Registry};
pub use role::{InvalidRole, Role, Roles};
pub use tenant::{Guest, SharedResources, TenantSettings};
