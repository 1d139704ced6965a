//! The crash matrix: a workflow that uses every feature runs once undisturbed, then once for every point at
//! which its process could crash: after each commit, before each outside call and after each outside call.
//! Each time another engine takes over, whose lane is claimed late, and the final state must be the same.
//!
//! Only a call of `once`, a tool that is neither idempotent nor checkable, may end with an unknown outcome.
//! A simulated person then reports the outcome.

mod case;
mod final_state;
mod late_lane;
mod workflow;

pub use case::{Case, run_case};
pub use final_state::FinalState;

use crate::memory::MemoryRecords;
use crate::simulate::port_switch::CrashPoint;
use async_trait::async_trait;
use chimera_core::access::Level;
use chimera_engine::port::Records;
use futures::StreamExt;
use std::sync::{Arc, Mutex, PoisonError};

/// The only tool whose outcome may be unknown.
pub const UNCERTAIN_TOOL: &str = "once";

/// A store that outlives the engines on it.
#[async_trait]
pub trait Store: Send + Sync {
    /// Opens the store. The engine that used it before has crashed.
    async fn open(&self) -> Arc<dyn Records>;
}

/// Creates empty stores.
#[async_trait]
pub trait Stores: Send + Sync {
    async fn fresh(&self) -> Box<dyn Store>;
}

pub struct MemoryStores;

struct MemoryStore(Mutex<Option<Arc<MemoryRecords>>>);

#[async_trait]
impl Stores for MemoryStores {
    async fn fresh(&self) -> Box<dyn Store> {
        Box::new(MemoryStore(Mutex::new(None)))
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn open(&self) -> Arc<dyn Records> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = Arc::new(held.as_ref().map_or_else(MemoryRecords::new, |before| before.replacement_node()));
        *held = Some(Arc::clone(&next));
        next
    }
}

/// The totals of a crash matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashTotals {
    /// Points at which an engine was to crash.
    pub cases: usize,
    /// Engines that crashed.
    pub crashes: usize,
    /// Cases in which a person had to report an outcome.
    pub doubted: usize,
}

/// Runs the whole matrix at an autonomy level, `at_a_time` cases concurrently.
pub async fn run_crash_matrix(stores: &dyn Stores, level: Level, at_a_time: usize) -> CrashTotals {
    let undisturbed = run_case(&*stores.fresh().await, Case { level, crash_at: None, then: None }).await;
    assert_eq!((undisturbed.crashes, undisturbed.doubts.len()), (0, 0));
    let after_commits = (1..=undisturbed.commits).map(CrashPoint::AfterCommit);
    let sends = (1..=undisturbed.sends).flat_map(|send| [CrashPoint::BeforeSend(send), CrashPoint::AfterSend(send)]);
    let cases = after_commits.chain(sends).map(|moment| {
        let undisturbed = &undisturbed;
        async move {
            let end = run_case(&*stores.fresh().await, Case { level, crash_at: Some(moment), then: None }).await;
            end.assert_equals(undisturbed, moment);
            // Events that arrive while a turn is being committed are handled together in the next turn, so
            // a run may need fewer commits than the undisturbed one.
            let missed = matches!(moment, CrashPoint::AfterCommit(at) if at > end.commits);
            assert!(end.crashes == 1 || missed, "{moment:?}: no engine crashed in {} commits", end.commits);
            CrashTotals { cases: 1, crashes: end.crashes, doubted: usize::from(!end.doubts.is_empty()) }
        }
    });
    let played = futures::stream::iter(cases).buffer_unordered(at_a_time);
    let sum = |sum: CrashTotals, case: CrashTotals| CrashTotals {
        cases: sum.cases + case.cases,
        crashes: sum.crashes + case.crashes,
        doubted: sum.doubted + case.doubted,
    };
    let none = CrashTotals { cases: 0, crashes: 0, doubted: 0 };
    let matrix = played.fold(none, |so_far, case| std::future::ready(sum(so_far, case))).await;
    assert!(matrix.doubted > 0, "no case ended with an unknown outcome: {matrix:?}");
    matrix
}

/// Crashes the engine before each outside call, and the engine that takes over after each of its first `commits`
/// commits. Returns the number of cases.
pub async fn run_double_crashes(stores: &dyn Stores, level: Level, commits: u64) -> usize {
    let undisturbed = run_case(&*stores.fresh().await, Case { level, crash_at: None, then: None }).await;
    let mut cases = 0;
    for moment in (1..=undisturbed.sends).map(CrashPoint::BeforeSend) {
        for then in (1..=commits).map(CrashPoint::AfterCommit) {
            let end = run_case(&*stores.fresh().await, Case { level, crash_at: Some(moment), then: Some(then) }).await;
            end.assert_equals(&undisturbed, moment);
            cases += 1;
        }
    }
    cases
}
