//! Group commit: a synchronous state machine that turns waiting transactions into batches and
//! settles what became of them.
//!
//! One committer serves one lane. It never waits and never does I/O: a thin loop in the store
//! feeds it events and carries out its commands, so that the simulator can do the same with
//! failures of its choice. It is also the only place that decides who gets which answer.

mod batch;
mod machine;
mod queue;
#[cfg(test)]
mod tests;

pub use batch::{Batch, Lane, Loss, Outcome, Settled};
pub use machine::{Command, Committer, Event};
pub use queue::Prepared;
