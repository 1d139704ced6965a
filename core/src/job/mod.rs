//! The job room: sandboxed agent jobs. Tables only so far.

pub mod tables;
