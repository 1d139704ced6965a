//! The intent room: signed intents. What an envelope is, who signed it, how long it may be used, and what it needs.

pub mod capability;
pub mod definition;
mod envelope;
mod freshness;
pub mod schemas;
mod signature;
pub mod tables;

pub use definition::{BuiltInIntent, Dispatch, IntentCatalog, IntentDefinition, InvalidDefinition};
pub use envelope::{Envelope, EnvelopeReader};
pub use freshness::{Stale, check_age, sighting_kept_until};
pub use signature::{EnvelopeSignature, SignatureFault, idempotency_key, sign};
