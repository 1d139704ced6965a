//! Everything durable or shared: records, blobs, bus, counters, secrets.

pub mod bench;
pub mod blob;
pub mod bucket;
pub mod bus;
pub mod counter;
mod folder;
pub mod migrate;
pub mod records;
mod redis;
pub mod secret;

pub use redis::{InvalidRedisUrl, Redis};
