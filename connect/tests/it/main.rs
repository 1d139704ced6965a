//! Tools against real servers on this machine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod http;
mod redirect;
mod server;
mod slack;
mod webhook;
