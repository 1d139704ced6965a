//! The pure domain of Chimera: types, state machines, canonical JSON, hashing.
//!
//! Nothing here is async, opens a file, reads a clock or draws a random number: time, ids and randomness are
//! arguments. Modules that all rooms share (errors, ids, JSON, limits, text, time, records) are at the top level;
//! everything else is in its room.

pub mod access;
pub mod act;
pub mod audit;
mod catalog;
pub mod error;
pub mod flow;
pub mod id;
pub mod intent;
pub mod job;
pub mod json;
pub mod ledger;
pub mod limits;
pub mod record;
pub mod redact;
pub mod secret;
pub mod swarm;
pub mod text;
pub mod time;
pub mod tool;
mod words;

pub use catalog::catalog;
