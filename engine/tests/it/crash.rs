//! The crash matrix on the store in memory, at every level that stops for people.

use chimera_core::access::Level;
use chimera_testkit::crash::{InMemory, matrix};

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_moment_changes_nothing_at_l2() {
    let cases = matrix(&InMemory, Level::ExecuteNotify, 1).await;
    assert!(cases > 60, "{cases}");
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_moment_changes_nothing_while_every_step_is_asked_for() {
    let cases = matrix(&InMemory, Level::Ask, 1).await;
    assert!(cases > 80, "{cases}");
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_moment_changes_nothing_while_a_plan_is_drafted_and_run() {
    let cases = matrix(&InMemory, Level::Draft, 1).await;
    assert!(cases > 60, "{cases}");
}
