//! The flow room in motion: tools, runs and what keeps them going.

mod registry;

pub use registry::{Registry, Twice};
