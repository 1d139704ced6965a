//! The act room: from a request to a decision. Risk scoring, autonomy levels, and planning errors.

pub mod autonomy;
mod planner;
pub mod risk;

pub use autonomy::{AutonomyFacts, OverrideForbidden, determine_autonomy_level};
pub use planner::{PlanError, excerpt};
