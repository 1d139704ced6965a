//! What the engine needs from outside. The doc comments are the contracts; one suite in
//! `testkit` checks every implementation against them.

mod ambient;
mod records;

pub use ambient::{Clock, Random};
pub use records::{CommitError, ReadError, Receipt, Records, Unavailable};
