//! The access room in motion: who may use what.

mod permit;
mod planner;

pub use permit::{Doorkeeper, Permit};
pub use planner::WordPlanner;
