//! The tests of the workspace as a whole.
//!
//! `tidy` reads the source tree and `cargo metadata` and holds them to the rules of the house.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod tidy;
