//! The HTTP client that every call goes through: egress rules, secrets, limits, answers.

mod answer;
mod aside;
mod client;
mod egress;
mod failure;
mod keyring;
mod request;
mod resolve;

pub use answer::{Answer, Opened};
pub use client::{Client, ClientError, IDEMPOTENCY_KEY, Settings};
pub use egress::{Egress, InvalidEgress, Pass, Refused};
pub(crate) use egress::{authority_of, host_of};
pub(crate) use failure::lasting;
pub(crate) use keyring::{Keyring, SentSecrets, reference};
pub use request::{Call, Care, Request};
