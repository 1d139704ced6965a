//! Integration tests of the use cases. They are written against the port `Records`: any store
//! that keeps its contract can stand in for the small one here.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod audit;
mod checkpoint;
mod export;
mod feed;
mod idempotency;
mod memory;
mod verify;
mod world;
