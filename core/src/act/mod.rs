//! The act room: from a request to a decision: how risky it is, how freely it may run, why a goal has no plan.

pub mod autonomy;
mod planner;
pub mod risk;

pub use autonomy::{Facts, OverrideForbidden, determine_autonomy_level};
pub use planner::{PlanError, excerpt};
