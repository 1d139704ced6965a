//! The deterministic simulator: the real engine on the in-memory store, with injected faults in tools and
//! store, random user actions, crashes and clock jumps.
//!
//! Everything runs on one thread in paused time, and every choice is drawn from the seed, so a seed always
//! reproduces the same simulation. After a phase with faults comes a phase without: people then answer
//! every request, every run must end, and the final state must be consistent.

pub mod judge;
pub mod node;
pub mod people;
mod settle;
mod story;
pub mod tool;
pub mod weather;
pub mod wire;
mod workflow;

pub use story::{Report, simulate};
