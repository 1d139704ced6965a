//! The job room.

pub mod tables;
