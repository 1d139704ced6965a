//! Access control over a real socket: authentication, rate limits, and what callers may start.

mod act;
mod actors;
mod approvals;
mod change;
mod held;
mod idempotency;
mod levels;
mod looked;
mod matrix;
mod message;
mod narrow;
mod notify;
mod one_person;
mod order;
mod porch;
mod rate;
mod receivers;
mod removed_names;
mod roles;
mod shared_key;
mod tenants;
mod tokens;
mod unread;
mod whole;
