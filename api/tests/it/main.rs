//! The HTTP edge over a real socket.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod access;
mod artifacts;
mod connection_limits;
mod connections;
mod downloads;
mod errors;
mod flow;
mod intent;
mod ops;
mod reference;
mod request_heads;
mod support;
mod tracing_headers;
