//! What readiness asks: one check for each part that requests need.

use super::traced::TracedCounters;
use super::{Ambient, Redis, plain};
use crate::ambient::SystemClock;
use crate::config::Config;
use crate::failure::{Failure, Outcome};
use chimera_api::Check;
use chimera_core::error::Code;
use chimera_engine::port::{Blobs, Counters, Records};
use chimera_storage::counter::RedisCounters;
use std::path::Path;
use std::sync::Arc;

pub(super) fn data_folder(dir: &Path) -> Check {
    let dir = dir.to_owned();
    Check::new("data_folder", move || {
        let dir = dir.clone();
        async move {
            let tried = tokio::task::spawn_blocking(move || crate::doctor::write_probe(&dir)).await;
            tried.unwrap_or(Err("the check did not finish".to_owned()))
        }
    })
}

pub(super) fn records_check(records: &Arc<dyn Records>) -> Check {
    let records = Arc::clone(records);
    Check::new("records", move || {
        let records = Arc::clone(&records);
        async move { records.ready().await.map_err(|error| error.reason) }
    })
}

pub(super) fn blobs_check(blobs: &Arc<dyn Blobs>) -> Check {
    let blobs = Arc::clone(blobs);
    Check::new("blobs", move || {
        let blobs = Arc::clone(&blobs);
        async move { blobs.ready().await.map_err(|error| error.to_string()) }
    })
}

pub(super) async fn redis_check(config: &Config, ambient: &Ambient) -> Outcome<Option<Check>> {
    let Some(url) = &config.redis_url else { return Ok(None) };
    let redis = Redis::new(&plain(config, "redis_url", url).await?);
    let redis = redis.map_err(|error| Failure::new(Code::ConfigInvalid, format!("`redis_url`: {error}")))?;
    let mut counters: Arc<dyn Counters> = Arc::new(RedisCounters::new(redis));
    if ambient.spans.enabled() {
        counters = Arc::new(TracedCounters(counters));
    }
    Ok(Some(Check::new("redis", move || {
        let counters = Arc::clone(&counters);
        async move { counters.ready().await.map_err(|error| error.to_string()) }
    })))
}

/// Not ready while the machine's clock has jumped and nobody knows yet which time is right.
pub(super) fn clock_check(clock: &Arc<SystemClock>) -> Check {
    let clock = Arc::clone(clock);
    Check::new("clock", move || std::future::ready(crate::ambient::watch::trouble(&clock).map_or(Ok(()), Err)))
}
