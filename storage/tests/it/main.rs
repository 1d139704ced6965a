//! Storage against the real things: files, PostgreSQL, Redis, S3.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::disallowed_methods, reason = "tests hold the real environment")]

mod blobs;
mod buckets;
mod bus;
mod counters;
mod crash;
mod damage;
mod differential;
mod events;
mod foreign_constraints;
mod foreign_triggers;
mod foreign_triggers_ledger;
mod guards;
mod hidden_rows;
mod lanes;
mod ledger;
mod log;
mod migrate;
mod missing_privileges;
mod pairs;
mod private_postgres;
mod records;
mod restores;
mod rollbacks;
mod schema;
mod secrets;
mod silence;
mod unseen_constraints;
