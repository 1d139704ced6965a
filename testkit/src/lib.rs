//! For tests only: private servers, contract suites, the memory store.
#![allow(clippy::disallowed_methods, reason = "tests hold the real clock and the real environment")]

pub mod build;
pub mod memory;
pub mod postgres;
pub mod proxy;
pub mod seeded;
pub mod suite;
