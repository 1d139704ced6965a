//! Ticks in a row that started no run, for the same reason.
//!
//! The first is recorded in the ledger. Further ones are summed up, once per window and when the reason changes, so that
//! a schedule that ticks every second can't fill the ledger. Refused ticks are tried less and less often, and a schedule
//! whose ticks are refused again and again is paused.

use super::TickOutcome;
use crate::error::ErrorBody;
use crate::limits::{SCHEDULE_BACKOFF_SECONDS_MAX, SCHEDULE_REFUSALS_MAX, SCHEDULE_SUMMARY_SECONDS};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

/// The ticks since the last one that started a run. Times are in microseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Streak {
    outcome: String,
    code: String,
    reason: String,
    /// Ticks that were tried.
    tried: u32,
    /// When the ledger last got an entry about it.
    recorded_at: i64,
    /// Ticks that the ledger does not have yet.
    unrecorded: u64,
    first_at: i64,
    last_at: i64,
}

/// A tick that started no run.
#[derive(Clone, Copy, Debug)]
pub struct FailedTick<'a> {
    pub tick: Timestamp,
    pub outcome: TickOutcome,
    pub error: &'a ErrorBody,
    /// Ticks after it that are not tried at all.
    pub dropped: usize,
}

/// What the ledger gets about several ticks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TickSummary {
    pub outcome: String,
    pub code: String,
    pub reason: String,
    pub ticks: u64,
    pub first: Timestamp,
    pub last: Timestamp,
}

/// What is recorded about a tick that started no run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreakEntry {
    /// It is the first of its kind. Those of another kind before it are summed up.
    First(Option<TickSummary>),
    /// It is summed up later.
    Nothing,
    /// It and those before it.
    Summary(TickSummary),
}

impl Streak {
    /// Adds a tick; returns what is recorded.
    #[must_use]
    pub fn extend(before: Option<Self>, failed: FailedTick<'_>, now: Timestamp) -> (Self, StreakEntry) {
        let same = |streak: &Self| {
            streak.outcome == failed.outcome.as_str()
                && streak.code == failed.error.code
                && streak.reason == failed.error.message
        };
        let (at, dropped) = (failed.tick.micros(), failed.dropped as u64);
        let (Some(mut streak), true) = (before.clone(), before.as_ref().is_some_and(same)) else {
            let streak = Self {
                outcome: failed.outcome.as_str().to_owned(),
                code: failed.error.code.clone(),
                reason: failed.error.message.clone(),
                tried: 1,
                recorded_at: now.micros(),
                unrecorded: dropped,
                first_at: at,
                last_at: at,
            };
            return (streak, StreakEntry::First(before.as_ref().and_then(Self::summary)));
        };
        if streak.unrecorded == 0 {
            streak.first_at = at;
        }
        streak.tried = streak.tried.saturating_add(1);
        streak.unrecorded = streak.unrecorded.saturating_add(1);
        streak.last_at = at;
        let since = now.micros().saturating_sub(streak.recorded_at);
        if since < SCHEDULE_SUMMARY_SECONDS.saturating_mul(1_000_000) {
            streak.unrecorded = streak.unrecorded.saturating_add(dropped);
            return (streak, StreakEntry::Nothing);
        }
        let summary = streak.summary();
        streak.recorded_at = now.micros();
        streak.unrecorded = dropped;
        (streak, summary.map_or(StreakEntry::Nothing, StreakEntry::Summary))
    }

    /// The ticks that the ledger does not have yet, if any.
    #[must_use]
    pub fn summary(&self) -> Option<TickSummary> {
        (self.unrecorded > 0).then(|| TickSummary {
            outcome: self.outcome.clone(),
            code: self.code.clone(),
            reason: self.reason.clone(),
            ticks: self.unrecorded,
            first: Timestamp::from_micros(self.first_at),
            last: Timestamp::from_micros(self.last_at),
        })
    }

    /// How long no tick is tried after the last one: twice as long every time.
    #[must_use]
    pub fn backoff_seconds(&self) -> i64 {
        let doubled = 1_i64.checked_shl(self.tried.saturating_sub(1)).filter(|seconds| *seconds > 0);
        doubled.unwrap_or(i64::MAX).min(SCHEDULE_BACKOFF_SECONDS_MAX)
    }

    /// Whether trying again makes no sense until somebody has looked at it.
    #[must_use]
    pub fn is_hopeless(&self) -> bool {
        self.outcome == TickOutcome::Refused.as_str() && self.tried >= SCHEDULE_REFUSALS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_micros(second * 1_000_000)
    }

    fn failed(second: i64, error: &ErrorBody) -> FailedTick<'_> {
        FailedTick { tick: at(second), outcome: TickOutcome::Refused, error, dropped: 0 }
    }

    #[test]
    fn equal_refusals_are_recorded_once_and_then_in_sum() {
        let error = ErrorBody::new(Code::RbacForbidden, "not allowed");
        let (mut streak, first) = Streak::extend(None, failed(0, &error), at(0));
        assert_eq!(first, StreakEntry::First(None));
        let mut recorded = Vec::new();
        for second in 1..=2 * SCHEDULE_SUMMARY_SECONDS {
            let (next, entry) = Streak::extend(Some(streak), failed(second, &error), at(second));
            streak = next;
            if let StreakEntry::Summary(summary) = entry {
                recorded.push((summary.ticks, summary.first, summary.last));
            }
        }
        let window = SCHEDULE_SUMMARY_SECONDS;
        let ticks = u64::try_from(window).unwrap();
        assert_eq!(recorded, [(ticks, at(1), at(window)), (ticks, at(window + 1), at(2 * window))]);
        let other = ErrorBody::new(Code::RbacForbidden, "disabled");
        let (streak, entry) = Streak::extend(Some(streak), failed(2 * window + 1, &other), at(2 * window + 1));
        assert_eq!((entry, streak.summary()), (StreakEntry::First(None), None), "nothing was left to sum up");
    }

    #[test]
    fn another_reason_ends_the_sum_of_the_one_before() {
        let (one, other) = (ErrorBody::new(Code::RbacForbidden, "a"), ErrorBody::new(Code::RbacForbidden, "b"));
        let (streak, _) = Streak::extend(None, FailedTick { dropped: 3, ..failed(0, &one) }, at(0));
        let (streak, entry) = Streak::extend(Some(streak), failed(5, &one), at(5));
        assert_eq!(entry, StreakEntry::Nothing);
        let (_, entry) = Streak::extend(Some(streak), failed(6, &other), at(6));
        let StreakEntry::First(Some(summary)) = entry else { panic!("{entry:?}") };
        assert_eq!((summary.ticks, summary.reason.as_str()), (4, "a"));
    }

    #[test]
    fn what_is_refused_is_tried_less_often_and_then_no_more() {
        let error = ErrorBody::new(Code::RbacForbidden, "not allowed");
        let (mut streak, _) = Streak::extend(None, failed(0, &error), at(0));
        let mut waits = vec![streak.backoff_seconds()];
        while !streak.is_hopeless() {
            (streak, _) = Streak::extend(Some(streak), failed(1, &error), at(1));
            waits.push(streak.backoff_seconds());
        }
        assert_eq!(waits.len(), usize::try_from(SCHEDULE_REFUSALS_MAX).unwrap());
        assert!(waits.starts_with(&[1, 2, 4, 8]) && waits.iter().all(|wait| *wait <= SCHEDULE_BACKOFF_SECONDS_MAX));
        let busy = FailedTick { outcome: TickOutcome::Skipped, ..failed(0, &error) };
        let mut skipped = Streak::extend(None, busy, at(0)).0;
        for _ in 0..100 {
            skipped = Streak::extend(Some(skipped), busy, at(0)).0;
        }
        assert!(!skipped.is_hopeless(), "a run that takes long is no reason to pause");
        assert_eq!(skipped.backoff_seconds(), SCHEDULE_BACKOFF_SECONDS_MAX);
    }
}
