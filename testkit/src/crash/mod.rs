//! The crash matrix: a workflow that uses everything is run once to its end, and then again for
//! every moment at which its process could have died: after each commit, before each call and after
//! each call. Each time another engine takes over, whose lane is claimed late, and the end must be the
//! same.
//!
//! Only `once`, a tool that is neither idempotent nor checkable, may end in doubt; then a person
//! looks and says what happened.

mod end;
mod late;
mod play;
mod workflow;

pub use end::End;
pub use play::{Case, play};

use crate::memory::MemoryRecords;
use crate::simulate::wire::Moment;
use async_trait::async_trait;
use chimera_core::access::Level;
use chimera_engine::port::Records;
use futures::StreamExt;
use std::sync::{Arc, Mutex, PoisonError};

/// The only tool whose outcome may be unknown.
pub const IN_DOUBT: &str = "once";

/// A store that outlives the engines on it.
#[async_trait]
pub trait Store: Send + Sync {
    /// Opens it; whoever had it before is gone.
    async fn open(&self) -> Arc<dyn Records>;
}

/// Makes a store that nobody has used.
#[async_trait]
pub trait Stores: Send + Sync {
    /// A fresh one.
    async fn fresh(&self) -> Box<dyn Store>;
}

/// Stores in memory.
pub struct InMemory;

struct Memory(Mutex<Option<Arc<MemoryRecords>>>);

#[async_trait]
impl Stores for InMemory {
    async fn fresh(&self) -> Box<dyn Store> {
        Box::new(Memory(Mutex::new(None)))
    }
}

#[async_trait]
impl Store for Memory {
    async fn open(&self) -> Arc<dyn Records> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = Arc::new(held.as_ref().map_or_else(MemoryRecords::new, |before| before.instead()));
        *held = Some(Arc::clone(&next));
        next
    }
}

/// How a matrix went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// Moments at which an engine was to be lost.
    pub cases: usize,
    /// Engines that were lost.
    pub crashes: usize,
    /// Cases in which a person had to look.
    pub doubted: usize,
}

/// Runs the whole matrix of a level, so many cases at a time.
pub async fn matrix(stores: &dyn Stores, level: Level, at_a_time: usize) -> Matrix {
    let undisturbed = play(&*stores.fresh().await, Case { level, moment: None, then: None }).await;
    assert_eq!((undisturbed.crashes, undisturbed.doubts.len()), (0, 0));
    let after_commits = (1..=undisturbed.commits).map(Moment::AfterCommit);
    let sends = (1..=undisturbed.sends).flat_map(|send| [Moment::BeforeSend(send), Moment::AfterSend(send)]);
    let cases = after_commits.chain(sends).map(|moment| {
        let undisturbed = &undisturbed;
        async move {
            let end = play(&*stores.fresh().await, Case { level, moment: Some(moment), then: None }).await;
            end.must_be(undisturbed, moment);
            // What arrives while a turn is being committed is decided together with the next one, so
            // that a run may be over before it has needed as many commits as the first one did.
            let missed = matches!(moment, Moment::AfterCommit(at) if at > end.commits);
            assert!(end.crashes == 1 || missed, "{moment:?}: no engine was lost in {} commits", end.commits);
            Matrix { cases: 1, crashes: end.crashes, doubted: usize::from(!end.doubts.is_empty()) }
        }
    });
    let played = futures::stream::iter(cases).buffer_unordered(at_a_time);
    let sum = |sum: Matrix, case: Matrix| Matrix {
        cases: sum.cases + case.cases,
        crashes: sum.crashes + case.crashes,
        doubted: sum.doubted + case.doubted,
    };
    let none = Matrix { cases: 0, crashes: 0, doubted: 0 };
    let matrix = played.fold(none, |so_far, case| std::future::ready(sum(so_far, case))).await;
    assert!(matrix.doubted > 0, "nobody ever had to look: {matrix:?}");
    matrix
}

/// Loses the engine at each outside call, and the one that takes over after its first commits; gives
/// how many cases there were.
pub async fn twice(stores: &dyn Stores, level: Level, commits: u64) -> usize {
    let undisturbed = play(&*stores.fresh().await, Case { level, moment: None, then: None }).await;
    let mut cases = 0;
    for moment in (1..=undisturbed.sends).map(Moment::BeforeSend) {
        for then in (1..=commits).map(Moment::AfterCommit) {
            let end = play(&*stores.fresh().await, Case { level, moment: Some(moment), then: Some(then) }).await;
            end.must_be(&undisturbed, moment);
            cases += 1;
        }
    }
    cases
}
