//! Checks this machine's clock against the ledger and the database.
//!
//! A clock that is ahead looks like a long downtime, so without a second clock only one that is behind is
//! detected.

use chimera_core::limits::CLOCK_DIFFERENCE_SECONDS_MAX;
use chimera_core::time::Timestamp;
use std::fmt;

/// Why a clock is implausible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClockDisagreement {
    /// The ledger has a later entry, and there is no other clock to ask.
    BehindLedger { now: Timestamp, newest: Timestamp },
    /// The database's clock says something else.
    Database { now: Timestamp, theirs: Timestamp },
    /// The database's clock agrees, but the ledger has a later entry: both are behind, or whoever wrote
    /// it was ahead.
    LedgerAhead { now: Timestamp, newest: Timestamp },
}

impl ClockDisagreement {
    /// Compares a clock with the newest ledger entry and with the clock of the store.
    pub(crate) fn find(now: Timestamp, newest: Option<Timestamp>, theirs: Option<Timestamp>) -> Option<Self> {
        if let Some(theirs) = theirs.filter(|theirs| seconds(now, *theirs) > CLOCK_DIFFERENCE_SECONDS_MAX) {
            return Some(Self::Database { now, theirs });
        }
        let newest = newest.filter(|newest| *newest > now && seconds(now, *newest) > CLOCK_DIFFERENCE_SECONDS_MAX)?;
        Some(match theirs {
            None => Self::BehindLedger { now, newest },
            Some(_) => Self::LedgerAhead { now, newest },
        })
    }

    /// Whether a node must not begin: deadlines in the store are times of day.
    pub(crate) const fn stops(self) -> bool {
        !matches!(self, Self::LedgerAhead { .. })
    }

    /// What to do about it.
    pub(crate) const fn hint(self) -> &'static str {
        match self {
            Self::BehindLedger { .. } => {
                "correct the clock (NTP); if it is right now and was ahead before, chimera resume --accept-clock"
            }
            Self::Database { .. } => "correct the clock that is wrong: run NTP on this machine and on the database's",
            Self::LedgerAhead { .. } => "compare the clocks of all machines; docs/guides/operations.md, The clock",
        }
    }
}

impl fmt::Display for ClockDisagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::BehindLedger { now, newest } => write!(
                f,
                "this machine's clock says {now}, but the newest ledger entry is of {newest}: it is {} seconds behind",
                seconds(now, newest)
            ),
            Self::Database { now, theirs } => write!(
                f,
                "this machine's clock says {now}, the database's says {theirs}: they differ by {} seconds",
                seconds(now, theirs)
            ),
            Self::LedgerAhead { now, newest } => write!(
                f,
                "this machine and the database say that it is {now}, but the newest ledger entry is of {newest}: \
                 either both are behind, or a node wrote it while its clock was ahead"
            ),
        }
    }
}

fn seconds(one: Timestamp, other: Timestamp) -> i64 {
    (one.micros() - other.micros()).abs() / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros((10 * DAY + seconds) * 1_000_000)
    }

    #[test]
    fn without_a_second_clock_only_one_that_is_behind_is_found_out() {
        let found = |newest| ClockDisagreement::find(at(0), Some(at(newest)), None);
        assert_eq!(found(CLOCK_DIFFERENCE_SECONDS_MAX), None);
        assert_eq!(found(-DAY), None, "a long stop");
        let behind = found(DAY).unwrap();
        assert_eq!(behind, ClockDisagreement::BehindLedger { now: at(0), newest: at(DAY) });
        assert!(behind.stops());
        let words = behind.to_string();
        assert!(words.contains("1970-01-11") && words.contains("1970-01-12") && words.contains("86400"), "{words}");
        assert_eq!(ClockDisagreement::find(at(0), None, None), None);
    }

    #[test]
    fn the_clock_of_a_database_is_compared_both_ways_and_counts_more_than_an_entry() {
        for theirs in [-DAY, DAY] {
            let found = ClockDisagreement::find(at(0), Some(at(0)), Some(at(theirs))).unwrap();
            assert!(matches!(found, ClockDisagreement::Database { .. }) && found.stops());
        }
        let ahead = ClockDisagreement::find(at(0), Some(at(DAY)), Some(at(1))).unwrap();
        assert!(matches!(ahead, ClockDisagreement::LedgerAhead { .. }) && !ahead.stops());
        assert_eq!(ClockDisagreement::find(at(0), Some(at(0)), Some(at(CLOCK_DIFFERENCE_SECONDS_MAX))), None);
    }
}
