//! For tests only: private servers, contract suites, the memory store.

pub mod postgres;
