//! The real binary: what it prints, how it ends, what it leaves behind.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod commands;
mod configuration;
mod logs;
mod otlp;
mod secrets;
mod server;
mod support;
