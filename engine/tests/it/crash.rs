//! The crash matrix on the memory store, at every level that waits for people.

use chimera_core::access::Level;
use chimera_testkit::crash::{MemoryStores, run_crash_matrix, run_double_crashes};

async fn survives(level: Level, cases_min: usize) {
    let matrix = run_crash_matrix(&MemoryStores, level, 1).await;
    assert_eq!(matrix.crashes, matrix.cases);
    assert!(matrix.cases >= cases_min, "{matrix:?}");
    println!("{level:?}: {matrix:?}");
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_moment_changes_nothing() {
    survives(Level::ExecuteNotify, 90).await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_moment_changes_nothing_while_every_step_is_asked_for() {
    survives(Level::Ask, 120).await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_moment_changes_nothing_while_a_plan_is_drafted_and_run() {
    survives(Level::Draft, 100).await;
}

/// A resumed rollback gets its signal again from the parent run, and loses nothing when that engine crashes too.
#[tokio::test(start_paused = true)]
async fn a_second_crash_soon_after_the_first_changes_nothing() {
    assert!(run_double_crashes(&MemoryStores, Level::ExecuteNotify, 5).await >= 100);
}
