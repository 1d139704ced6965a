//! The deterministic simulator: the real engine on the in-memory store, with injected faults in tools and
//! store, random user actions, crashes and clock jumps.
//!
//! Everything runs on one thread in paused time, and every choice is drawn from the seed, so a seed always
//! reproduces the same simulation. After a phase with faults comes a phase without: people then answer
//! every request, every run must end, and the final state must be consistent.

pub mod fault_injector;
pub mod invariants;
mod limits;
pub mod node;
pub mod people;
pub mod port_switch;
mod settle;
mod simulation;
pub mod tool;
mod worker;
mod workflow;

pub use simulation::{Report, simulate};
