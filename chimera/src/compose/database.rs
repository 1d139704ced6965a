//! Checks before the store is relied on: whether it responds, and whether its clock agrees with ours.

use super::{Ambient, resolve_setting};
use crate::ambient::ClockDisagreement;
use crate::config::Config;
use crate::failure::{Failure, Outcome};
use chimera_core::error::Code;
use chimera_core::limits::DATABASE_SILENCE_SECONDS_MAX;
use chimera_core::time::Timestamp;
use chimera_engine::port::Clock;
use chimera_storage::records::{self, StoreTimes};
use std::time::Duration;

/// Runs work as long as the database responds: fails if it stops responding, but does not limit the duration.
pub(crate) async fn while_responsive<T>(config: &Config, work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    let silent = async {
        let Some(url) = &config.database_url else { return std::future::pending().await };
        // Opening the database reports an invalid setting.
        let Ok(url) = resolve_setting(config, "database_url", url).await else { return std::future::pending().await };
        records::until_postgres_silent(&url, Duration::from_secs(DATABASE_SILENCE_SECONDS_MAX)).await
    };
    tokio::select! {
        biased;
        done = work => done,
        silent = silent => Err(silent.into()),
    }
}

/// Our clock and the store's, read at the same moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockComparison {
    pub(crate) now: Timestamp,
    /// The database server's clock; none for SQLite.
    pub(crate) theirs: Option<Timestamp>,
    pub(crate) against: Option<ClockDisagreement>,
}

/// Compares a clock with the store.
pub(crate) async fn compare_clocks(config: &Config, clock: &dyn Clock) -> Outcome<ClockComparison> {
    let StoreTimes { newest_entry, clock: theirs } = match &config.database_url {
        Some(url) => records::postgres_times(&resolve_setting(config, "database_url", url).await?).await?,
        None => records::sqlite_times(&config.data_dir)?,
    };
    let now = clock.now();
    Ok(ClockComparison { now, theirs, against: ClockDisagreement::find(now, newest_entry, theirs) })
}

/// Compares a clock with the store; returns the disagreement, if any.
pub(crate) async fn disagreement(config: &Config, clock: &dyn Clock) -> Outcome<Option<ClockDisagreement>> {
    Ok(compare_clocks(config, clock).await?.against)
}

/// Rejects writing with an implausible clock.
pub(super) async fn require_plausible_clock(config: &Config, ambient: &Ambient) -> Outcome {
    match disagreement(config, &*ambient.clock).await? {
        Some(found) if found.stops() => Err(Failure::new(Code::NotReady, found.to_string()).hint(found.hint())),
        _ => Ok(()),
    }
}
