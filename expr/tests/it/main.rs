//! Integration tests of the expression language.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod agree;
mod cost;
mod given;
mod language;
