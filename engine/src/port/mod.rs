//! What every room needs from outside: records, a bus, secrets, time, randomness and spans. Ports of one room stand
//! in that room (`flow::port`, `access::port`, `act::port`). The doc comments are the contracts; one suite in
//! `testkit` checks every implementation against them.

mod ambient;
mod bus;
mod records;
mod secrets;
mod spans;

pub use ambient::{Clock, Random};
pub use bus::{Bus, BusError, BusEvent, Subscription};
pub use records::{
    Blocked, CommitError, HeldLane, Hold, Outage, ReadError, Receipt, Records, SchemaMismatch, Unavailable,
};
pub use secrets::{SecretError, Secrets};
pub use spans::{NoSpans, Span, SpanKind, Spans};
