//! Reads that were started and are not polled.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a suite is a test")]

use chimera_core::flow::tables::RUNS;
use chimera_core::limits::{POSTGRES_READS_MAX, SQLITE_READS_MAX};
use chimera_core::record::{CountQuery, Scope, Select};
use chimera_engine::port::Records;
use futures::future::{BoxFuture, FutureExt};
use std::task::Poll;
use std::time::Duration;

/// Twice as many as any store reads concurrently.
const BEGUN: usize = 2 * if POSTGRES_READS_MAX > SQLITE_READS_MAX { POSTGRES_READS_MAX } else { SQLITE_READS_MAX };

/// A caller starts many reads, awaits another one first, and finishes them later. No read blocks forever.
pub async fn reads_that_nobody_looks_at_hold_up_nobody(store: &dyn Records) {
    let select = || Select::from(&RUNS, Scope::System).take(1);
    let mut begun: Vec<BoxFuture<'_, bool>> = Vec::new();
    for n in 0..BEGUN {
        begun.push(match n % 2 {
            0 => store.read(select()).map(|read| read.is_ok()).boxed(),
            _ => store
                .count(CountQuery { select: select(), by: "status", oldest: "created_at", rows_max: 10 })
                .map(|read| read.is_ok())
                .boxed(),
        });
    }
    let mut left = Vec::new();
    for mut read in begun {
        // One poll: the read has started, is queued, or has even ended.
        match futures::poll!(&mut read) {
            Poll::Ready(is_read) => assert!(is_read, "a read that ended at once"),
            Poll::Pending => left.push(read),
        }
    }
    let first = tokio::time::timeout(Duration::from_secs(60), store.read(select())).await;
    first.expect("a read beside others that are not polled").expect("a page");
    for read in left {
        assert!(read.await, "a read that was begun before");
    }
}
