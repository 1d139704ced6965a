//! Integration tests of the pure domain.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod jcs;
mod merkle;
