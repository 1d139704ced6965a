//! Seeded simulation: whatever fails, nothing is lost, nothing happens twice, everything ends.
//!
//! `./simulate` at the root of the repository runs without end and prints the story of a seed.

use chimera_testkit::simulate::simulate;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The maximum number of seeds, and the time limit.
const WORLDS_MAX: u64 = 10_000;
const TIME_MAX: Duration = Duration::from_secs(60);

#[test]
#[allow(clippy::disallowed_methods, reason = "bounds the test itself; nothing that is simulated sees it")]
fn whatever_goes_wrong_nothing_is_lost_or_doubled_and_every_run_ends() {
    let (next, began) = (AtomicU64::new(1), Instant::now());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while began.elapsed() < TIME_MAX {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > WORLDS_MAX {
                        return;
                    }
                    let report = simulate(seed, false);
                    assert!(report.faults.is_empty(), "./simulate {seed} tells how this came: {:#?}", report.faults);
                }
            });
        }
    });
}

#[test]
fn a_seed_tells_the_same_story_each_time() {
    for seed in [1, 7, 932, 2_888, 4_474, 12_030] {
        let (first, second) = (simulate(seed, true), simulate(seed, false));
        assert_eq!(first.digest, second.digest, "seed {seed}");
        assert_eq!((first.commits, first.sent), (second.commits, second.sent), "seed {seed}");
    }
}
