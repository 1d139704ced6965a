//! The access room: actors, scopes, roles, tokens, signatures, rate limits and tenants.

mod actor;
pub mod address;
mod decider_refusal;
pub mod destination;
mod fair_queue;
mod kind;
mod level;
pub mod mac;
mod mail;
pub mod person;
mod pool;
pub mod registry;
mod role;
pub mod scope;
pub mod seal;
pub mod signature;
mod signing;
pub mod tables;
pub mod tenant;
pub mod token;
pub mod window;

pub use actor::Actor;
pub use decider_refusal::DeciderRefusal;
pub use fair_queue::{Claimant, FairQueue, QueueFull};
pub use kind::{ADMIN, matches_pattern, overlap};
pub use level::Level;
pub use mail::{BadMail, check_mail, normalize_mail_address};
pub use pool::Pool;
pub use registry::{ANONYMOUS, ActorEntry, EntrySource, InvalidActorEntry, Kind, Registry};
pub use role::{InvalidRole, Role, Roles};
pub use tenant::{Guest, SharedResources, TenantSettings};
