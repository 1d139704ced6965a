//! The swarm room.

pub mod tables;
