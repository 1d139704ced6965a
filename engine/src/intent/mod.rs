//! Intents: signed envelopes through one router in front of everything that they can ask for.
//!
//! The Router checks shape, signature, age, idempotency, arguments, rights and policy, in this order; the first check
//! that fails decides the code. Only then it dispatches, always to a use case that anybody else could call: an intent
//! is no way around levels, rules or approvals.

mod acceptance;
mod dispatch;
mod issuer;
mod router;
mod sighting;
mod stage;
mod stages;
mod sweep;
mod validate;
mod verdict;

pub use router::{AcceptedIntent, IntentContext, IntentRouter, submit};
pub use stage::{Finding, Stage};
pub use sweep::{delete_expired, run_sweeper};
pub use validate::{ValidationReport, validate};
