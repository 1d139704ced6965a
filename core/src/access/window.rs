//! The sliding window of rate limits: a counter over two fixed windows.
//!
//! Hits of the previous window count in proportion to its overlap with the sliding window. All arithmetic uses
//! integer milliseconds times integer hits, so that Rust and a script in a shared store, whose numbers are doubles,
//! decide identically: within `limits` every product is far below 2^53.

use crate::limits::{RATE_HITS_MAX, RATE_WINDOW_SECONDS_MAX};
use crate::time::Timestamp;
use std::time::Duration;

/// A number of hits per window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    limit: u32,
    window_seconds: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a rate window has 1 to {RATE_WINDOW_SECONDS_MAX} seconds and allows at most {RATE_HITS_MAX} hits")]
pub struct InvalidQuota;

/// The result of one hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateDecision {
    /// The hit was counted.
    Allowed {
        /// Hits still allowed at this moment.
        remaining: u32,
        /// When the current fixed window ends.
        reset_at: Timestamp,
    },
    /// The hit is over the limit and was not counted.
    Refused {
        /// When the next hit is allowed, if nobody else hits meanwhile.
        retry_after: Duration,
        /// When the current fixed window ends.
        reset_at: Timestamp,
    },
}

/// The position of a moment within the fixed windows of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowPosition {
    /// Unix seconds at which the current window began.
    pub window_start: i64,
    /// Unix seconds at which the window before began.
    pub previous_start: i64,
    /// Milliseconds since the current window began.
    pub elapsed_ms: i64,
}

impl Quota {
    /// At most `limit` hits in `window_seconds`.
    pub const fn new(limit: u32, window_seconds: u32) -> Result<Self, InvalidQuota> {
        if limit > RATE_HITS_MAX || window_seconds == 0 || window_seconds > RATE_WINDOW_SECONDS_MAX {
            return Err(InvalidQuota);
        }
        Ok(Self { limit, window_seconds })
    }

    #[must_use]
    pub const fn limit(self) -> u32 {
        self.limit
    }

    #[must_use]
    pub const fn window(self) -> Duration {
        Duration::from_secs(self.window_seconds as u64)
    }

    #[must_use]
    pub const fn window_ms(self) -> i64 {
        self.window_seconds as i64 * 1_000
    }

    #[must_use]
    pub const fn position(self, now: Timestamp) -> WindowPosition {
        let window_start = now.millis().div_euclid(self.window_ms()) * self.window_seconds as i64;
        WindowPosition {
            window_start,
            previous_start: window_start - self.window_seconds as i64,
            elapsed_ms: now.millis() - window_start * 1_000,
        }
    }

    /// Decides a hit at `now`, given the hits in the previous and the current window.
    #[must_use]
    pub fn decide(self, previous: u32, current: u32, now: Timestamp) -> RateDecision {
        let window = self.window_ms();
        let at = self.position(now);
        let reset_at = Timestamp::from_micros((at.window_start * 1_000 + window) * 1_000);
        let weighted = i64::from(previous) * (window - at.elapsed_ms);
        let room = (i64::from(self.limit) - i64::from(current) - 1) * window;
        if weighted <= room {
            let remaining = u32::try_from((room - weighted) / window).unwrap_or(0);
            return RateDecision::Allowed { remaining, reset_at };
        }
        let wait_ms = self.wait_ms(i64::from(previous), i64::from(current), at.elapsed_ms);
        RateDecision::Refused { retry_after: Duration::from_millis(wait_ms.unsigned_abs()), reset_at }
    }

    /// Milliseconds until the weighted count leaves room for one more hit.
    fn wait_ms(self, previous: i64, current: i64, elapsed: i64) -> i64 {
        let (limit, window) = (i64::from(self.limit), self.window_ms());
        if limit == 0 {
            return window;
        }
        // The smallest elapsed time at which `count` hits of the previous window leave room for one more besides
        // `beside` hits of the current one.
        let opens = |count: i64, beside: i64| ((count - (limit - beside - 1)) * window + count - 1) / count.max(1);
        if current < limit { opens(previous, current) - elapsed } else { window - elapsed + opens(current, 0) }
    }
}

/// The counter keys of `key` at `now`: the current and the previous window.
#[must_use]
pub fn keys(key: &str, quota: Quota, now: Timestamp) -> (String, String) {
    let at = quota.position(now);
    (format!("{key}:{}", at.window_start), format!("{key}:{}", at.previous_start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at_ms(ms: i64) -> Timestamp {
        Timestamp::from_micros(ms * 1_000)
    }

    fn quota(limit: u32, seconds: u32) -> Quota {
        Quota::new(limit, seconds).unwrap()
    }

    #[test]
    fn an_empty_window_allows_exactly_its_limit() {
        let minute = quota(3, 60);
        for current in 0..3 {
            let remaining = 2 - current;
            assert_eq!(
                minute.decide(0, current, at_ms(60_000)),
                RateDecision::Allowed { remaining, reset_at: at_ms(120_000) }
            );
        }
        assert!(matches!(minute.decide(0, 3, at_ms(60_000)), RateDecision::Refused { .. }));
    }

    /// CORE-089
    #[test]
    fn a_burst_across_the_boundary_gets_no_second_quota() {
        let minute = quota(60, 60);
        assert_eq!(
            minute.decide(60, 0, at_ms(60_000)),
            RateDecision::Refused { retry_after: Duration::from_secs(1), reset_at: at_ms(120_000) }
        );
        assert_eq!(
            minute.decide(60, 0, at_ms(61_000)),
            RateDecision::Allowed { remaining: 0, reset_at: at_ms(120_000) }
        );
        assert!(matches!(minute.decide(60, 29, at_ms(90_000)), RateDecision::Allowed { remaining: 0, .. }));
        assert!(matches!(minute.decide(60, 30, at_ms(90_000)), RateDecision::Refused { .. }));
    }

    #[test]
    fn a_limit_of_zero_refuses_everything() {
        let never = quota(0, 60);
        assert!(
            matches!(never.decide(0, 0, at_ms(0)), RateDecision::Refused { retry_after, .. } if !retry_after.is_zero())
        );
    }

    #[test]
    fn quotas_beyond_the_limits_are_refused() {
        assert_eq!(Quota::new(1, 0), Err(InvalidQuota));
        assert_eq!(Quota::new(RATE_HITS_MAX + 1, 60), Err(InvalidQuota));
        assert_eq!(Quota::new(1, RATE_WINDOW_SECONDS_MAX + 1), Err(InvalidQuota));
        let largest = quota(RATE_HITS_MAX, RATE_WINDOW_SECONDS_MAX);
        assert!(i64::from(RATE_HITS_MAX) * largest.window_ms() < 1 << 53);
    }

    #[test]
    fn windows_begin_at_whole_multiples_and_name_their_keys() {
        let minute = quota(60, 60);
        let now: Timestamp = "2023-11-04T18:44:16.789Z".parse().unwrap();
        assert_eq!(
            keys("rate_limit:ada", minute, now),
            ("rate_limit:ada:1699123440".into(), "rate_limit:ada:1699123380".into())
        );
        assert_eq!(minute.position(now).elapsed_ms, 16_789);
        assert_eq!(minute.position(at_ms(-1)).window_start, -60);
    }

    proptest! {
        #[test]
        fn an_allowed_hit_never_lifts_the_weighted_count_over_the_limit(
            limit in 0_u32..500, seconds in 1_u32..7_200, previous in 0_u32..500, current in 0_u32..500, ms in 0_i64..20_000_000
        ) {
            let quota = quota(limit, seconds);
            let elapsed = quota.position(at_ms(ms)).elapsed_ms;
            let weight = f64::from(previous) * (quota.window_ms() - elapsed) as f64 / quota.window_ms() as f64;
            let after = weight + f64::from(current) + 1.0;
            match quota.decide(previous, current, at_ms(ms)) {
                RateDecision::Allowed { remaining, reset_at } => {
                    prop_assert!(after + f64::from(remaining) <= f64::from(limit) + 1e-6);
                    prop_assert!(reset_at > at_ms(ms));
                }
                RateDecision::Refused { reset_at, .. } => {
                    prop_assert!(after > f64::from(limit) - 1e-6);
                    prop_assert!(reset_at > at_ms(ms));
                }
            }
        }

        #[test]
        fn the_wait_is_exactly_as_long_as_needed(
            limit in 1_u32..300, seconds in 1_u32..7_200, previous in 0_u32..300, current in 0_u32..300, ms in 0_i64..20_000_000
        ) {
            let quota = quota(limit, seconds);
            let (previous, current) = (previous.min(limit), current.min(limit));
            if let RateDecision::Refused { retry_after, .. } = quota.decide(previous, current, at_ms(ms)) {
                let wait = i64::try_from(retry_after.as_millis()).unwrap();
                let start = quota.position(at_ms(ms)).window_start;
                let allowed = |ms: i64| {
                    let counts = match (quota.position(at_ms(ms)).window_start - start) / i64::from(seconds) {
                        0 => (previous, current),
                        1 => (current, 0),
                        _ => (0, 0),
                    };
                    matches!(quota.decide(counts.0, counts.1, at_ms(ms)), RateDecision::Allowed { .. })
                };
                prop_assert!(allowed(ms + wait));
                prop_assert!(!allowed(ms + wait - 1));
            }
        }
    }
}
