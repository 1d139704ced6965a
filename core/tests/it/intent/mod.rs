//! Signed intents: envelopes, signatures, age, rights and definitions.

mod capability;
mod definition;
mod envelope;
mod freshness;
mod given;
mod signature;
