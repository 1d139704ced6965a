//! The retry policy of calls.
//!
//! At most three retries, with a backoff of 1 s, 2 s and 4 s and ±20 % jitter, or the other side's
//! `Retry-After` if that is longer. Only errors marked `retryable` are retried.

use crate::error::ErrorBody;
use crate::limits::{RETRIES_MAX, RETRY_AFTER_SECONDS_MAX, RETRY_FIRST_DELAY_MS, RETRY_JITTER_PER_MILLE};
use crate::time::Timestamp;

/// When attempt number `tried + 1` is due, if there is one. `dice` is any random number.
#[must_use]
pub fn due(error: &ErrorBody, tried: u32, retries_max: u32, now: Timestamp, dice: u64) -> Option<Timestamp> {
    if !error.retryable || tried == 0 || tried > retries_max.min(RETRIES_MAX) {
        return None;
    }
    let base = RETRY_FIRST_DELAY_MS << (tried - 1);
    let spread = base * RETRY_JITTER_PER_MILLE / 1_000;
    let jitter = i64::try_from(dice % (2 * spread.unsigned_abs() + 1)).unwrap_or(0) - spread;
    let asked = error.retry_after_seconds.unwrap_or(0).min(RETRY_AFTER_SECONDS_MAX);
    let wait_ms = (base + jitter).max(i64::try_from(asked).unwrap_or(0) * 1_000);
    Some(Timestamp::from_micros(now.micros().saturating_add(wait_ms * 1_000)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    fn delay_ms(error: &ErrorBody, tried: u32, dice: u64) -> Option<i64> {
        due(error, tried, RETRIES_MAX, Timestamp::from_micros(0), dice).map(Timestamp::millis)
    }

    /// CONTENT-143, CONTENT-144
    #[test]
    fn three_retries_wait_one_two_and_four_seconds_give_or_take_a_fifth() {
        let error = ErrorBody::new(Code::ExternalServiceError, "down");
        for (tried, base) in [(1, 1_000), (2, 2_000), (3, 4_000)] {
            let delays: Vec<i64> = (0..5_000).filter_map(|dice| delay_ms(&error, tried, dice)).collect();
            assert_eq!(delays.iter().min(), Some(&(base * 8 / 10)));
            assert_eq!(delays.iter().max(), Some(&(base * 12 / 10)));
        }
        assert_eq!(delay_ms(&error, 4, 0), None);
    }

    #[test]
    fn the_longer_of_both_waits_counts() {
        let error = ErrorBody::new(Code::RateLimited, "slow down");
        assert_eq!(delay_ms(&error.clone().retry_after(60), 1, 7), Some(60_000));
        assert!(delay_ms(&error.retry_after(1), 3, 0) >= Some(3_200));
    }

    #[test]
    fn what_can_not_be_retried_is_not() {
        assert_eq!(delay_ms(&ErrorBody::new(Code::ValidationFailed, "no"), 1, 0), None);
    }
}
