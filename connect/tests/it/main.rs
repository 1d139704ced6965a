//! Tools against real servers on this machine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::disallowed_methods, reason = "tests hold the real environment")]

mod given;
mod local;
mod mail;
mod pdf;
mod s3;
