//! When a schedule ticks: by a cron expression in a time zone, or at a fixed interval from an anchor.
//!
//! A cron expression is read on the clock on the wall. A local time that the clock skips ticks at the moment after the
//! gap; a local time that comes twice ticks at the first of them. An expression for every hour of the day follows
//! elapsed time instead, so that `*/10 * * * *` ticks every ten minutes on the days when clocks change too.

use super::{Cron, Zone};
use crate::limits::SCHEDULE_TRANSITIONS_MAX;
use crate::time::{MICROS_PER_SECOND, Timestamp};

/// The times of a schedule.
#[derive(Clone, Debug, PartialEq)]
pub enum Timing {
    Cron {
        cron: Cron,
        zone: Zone,
    },
    /// `anchor + n * every_seconds`, also before the anchor.
    Interval {
        every_seconds: i64,
        anchor: Timestamp,
    },
}

impl Timing {
    /// The first tick after an instant; `None` if there is none.
    #[must_use]
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Cron { cron, zone } => next_cron(cron, *zone, after.micros().div_euclid(MICROS_PER_SECOND) + 1)
                .map(|at| Timestamp::from_micros(at * MICROS_PER_SECOND)),
            Self::Interval { every_seconds, anchor } => {
                let every = every_seconds.checked_mul(MICROS_PER_SECOND).filter(|every| *every > 0)?;
                let since = after.micros().checked_sub(anchor.micros())?;
                let next = (since.div_euclid(every) + 1).checked_mul(every)?;
                anchor.micros().checked_add(next).map(Timestamp::from_micros)
            }
        }
    }

    /// The first tick at or after an instant.
    #[must_use]
    pub fn next_at_or_after(&self, from: Timestamp) -> Option<Timestamp> {
        self.next_after(Timestamp::from_micros(from.micros().saturating_sub(1)))
    }

    /// The last tick in `first..=until`, where `first` is a tick: found by halving, however many ticks there are.
    #[must_use]
    pub fn last_until(&self, first: Timestamp, until: Timestamp) -> Timestamp {
        let (mut last, mut end) = (first, until.micros().saturating_add(1));
        while end - last.micros() > 1 {
            let middle = Timestamp::from_micros(last.micros() + (end - last.micros()) / 2);
            match self.next_at_or_after(middle).filter(|tick| *tick <= until) {
                Some(tick) => last = tick,
                None => end = middle.micros(),
            }
        }
        last
    }
}

/// The first tick of an expression at or after an instant, in seconds.
fn next_cron(cron: &Cron, zone: Zone, from: i64) -> Option<i64> {
    let by_the_wall = !cron.is_hourly();
    let mut at = from;
    for _ in 0..SCHEDULE_TRANSITIONS_MAX {
        if by_the_wall && let Some(last) = zone.last_transition(at) {
            if last.at == at && last.after > last.before {
                // Whatever the clock skipped ticks now.
                let skipped = cron.next_local(at + last.before)?;
                if skipped < at + last.after {
                    return Some(at);
                }
            }
            // The clock was set back: what it shows for the second time has been.
            at = at.max(last.at + (last.before - last.after).max(0));
        }
        let offset = zone.offset_at(at);
        let next = cron.next_local(at + offset)? - offset;
        match zone.next_transition(at) {
            Some(change) if change.at <= next => at = change.at,
            _ => return Some(next),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cron(text: &str, zone: &str) -> Timing {
        Timing::Cron { cron: Cron::parse(text).unwrap(), zone: Zone::named(zone).unwrap() }
    }

    fn ticks(timing: &Timing, from: &str, count: usize) -> Vec<String> {
        let first = timing.next_at_or_after(from.parse().unwrap());
        let all = std::iter::successors(first, |tick| timing.next_after(*tick));
        all.take(count).map(|tick| tick.to_string()[..16].to_owned()).collect()
    }

    #[test]
    fn a_time_that_the_clock_skips_ticks_after_the_gap() {
        for (zone, from, expected) in [
            // 02:30 does not exist on these days.
            ("Europe/Berlin", "2027-03-27T00:00:00Z", ["2027-03-27T01:30", "2027-03-28T01:00", "2027-03-29T00:30"]),
            ("America/New_York", "2027-03-13T00:00:00Z", ["2027-03-13T07:30", "2027-03-14T07:00", "2027-03-15T06:30"]),
            ("Pacific/Auckland", "2027-09-24T14:00:00Z", ["2027-09-24T14:30", "2027-09-25T14:00", "2027-09-26T13:30"]),
        ] {
            assert_eq!(ticks(&cron("30 2 * * *", zone), from, 3), expected, "{zone}");
        }
        // A gap of half an hour: 02:00 to 02:30.
        let howe = cron("15 2 * * *", "Australia/Lord_Howe");
        assert_eq!(
            ticks(&howe, "2027-10-01T00:00:00Z", 3),
            ["2027-10-01T15:45", "2027-10-02T15:30", "2027-10-03T15:15"]
        );
        // Several skipped times, and one at the end of the gap, are one tick.
        let many = cron("0,20,40 2,3 * * *", "Europe/Berlin");
        assert_eq!(
            ticks(&many, "2027-03-28T00:00:00Z", 4),
            ["2027-03-28T01:00", "2027-03-28T01:20", "2027-03-28T01:40", "2027-03-29T00:00"]
        );
    }

    #[test]
    fn a_time_that_comes_twice_ticks_once() {
        for (zone, from, expected) in [
            ("Europe/Berlin", "2027-10-30T00:00:00Z", ["2027-10-30T00:30", "2027-10-31T00:30", "2027-11-01T01:30"]),
            ("Pacific/Auckland", "2027-04-02T00:00:00Z", ["2027-04-02T13:30", "2027-04-03T13:30", "2027-04-04T14:30"]),
            ("Africa/Casablanca", "2027-02-06T00:00:00Z", ["2027-02-06T01:30", "2027-02-07T01:30", "2027-02-08T02:30"]),
        ] {
            assert_eq!(ticks(&cron("30 2 * * *", zone), from, 3), expected, "{zone}");
        }
        let york = cron("30 1 * * *", "America/New_York");
        assert_eq!(ticks(&york, "2027-11-07T00:00:00Z", 2), ["2027-11-07T05:30", "2027-11-08T06:30"]);
        // The clock goes back over midnight.
        let havana = cron("30 0 * * *", "America/Havana");
        assert_eq!(ticks(&havana, "2027-11-07T00:00:00Z", 2), ["2027-11-07T04:30", "2027-11-08T05:30"]);
    }

    #[test]
    fn an_expression_for_every_hour_follows_elapsed_time() {
        let half_hours = cron("*/30 * * * *", "Europe/Berlin");
        assert_eq!(
            ticks(&half_hours, "2027-10-31T00:30:00Z", 4),
            ["2027-10-31T00:30", "2027-10-31T01:00", "2027-10-31T01:30", "2027-10-31T02:00"]
        );
        assert_eq!(
            ticks(&half_hours, "2027-03-28T00:30:00Z", 3),
            ["2027-03-28T00:30", "2027-03-28T01:00", "2027-03-28T01:30"]
        );
        let hourly = cron("30 * * * *", "Europe/Berlin");
        assert_eq!(
            ticks(&hourly, "2027-03-28T00:00:00Z", 3),
            ["2027-03-28T00:30", "2027-03-28T01:30", "2027-03-28T02:30"]
        );
    }

    #[test]
    fn an_interval_counts_from_its_anchor() {
        let anchor = "2027-01-01T00:05:00Z".parse().unwrap();
        let timing = Timing::Interval { every_seconds: 900, anchor };
        assert_eq!(
            ticks(&timing, "2027-01-01T00:05:00Z", 3),
            ["2027-01-01T00:05", "2027-01-01T00:20", "2027-01-01T00:35"]
        );
        assert_eq!(ticks(&timing, "2026-12-31T23:00:00Z", 1), ["2026-12-31T23:05"]);
    }

    const ZONES: [&str; 8] = [
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "America/Havana",
        "Australia/Lord_Howe",
        "Africa/Casablanca",
        "Asia/Kathmandu",
        "Atlantic/Azores",
    ];
    const EXPRESSIONS: [&str; 8] = [
        "*/7 * * * *",
        "30 2 * * *",
        "0 0 * * *",
        "15,45 0-3 * * *",
        "59 23 * * SUN",
        "0 */6 1,15 * *",
        "0 12 29 2 *",
        "*/20 1,2,3 * 3,10,11 *",
    ];

    proptest! {
        #[test]
        fn ticks_increase_and_match_the_expression_or_end_a_gap(
            zone in proptest::sample::select(&ZONES[..]),
            text in proptest::sample::select(&EXPRESSIONS[..]),
            start in 1_790_000_000_i64..2_200_000_000,
        ) {
            let (timing, parsed) = (cron(text, zone), Cron::parse(text).unwrap());
            let zone = Zone::named(zone).unwrap();
            let mut at = Timestamp::from_micros(start * MICROS_PER_SECOND);
            for _ in 0..20 {
                let next = timing.next_after(at).unwrap();
                prop_assert!(next > at);
                let seconds = next.micros() / MICROS_PER_SECOND;
                let matches = parsed.next_local(seconds + zone.offset_at(seconds)) == Some(seconds + zone.offset_at(seconds));
                let ends_gap = zone.last_transition(seconds).is_some_and(|last| last.at == seconds && last.after > last.before);
                prop_assert!(matches || ends_gap, "{next}");
                // Nothing between two ticks is a tick.
                let middle = Timestamp::from_micros(at.micros() + (next.micros() - at.micros()) / 2);
                prop_assert_eq!(timing.next_after(middle), Some(next));
                at = next;
            }
        }

        #[test]
        fn the_last_tick_is_the_one_before_the_next(
            zone in proptest::sample::select(&ZONES[..]),
            text in proptest::sample::select(&EXPRESSIONS[..]),
            start in 1_790_000_000_i64..2_200_000_000,
            span in 0_i64..100_000_000,
        ) {
            let timing = cron(text, zone);
            let first = timing.next_after(Timestamp::from_micros(start * MICROS_PER_SECOND)).unwrap();
            let until = first.plus_seconds(span);
            let last = timing.last_until(first, until);
            prop_assert!(first <= last && last <= until);
            prop_assert!(timing.next_after(last).unwrap() > until);
            prop_assert_eq!(timing.next_at_or_after(last), Some(last));
        }
    }
}
