//! The act room: how goals become plans.

mod planner;

pub use planner::{WordPlanner, plan};
