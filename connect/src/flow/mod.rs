//! The tools of the flow room, one file each.

mod artifact;
mod input;
pub mod local;

pub use local::local_tools;
