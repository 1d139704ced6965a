//! Access control over a real socket: authentication, rate limits, and what callers may start.

mod access_server;
mod act;
mod actors;
mod approvals;
mod change;
mod expired_keys;
mod idempotency;
mod levels;
mod lookups;
mod matrix;
mod message;
mod narrow_tokens;
mod notify;
mod one_person;
mod order;
mod pinned_versions;
mod rate;
mod receivers;
mod removed_names;
mod roles;
mod shared_key;
mod tenants;
mod tokens;
mod two_nodes;
mod unread;
mod whole_spec;
