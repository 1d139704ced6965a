//! Everything that Chimera calls: tools behind HTTP, mail, webhooks, object storage.
//!
//! Secrets are resolved here and nowhere else, at the moment of the call. Nothing here decides
//! whether a call may happen: whoever calls has committed the record that asks for it.

pub mod act;
mod blocking;
pub mod client;
pub mod flow;
pub mod http;
