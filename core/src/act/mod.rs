//! The act room: from a request to a decision. Risk scoring, autonomy levels, planning errors, and schedules.

pub mod autonomy;
mod planner;
pub mod risk;
pub mod schedule;
pub mod tables;

pub use autonomy::{AutonomyFacts, OverrideForbidden, determine_autonomy_level};
pub use planner::{PlanError, excerpt};
