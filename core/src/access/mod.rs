//! The access room.

mod autonomy;
mod kind;
mod plan;
pub mod risk;
mod secret;
pub mod tables;
pub mod window;

pub use autonomy::{Because, Decided, Facts, Level, OverrideForbidden, determine_autonomy_level};
pub use kind::{ADMIN, fits, kind_of};
pub use plan::{Plan, PlanStep};
pub use secret::{InvalidSecretName, Secret, SecretName};
