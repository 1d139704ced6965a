//! Storage against the real things: files, PostgreSQL, Redis, S3.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod blobs;
mod bus;
mod counters;
mod secrets;
