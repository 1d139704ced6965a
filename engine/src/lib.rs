//! Use cases, the ports they need, and the background loops.
//!
//! A port is a trait that an adapter in `storage`, `connect` or `sandbox` implements. A use case loads rows, asks
//! `core` to decide, commits, and only then performs effects.

pub mod access;
pub mod act;
pub mod audit;
pub mod commit;
mod error;
pub mod fair_slots;
pub mod flow;
pub mod heartbeat;
pub mod intent;
pub mod job;
pub mod ledger;
pub(crate) mod offload;
pub mod port;
mod rows;

pub use error::EngineError;
