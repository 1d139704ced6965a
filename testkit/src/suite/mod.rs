//! Contract suites: one test per statement of a port's contract, run against each implementation.

pub mod blobs;
pub mod buckets;
pub mod bus;
pub mod count;
pub mod counters;
pub mod ledger;
pub mod pages;
pub mod records;
pub mod unpolled_reads;
pub mod views;
