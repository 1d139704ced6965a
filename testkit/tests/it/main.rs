//! Tests of the workspace as a whole.
//!
//! `tidy` checks the source tree and `cargo metadata` against the coding rules.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod tidy;
