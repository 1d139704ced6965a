//! Integration tests of the pure domain.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod act;
mod checkpoint;
mod ed25519;
mod entry;
mod export;
mod flow;
mod given;
mod idempotency;
mod intent;
mod json;
mod lanes;
mod merkle;
mod overridden;
