//! The job room: so far, the execution log.

pub mod executions;
