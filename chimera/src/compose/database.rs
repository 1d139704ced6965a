//! What commands and servers want to know of the store before they rely on it: whether it answers, and what
//! time it has.

use super::{Ambient, plain};
use crate::ambient::Disagreement;
use crate::config::Config;
use crate::failure::{Failure, Outcome};
use chimera_core::error::Code;
use chimera_core::limits::DATABASE_SILENCE_SECONDS_MAX;
use chimera_core::time::Timestamp;
use chimera_engine::port::Clock;
use chimera_storage::records::{PostgresRecords, SqliteRecords, StoreTimes};
use std::time::Duration;

/// Does what a command does while the database answers. One that falls silent ends it; how long it takes
/// is not limited.
pub(crate) async fn while_answering<T>(config: &Config, work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    let silent = async {
        let Some(url) = &config.database_url else { return std::future::pending().await };
        // What is wrong with the setting is told by whoever opens the database.
        let Ok(url) = plain(config, "database_url", url).await else { return std::future::pending().await };
        PostgresRecords::until_silent(&url, Duration::from_secs(DATABASE_SILENCE_SECONDS_MAX)).await
    };
    tokio::select! {
        biased;
        done = work => done,
        silent = silent => Err(silent.into()),
    }
}

/// A clock beside what the store knows of time, all of one moment: whoever waited for a lock before has a time that is old.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compared {
    pub(crate) now: Timestamp,
    /// The store's clock, if it has one of its own.
    pub(crate) theirs: Option<Timestamp>,
    /// What speaks against it.
    pub(crate) against: Option<Disagreement>,
}

/// Compares a clock with the store.
pub(crate) async fn compared(config: &Config, clock: &dyn Clock) -> Outcome<Compared> {
    let StoreTimes { newest_entry, clock: theirs } = match &config.database_url {
        Some(url) => PostgresRecords::times(&plain(config, "database_url", url).await?).await?,
        None => SqliteRecords::times(&config.data_dir)?,
    };
    let now = clock.now();
    Ok(Compared { now, theirs, against: Disagreement::find(now, newest_entry, theirs) })
}

/// What speaks against a clock, by what the store knows of time.
pub(crate) async fn disagreement(config: &Config, clock: &dyn Clock) -> Outcome<Option<Disagreement>> {
    Ok(compared(config, clock).await?.against)
}

/// Refuses to write to a store with a clock that can't be right.
pub(super) async fn clock_agrees(config: &Config, ambient: &Ambient) -> Outcome {
    match disagreement(config, &*ambient.clock).await? {
        Some(found) if found.stops() => Err(Failure::new(Code::NotReady, found.to_string()).hint(found.hint())),
        _ => Ok(()),
    }
}
