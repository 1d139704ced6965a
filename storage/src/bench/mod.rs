//! How fast the stores are, beside the same statements without everything that makes them a store.
//!
//! The workload is one step of a run: a version-checked update, three inserts and a ledger entry,
//! on disk at every commit. The bare loop is written by hand for this one workload: no channel, no
//! committer, no savepoints, nobody to answer. It is the ceiling that group commit is held against.

mod bare_postgres;
mod bare_sqlite;
mod scratch;
mod workload;

pub use bare_postgres::bare_postgres;
pub use bare_sqlite::bare_sqlite;
pub use scratch::ScratchSchema;
pub use workload::{BenchError, Driven, Workload, drive};
