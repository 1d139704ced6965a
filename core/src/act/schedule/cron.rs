//! Cron expressions: five fields (minute, hour, day of month, month, day of week) with lists, ranges, steps and names.
//!
//! When both days are restricted, a date that matches either of them matches, as in every cron. Seconds, years and
//! the letters of other dialects (`L`, `W`, `#`, `?`) are refused.

use crate::limits::{CRON_CHARS_MAX, CRON_SEARCH_YEARS_MAX};
use crate::time::{civil_from_days, days_from_civil, days_in};
use std::fmt;

const DAY: i64 = 86_400;
const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const SHORTCUTS: [(&str, &str); 7] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

/// A parsed expression. Each field is a set of bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron {
    text: String,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// A date must match both days, not either: one of them is `*`.
    both_days: bool,
}

/// Why an expression is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCron {
    #[error("a cron expression has 5 fields (minute, hour, day of month, month, day of week), this one has {found}")]
    Fields { found: usize },
    #[error("`{part}` is not a valid {field} of a cron expression; use {min} to {max}, *, lists, ranges and steps")]
    Part { part: String, field: &'static str, min: u32, max: u32 },
    #[error("no date matches the cron expression")]
    Never,
    #[error("a cron expression has at most {CRON_CHARS_MAX} characters")]
    TooLong,
}

struct Field {
    name: &'static str,
    min: u32,
    max: u32,
    words: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    Field { name: "minute", min: 0, max: 59, words: &[] },
    Field { name: "hour", min: 0, max: 23, words: &[] },
    Field { name: "day of month", min: 1, max: 31, words: &[] },
    Field { name: "month", min: 1, max: 12, words: &MONTHS },
    Field { name: "day of week", min: 0, max: 7, words: &WEEKDAYS },
];

impl Cron {
    pub fn parse(text: &str) -> Result<Self, InvalidCron> {
        let text = text.trim();
        if text.len() > CRON_CHARS_MAX {
            return Err(InvalidCron::TooLong);
        }
        let plain = SHORTCUTS.iter().find(|(name, _)| *name == text).map_or(text, |(_, meaning)| meaning);
        let parts: Vec<&str> = plain.split_ascii_whitespace().collect();
        let [minute, hour, day, month, weekday] = parts[..] else {
            return Err(InvalidCron::Fields { found: parts.len() });
        };
        let [minutes, hours, days, months, weekdays] = &FIELDS;
        let mut weekday_bits = weekdays.parse(weekday)?;
        // 7 is Sunday too.
        weekday_bits |= (weekday_bits >> 7) & 1;
        let cron = Self {
            text: text.to_owned(),
            minutes: minutes.parse(minute)?,
            hours: hours.parse(hour)?,
            days: days.parse(day)?,
            months: months.parse(month)?,
            weekdays: weekday_bits & 0x7f,
            both_days: day.starts_with('*') || weekday.starts_with('*'),
        };
        // Every date of the calendar comes within the years that are searched.
        cron.next_local(0).map(|_| cron).ok_or(InvalidCron::Never)
    }

    /// Whether it runs in every hour of a day. Then it follows elapsed time, not the clock on the wall.
    pub(super) const fn is_hourly(&self) -> bool {
        self.hours == (1 << 24) - 1
    }

    /// The first match at or after a local time, both in seconds.
    pub(super) fn next_local(&self, from: i64) -> Option<i64> {
        // The next whole minute.
        let from = from.div_euclid(60) + i64::from(from.rem_euclid(60) != 0);
        let (mut day, mut minute) = (from.div_euclid(1_440), from.rem_euclid(1_440));
        let (first_year, _, _) = civil_from_days(day);
        loop {
            let (year, month, of_month) = civil_from_days(day);
            if year > first_year + CRON_SEARCH_YEARS_MAX {
                return None;
            }
            if !has(self.months, month) {
                // The first day of the next month.
                (day, minute) = (days_from_civil(year, month, 1) + days_in(year, month), 0);
                continue;
            }
            if self.is_day(of_month, (day + 4).rem_euclid(7))
                && let Some(minute) = self.next_minute(minute)
            {
                return Some(day * DAY + minute * 60);
            }
            (day, minute) = (day + 1, 0);
        }
    }

    fn is_day(&self, of_month: i64, weekday: i64) -> bool {
        let (day, weekday) = (has(self.days, of_month), has(self.weekdays, weekday));
        if self.both_days { day && weekday } else { day || weekday }
    }

    /// The first match at or after a minute of the day.
    fn next_minute(&self, from: i64) -> Option<i64> {
        let first = from / 60;
        (first..24).filter(|hour| has(self.hours, *hour)).find_map(|hour| {
            let from = if hour == first { from % 60 } else { 0 };
            (from..60).find(|minute| has(self.minutes, *minute)).map(|minute| hour * 60 + minute)
        })
    }
}

impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Field {
    /// Parses a comma-separated list of `*`, `a`, `a-b`, each with an optional `/step`.
    fn parse(&self, text: &str) -> Result<u64, InvalidCron> {
        text.split(',').try_fold(0, |bits, part| Ok(bits | self.parse_part(part).ok_or_else(|| self.invalid(part))?))
    }

    fn parse_part(&self, part: &str) -> Option<u64> {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(number(step).filter(|step| (1..=self.max).contains(step))?)),
            None => (part, None),
        };
        let (from, to) = match range.split_once('-') {
            _ if range == "*" => (self.min, if self.max == 7 { 6 } else { self.max }),
            Some((from, to)) => (self.value(from)?, self.value(to)?),
            None => {
                let from = self.value(range)?;
                // `5/15` means from 5 on.
                (from, if step.is_some() { self.max } else { from })
            }
        };
        let values = (from <= to).then_some(from..=to)?;
        Some(values.step_by(step.unwrap_or(1) as usize).fold(0, |bits, value| bits | 1 << value))
    }

    fn value(&self, text: &str) -> Option<u32> {
        let word = text.to_ascii_lowercase();
        if let Some(at) = self.words.iter().position(|name| *name == word) {
            return u32::try_from(at).ok().map(|at| at + self.min);
        }
        number(text).filter(|value| (self.min..=self.max).contains(value))
    }

    fn invalid(&self, part: &str) -> InvalidCron {
        InvalidCron::Part { part: part.to_owned(), field: self.name, min: self.min, max: self.max }
    }
}

fn number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.len() <= 4 && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

const fn has(bits: u64, value: i64) -> bool {
    (bits >> value) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

    fn seconds(text: &str) -> i64 {
        text.parse::<Timestamp>().unwrap().micros() / 1_000_000
    }

    /// The first match at or after a time.
    fn next(cron: &str, from: &str) -> String {
        let next = Cron::parse(cron).unwrap().next_local(seconds(from)).unwrap();
        Timestamp::from_micros(next * 1_000_000).to_string()[..16].to_owned()
    }

    #[test]
    fn fields_have_lists_ranges_steps_and_names() {
        for (cron, from, expected) in [
            ("* * * * *", "2027-01-01T00:00:01Z", "2027-01-01T00:01"),
            ("*/15 * * * *", "2027-01-01T00:46:00Z", "2027-01-01T01:00"),
            ("5/20 * * * *", "2027-01-01T00:26:00Z", "2027-01-01T00:45"),
            ("0 9-17/4 * * MON-FRI", "2027-01-01T14:00:00Z", "2027-01-01T17:00"),
            ("0 9-17/4 * * mon-fri", "2027-01-01T18:00:00Z", "2027-01-04T09:00"),
            ("30 2 1,15 * *", "2027-01-02T00:00:00Z", "2027-01-15T02:30"),
            ("0 0 29 FEB *", "2027-01-01T00:00:00Z", "2028-02-29T00:00"),
            ("0 0 * * 7", "2027-01-01T00:00:00Z", "2027-01-03T00:00"),
            ("0 0 * * 5-7", "2027-01-03T00:01:00Z", "2027-01-08T00:00"),
            ("0 0 13 * FRI", "2027-01-02T00:00:00Z", "2027-01-08T00:00"),
            ("0 0 */2 * MON", "2027-01-01T00:01:00Z", "2027-01-11T00:00"),
            ("@weekly", "2027-01-01T00:00:00Z", "2027-01-03T00:00"),
            ("@yearly", "2027-01-01T00:00:01Z", "2028-01-01T00:00"),
        ] {
            assert_eq!(next(cron, from), expected, "{cron} from {from}");
        }
    }

    #[test]
    fn what_is_no_expression_is_refused_with_the_part_that_is_wrong() {
        assert_eq!(Cron::parse("0 0 * *"), Err(InvalidCron::Fields { found: 4 }));
        assert_eq!(Cron::parse("0 0 0 * * *"), Err(InvalidCron::Fields { found: 6 }));
        assert_eq!(Cron::parse("0 0 31 2 *"), Err(InvalidCron::Never));
        assert_eq!(Cron::parse(&"0,".repeat(500)), Err(InvalidCron::TooLong));
        for bad in ["60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "*/0 * * * *", "5-1 * * * *"] {
            assert!(matches!(Cron::parse(bad), Err(InvalidCron::Part { .. })), "{bad}");
        }
        for bad in ["+1 * * * *", "1- * * * *", "a * * * *", "* * L * *", "* * ? * *", "* * * * MON#2", ", * * * *"] {
            assert!(matches!(Cron::parse(bad), Err(InvalidCron::Part { .. })), "{bad}");
        }
        let error = Cron::parse("* 25 * * *").unwrap_err().to_string();
        assert!(error.starts_with("`25` is not a valid hour of a cron expression; use 0 to 23"), "{error}");
    }
}
