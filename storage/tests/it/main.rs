//! Storage against the real things: files, PostgreSQL, Redis, S3.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod differential;
mod lanes;
mod migrate;
mod records;
mod schema;
