//! HTTP: the client that every call goes through, and the tool `http.request`.

mod answer;
mod aside;
mod client;
mod egress;
mod failure;
mod keyring;
mod request;
mod resolve;
mod tool;

pub use answer::{Answer, Opened};
pub use client::{Client, ClientError, IDEMPOTENCY_KEY, Settings};
pub(crate) use egress::authority_of;
pub use egress::{Egress, InvalidEgress, Pass, Refused};
pub(crate) use failure::lasting;
pub(crate) use keyring::Keyring;
pub use request::{Call, Care, Request};
pub use tool::HttpRequest;
