//! The access room.

mod autonomy;
mod kind;
mod plan;
pub mod planner;
mod secret;
pub mod tables;
pub mod window;

pub use autonomy::Level;
pub use kind::{ADMIN, fits, kind_of};
pub use plan::{Plan, PlanStep};
pub use planner::PlanError;
pub use secret::{InvalidSecretName, Secret, SecretName};
