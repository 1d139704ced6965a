//! Everything that Chimera calls: tools over HTTP, mail, webhooks, object storage.
//!
//! Secrets are resolved only here, at the time of the call. Nothing here decides whether a call may happen: the
//! caller has already committed the record that asks for it.

pub mod act;
pub mod client;
mod cpu_pool;
pub mod flow;
pub mod http;
