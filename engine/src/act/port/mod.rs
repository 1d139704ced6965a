//! What the act room needs from outside: somebody who turns a goal into steps.

mod planner;

pub use planner::Planner;
