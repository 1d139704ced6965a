//! The access room in motion: who may use what.

mod permit;

pub use permit::{Doorkeeper, Permit};
