//! The flow room: what workflows, tools and runs are, and how a run goes on.

pub mod air;
pub mod call;
pub mod destination;
pub mod expr;
pub mod patch;
pub mod pins;
pub mod review;
pub mod run;
pub mod schema;
pub mod tables;
pub mod tool;
pub mod trace;
