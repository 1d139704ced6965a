//! What the engine needs from outside. The doc comments are the contracts; one suite in
//! `testkit` checks every implementation against them.

mod ambient;
mod blobs;
mod buckets;
mod bus;
mod counters;
mod notifier;
mod planner;
mod recipients;
mod records;
mod secrets;
mod spans;
mod tenancy;
mod tool;

pub use ambient::{Clock, Random};
pub use blobs::{Blob, BlobError, BlobStat, Blobs, Incoming, LinkRefused, Outgoing, PresentedLink, PresignedUrl};
pub use buckets::{BucketError, Buckets, Object};
pub use bus::{Bus, BusError, Heard, Subscription};
pub use counters::{Claim, CounterError, Counters};
pub use notifier::{Delivered, Message, Notifier};
pub use planner::Planner;
pub use recipients::{Recipient, Recipients};
pub use records::{Blocked, CommitError, Held, Hold, Outage, ReadError, Receipt, Records, SchemaMismatch, Unavailable};
pub use secrets::{SecretError, Secrets};
pub use spans::{NoSpans, Span, SpanKind, Spans};
pub use tenancy::{OneTenant, Tenancy};
pub use tool::{CallContext, Cancel, Done, Found, Sent, Tool, ToolError};
