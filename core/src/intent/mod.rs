//! The intent room.

pub mod tables;
