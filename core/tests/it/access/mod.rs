//! The access room from outside.

mod planner;
