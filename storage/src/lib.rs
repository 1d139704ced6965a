//! Everything durable or shared: records, blobs, bus, counters, secrets.

pub mod bench;
pub mod migrate;
pub mod records;
