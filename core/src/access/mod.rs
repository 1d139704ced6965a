//! The access room.

pub mod tables;
