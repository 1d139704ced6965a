//! For tests only: private servers, contract suites, the memory store.

pub mod build;
pub mod memory;
pub mod postgres;
pub mod proxy;
pub mod seeded;
pub mod suite;
