//! The job room: sandboxed agent jobs. So far its tables, and the execution log.

pub mod executions;
pub mod tables;
