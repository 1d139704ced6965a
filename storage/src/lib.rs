//! Everything durable or shared: records, blobs, bus, counters, secrets.

pub mod migrate;
