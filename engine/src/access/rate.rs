//! Rate limits: a sliding one-minute window per actor, and a larger one for reads.
//!
//! Callers without valid credentials are counted per address as `anonymous`, on IPv6 per /64; addresses beyond a limit share one counter. When the shared counters
//! can't be reached, requests are refused or counted by this node alone, as configured; no request passes uncounted.

use super::settings::CounterFallback;
use crate::access::port::{CounterError, Counters};
use chimera_core::access::ANONYMOUS;
use chimera_core::access::window::{Quota, RateDecision};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::limits::{RATE_HITS_MAX, RATE_WINDOW_SECONDS, READ_QUOTA_FACTOR};
use chimera_core::time::Timestamp;
use core::net::IpAddr;
use std::sync::Arc;

/// A caller's position in a rate limit window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub name: &'static str,
    /// Requests per minute.
    pub limit: u32,
    pub remaining: u32,
    /// The window's end, in Unix seconds.
    pub reset: i64,
    /// Seconds until the window ends.
    pub reset_after: u64,
    /// Seconds to wait, if over the limit.
    pub retry_after: Option<u64>,
}

/// Counts requests against quotas.
pub struct Rates {
    /// Shared by all nodes.
    pub shared: Arc<dyn Counters>,
    /// This node's own, for when the shared ones can't be reached.
    pub own: Arc<dyn Counters>,
    /// Whether this node's own counters are enough.
    pub without: CounterFallback,
}

impl Rates {
    /// Counts an actor's request.
    pub(super) async fn hit(&self, actor: &str, quota: u32, reads: bool, now: Timestamp) -> Result<Rate, ErrorBody> {
        let (name, prefix, limit) = match reads {
            true => ("reads", "rate_limit_reads", quota.saturating_mul(READ_QUOTA_FACTOR).min(RATE_HITS_MAX)),
            false => ("requests", "rate_limit", quota),
        };
        self.count(name, &format!("{prefix}:{actor}"), limit, now).await
    }

    /// Counts a request without valid credentials by its address; `None` is one counter for all others.
    pub(super) async fn hit_anonymous(
        &self,
        address: Option<IpAddr>,
        quota: u32,
        now: Timestamp,
    ) -> Result<Rate, ErrorBody> {
        let key = match address {
            Some(address) => format!("rate_limit:{ANONYMOUS}@{address}"),
            None => format!("rate_limit:{ANONYMOUS}"),
        };
        self.count("anonymous", &key, quota, now).await
    }

    /// Whether to record a refused request that could not be counted: limits the entries per node.
    pub(super) async fn may_record(&self, actor: &str, quota: u32, now: Timestamp) -> bool {
        let Ok(quota) = Quota::new(quota, RATE_WINDOW_SECONDS) else { return false };
        let hit = self.own.hit(&format!("uncounted:{actor}"), quota, now).await;
        matches!(hit, Ok(RateDecision::Allowed { .. }))
    }

    async fn count(&self, name: &'static str, key: &str, limit: u32, now: Timestamp) -> Result<Rate, ErrorBody> {
        let quota = Quota::new(limit, RATE_WINDOW_SECONDS)
            .map_err(|_| ErrorBody::new(Code::Internal, "a quota is too large"))?;
        let hit = match self.shared.hit(key, quota, now).await {
            Err(CounterError::Unavailable { .. }) if self.without == CounterFallback::Database => {
                metrics::counter!("chimera_access_counters_lost_total").increment(1);
                self.own.hit(key, quota, now).await
            }
            hit => hit,
        };
        let hit = hit.map_err(|error| {
            tracing::warn!(error = %error, "a request could not be counted");
            ErrorBody::new(Code::StoreUnavailable, "the rate limit can't be checked now; retry").retry_after(1)
        })?;
        Ok(Rate::of(name, limit, hit, now))
    }
}

impl Rate {
    fn of(name: &'static str, limit: u32, hit: RateDecision, now: Timestamp) -> Self {
        let (remaining, reset_at, retry_after) = match hit {
            RateDecision::Allowed { remaining, reset_at } => (remaining, reset_at, None),
            RateDecision::Refused { retry_after, reset_at } => {
                (0, reset_at, Some(retry_after.as_millis().div_ceil(1_000) as u64))
            }
        };
        // Shared counters use their own clock.
        let left = (reset_at.millis() - now.millis()).clamp(0, i64::from(RATE_WINDOW_SECONDS) * 1_000);
        Self {
            name,
            limit,
            remaining,
            reset: (reset_at.millis() + 999).div_euclid(1_000),
            reset_after: left.unsigned_abs().div_ceil(1_000),
            retry_after,
        }
    }

    /// The refusal, if this is over the limit.
    pub(super) fn refusal(&self) -> Option<ErrorBody> {
        let seconds = self.retry_after?.max(1);
        let message = format!("rate limit exceeded: more than {} requests a minute", self.limit);
        Some(ErrorBody::new(Code::RateLimited, message).with("limit", self.limit).retry_after(seconds))
    }
}
