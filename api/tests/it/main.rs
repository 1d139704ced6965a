//! The HTTP edge over a real socket.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod access;
mod artifacts;
mod connections;
mod downloads;
mod errors;
mod floods;
mod flow;
mod heads;
mod ops;
mod reference;
mod support;
mod tracing_headers;
