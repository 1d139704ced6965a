//! Integration tests of the expression language.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod conformance;
mod cost;
mod language;
mod run_scope;
