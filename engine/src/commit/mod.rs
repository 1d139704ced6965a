//! Group commit: a synchronous state machine that groups queued transactions into batches and determines the outcome of
//! each.
//!
//! One committer serves one lane. It never waits and does no I/O: a thin loop in the store feeds it events and executes
//! its commands, so that the simulator can inject any failure. It is the only place that decides which waiter gets
//! which reply.

mod batch;
mod machine;
mod queue;
#[cfg(test)]
mod tests;

pub use batch::{Batch, BatchOutcome, Lane, Resolution, TxRejection};
pub use machine::{Command, CommitEvent, Committer};
pub use queue::PreparedTx;
