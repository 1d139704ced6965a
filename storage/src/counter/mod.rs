//! Counters: within one process, or shared by all nodes through Redis.

mod local;
mod redis;

pub use local::LocalCounters;
pub use redis::RedisCounters;
