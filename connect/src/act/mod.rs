//! Planning for the act room: turns goals into plans.

mod planner;

pub use planner::{WordPlanner, plan};
