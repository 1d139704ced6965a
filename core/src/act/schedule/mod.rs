//! Schedules: a workflow that an actor starts again and again, by cron or at an interval.
//!
//! A tick is a proposal by the schedule's owner, decided like any other request. This module decides when ticks are and
//! what is done about each of them: `timing` knows the times, `decide` the policies for overlapping runs and for ticks
//! that passed while nothing ran.

mod cron;
mod decide;
mod streak;
mod timing;
mod zone;

pub use cron::{Cron, InvalidCron};
pub use decide::{Backlog, Missed, ScheduleRules, TickAction, Wake, decide};
pub use streak::{FailedTick, Streak, StreakEntry, TickSummary};
pub use timing::Timing;
pub use zone::{Transition, Zone};

use crate::limits::SCHEDULE_NAME_CHARS_MAX;
use crate::words::words;

words! {
    /// What a tick does while a run of an earlier tick is not finished.
    Overlap {
        Skip = "skip",
        /// The tick waits for the run to end.
        Queue = "queue",
        Allow = "allow",
        /// The runs of earlier ticks are cancelled.
        CancelPrevious = "cancel_previous",
    }
}

words! {
    /// What is done about ticks that passed while no node could start them.
    CatchUp {
        Skip = "skip",
        /// Only the last of them is started.
        Last = "last",
        /// Each of them is started, if it lies within the window.
        All = "all",
    }
}

words! {
    /// What became of a tick.
    TickOutcome {
        Started = "started",
        /// A run of an earlier tick was not finished, or the owner's rate limit was reached.
        Skipped = "skipped",
        /// It starts when the run of an earlier tick ends.
        Queued = "queued",
        /// The owner may not start the workflow, or it can't be started.
        Refused = "refused",
        /// It passed while no node could start it.
        Missed = "missed",
    }
}

/// Whether a text can name a schedule: letters, digits, `_`, `-` and `.`, beginning with a letter or digit.
#[must_use]
pub fn is_schedule_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    name.len() <= SCHEDULE_NAME_CHARS_MAX
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(allowed)
}

/// Parses an interval such as `90s`, `15m`, `6h`, `1d` or `2w` to seconds.
#[must_use]
pub fn parse_interval(text: &str) -> Option<i64> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text.get(number.len()..)? {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "w" => 604_800,
        _ => return None,
    };
    let digits = number.bytes().all(|byte| byte.is_ascii_digit()) && number.len() <= 9;
    digits.then(|| number.parse::<i64>().ok()).flatten()?.checked_mul(unit)
}

/// Writes an interval as [`parse_interval`] reads it, in the largest unit without a rest.
#[must_use]
pub fn interval_text(seconds: i64) -> String {
    let units = [(604_800, 'w'), (86_400, 'd'), (3_600, 'h'), (60, 'm')];
    let unit = units.into_iter().find(|(unit, _)| seconds % unit == 0 && seconds != 0).unwrap_or((1, 's'));
    format!("{}{}", seconds / unit.0, unit.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_written_as_they_are_read() {
        for (text, seconds) in [("90s", 90), ("15m", 900), ("6h", 21_600), ("1d", 86_400), ("2w", 1_209_600)] {
            assert_eq!((parse_interval(text), interval_text(seconds).as_str()), (Some(seconds), text));
        }
        for bad in ["", "m", "15", "-1m", "1.5h", "15 m", "1y", "99999999999s"] {
            assert_eq!(parse_interval(bad), None, "{bad}");
        }
        assert_eq!(interval_text(7_200), "2h");
    }

    #[test]
    fn a_name_has_letters_digits_and_three_marks() {
        assert!(is_schedule_name("daily-report_2.eu") && is_schedule_name("7am"));
        for bad in ["", "-x", ".x", "a b", "a/b", "ä", &"a".repeat(200)] {
            assert!(!is_schedule_name(bad), "{bad}");
        }
    }
}
