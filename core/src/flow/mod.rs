//! The flow room.

pub mod tables;
