//! One seed, one world: the real engine on a store in memory, with tools, people, crashes and a
//! store that misbehave, under a clock that only the world moves.
//!
//! Everything runs on one thread in paused time and every choice is drawn from the seed, so a seed
//! tells the same story each time. After a bad while the world becomes good and people answer
//! whatever is asked of them: then every run must end, and everything must fit together.

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
