//! Tools against real servers on this machine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod declared;
mod http;
mod redirect;
mod reference;
mod server;
mod slack;
mod vendor;
mod webhook;
