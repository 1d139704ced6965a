//! Support for tests only: private servers, contract suites, the in-memory store, the simulator.

#![allow(clippy::disallowed_methods, reason = "tests use the real clock and the real environment")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot continue fails")]

pub mod access;
pub mod build;
pub mod cells;
pub mod crash;
pub mod flow;
pub mod ledger_fixture;
pub mod memory;
pub mod net;
pub mod planner;
pub mod postgres;
pub mod preload;
pub mod proxy;
pub mod redis;
pub mod s3;
pub mod seeded;
pub mod simulate;
pub mod smtp;
pub mod sqlite_damage;
pub mod sqlite_exec;
pub mod suite;
