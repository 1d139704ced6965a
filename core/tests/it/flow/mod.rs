//! The flow room: workflows, their expressions, and patches of running graphs.

mod agree;
mod air;
mod cost;
mod examples;
mod expr;
mod fuzzed;
mod given;
mod patch;
mod properties;
mod types;
