//! Use cases and the ports they need; the loops that keep the system moving.
//!
//! A port is a trait that an adapter in `storage`, `connect` or `sandbox` implements. Use cases
//! load rows, ask `core` to decide, commit, and only then perform effects.

pub mod access;
pub mod act;
pub mod audit;
pub mod commit;
mod error;
pub mod flow;
pub mod ledger;
pub(crate) mod offload;
pub mod port;
pub mod pulse;
mod rows;
pub mod turns;

pub use error::EngineError;
