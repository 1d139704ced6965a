//! The real binary: what it prints, how it ends, what it leaves behind.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod access;
mod audit;
mod backup;
mod bench;
mod clients;
mod clock;
mod commands;
mod configuration;
mod crash;
mod damage;
mod degraded;
mod disk;
mod doubts;
mod expensive_requests;
mod faults;
mod flow;
mod golden;
mod keys;
mod links;
mod logs;
mod memory;
mod migrate;
mod missing_tools;
mod mixed_files;
mod nodes;
mod otlp;
mod restore;
mod schema;
mod secrets;
mod server;
mod soak;
mod stopping;
mod support;
mod tenants;
mod traces;
