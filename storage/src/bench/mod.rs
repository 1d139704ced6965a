//! Benchmarks of the stores, compared with the same statements without the store around them.
//!
//! The workload is one step of a run: a version-checked update, three inserts and a ledger entry, durable at every
//! commit. The bare loop is hand-written for this one workload: no channel, no committer, no savepoints, no replies.
//! It is the upper bound for group commit.

mod bare_postgres;
mod bare_sqlite;
mod scratch;
mod workload;

pub use bare_postgres::bare_postgres;
pub use bare_sqlite::bare_sqlite;
pub use scratch::ScratchSchema;
pub use workload::{BareLoad, BenchError, BenchResult, Workload, drive};
