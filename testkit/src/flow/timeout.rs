//! Timeouts for tests that wait.
//!
//! Two clocks count. A paused runtime clock jumps ahead only when every task is idle. An engine in a busy
//! loop keeps it from advancing at all, so the wall clock counts too.

use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The timeout on the runtime's clock.
const RUNTIME_LIMIT: Duration = Duration::from_secs(3 * 3_600);

/// The timeout on the wall clock.
const WALL_LIMIT: Duration = Duration::from_secs(120);

/// How often the wall clock is checked.
const LOOK_EVERY: Duration = Duration::from_millis(20);

struct Alarm {
    at: Instant,
    ring: oneshot::Sender<()>,
}

static ALARMS: LazyLock<Sender<Alarm>> = LazyLock::new(|| {
    let (sender, alarms) = channel();
    std::thread::spawn(move || fire_alarms(&alarms));
    sender
});

/// Fires each alarm when it is due. It has a thread of its own because a waiter may share its thread with a busy task.
fn fire_alarms(alarms: &Receiver<Alarm>) {
    let mut set: Vec<Alarm> = Vec::new();
    loop {
        let next = if set.is_empty() {
            alarms.recv().map_err(RecvTimeoutError::from)
        } else {
            alarms.recv_timeout(LOOK_EVERY)
        };
        match next {
            Ok(alarm) => set.push(alarm),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        set.retain(|alarm| !alarm.ring.is_closed());
        let (due, later) = set.into_iter().partition(|alarm| alarm.at <= Instant::now());
        set = later;
        for alarm in Vec::into_iter(due) {
            // The waiter may just have finished.
            let _ = alarm.ring.send(());
        }
    }
}

/// The result of a wait, or `None` if it times out.
pub async fn within<T>(wait: impl Future<Output = T>) -> Option<T> {
    with_limits(wait, RUNTIME_LIMIT, WALL_LIMIT).await
}

/// Polls a condition that no commit signals. Fails the test if it times out.
pub async fn until(what: &str, holds: impl Fn() -> bool) {
    let wait = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    assert!(within(wait).await.is_some(), "timed out waiting for: {what}");
}

async fn with_limits<T>(wait: impl Future<Output = T>, runtime: Duration, wall: Duration) -> Option<T> {
    let (ring, rings) = oneshot::channel();
    ALARMS.send(Alarm { at: Instant::now() + wall, ring }).expect("the thread lives as long as the process");
    tokio::select! {
        biased;
        done = wait => Some(done),
        _ = rings => None,
        () = tokio::time::sleep(runtime) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(30);

    #[tokio::test(start_paused = true)]
    async fn a_wait_for_what_never_comes_ends_on_the_runtimes_clock() {
        assert_eq!(with_limits(std::future::pending::<()>(), RUNTIME_LIMIT, WALL_LIMIT).await, None);
        assert_eq!(with_limits(async { 7 }, RUNTIME_LIMIT, WALL_LIMIT).await, Some(7));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_beside_a_task_that_never_rests_ends_on_the_walls_clock() {
        let busy = tokio::spawn(async {
            loop {
                tokio::task::yield_now().await;
            }
        });
        assert_eq!(with_limits(std::future::pending::<()>(), RUNTIME_LIMIT, SHORT).await, None);
        busy.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_itself_never_rests_ends_on_the_walls_clock() {
        let spins = async {
            loop {
                tokio::task::yield_now().await;
            }
        };
        assert_eq!(with_limits::<()>(spins, RUNTIME_LIMIT, SHORT).await, None);
    }
}
