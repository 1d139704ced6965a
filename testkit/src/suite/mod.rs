//! Contract suites: every implementation of a port passes the same sentences.

pub mod records;
