//! A flow engine for tests: scripted tools that count what reaches the outside, a world in which it
//! happens, and the engine on any store.

mod engine;
mod outside;
mod tool;

pub use engine::{Nobody, World, engine, engine_with};
pub use outside::{Outside, Sent};
pub use tool::{Behave, Script, Scripted};
