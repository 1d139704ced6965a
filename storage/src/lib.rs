//! Everything durable or shared: records, blobs, bus, counters, secrets.

pub mod blob;
pub mod bus;
pub mod counter;
mod redis;
pub mod secret;

pub use redis::{InvalidRedisUrl, Redis};
