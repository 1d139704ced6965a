//! Tests of the flow room: workflows, and patches of running graphs.

mod air;
mod examples;
mod faults;
mod fuzzed;
mod given;
mod judge;
mod patch;
mod properties;
mod reservation;
mod types;
#[path = "../../../../expr/tests/it/run_scope.rs"]
#[allow(dead_code)]
mod values;
mod waits;
