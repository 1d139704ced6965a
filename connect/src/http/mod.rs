//! The HTTP client that every call goes through: egress rules, secrets, limits, answers.

mod answer;
mod client;
mod egress;
mod failure;
mod keyring;
mod request;
mod resolve;

pub use answer::{Answer, ParsedAnswer};
pub use client::{Client, ClientError, ClientSettings, IDEMPOTENCY_KEY};
pub use egress::{Egress, EgressDenied, EgressRule, InvalidEgress};
pub(crate) use egress::{authority_of, host_of, parse_url};
pub(crate) use failure::not_retryable;
pub(crate) use keyring::{Keyring, SentSecrets, reference};
pub use request::{Call, Request, Retryability};
