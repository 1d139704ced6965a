//! Points in time as microseconds since the Unix epoch, always UTC.
//!
//! The text form is RFC 3339 with six decimals and `Z`. Text order is therefore time order, and an instant has
//! exactly one representation in hashed content.

use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// An instant in UTC with microsecond resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// Text that is not an RFC 3339 date and time.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("not an RFC 3339 date-time")]
pub struct InvalidTimestamp;

pub(crate) const MICROS_PER_SECOND: i64 = 1_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

impl Timestamp {
    /// The instant `micros` microseconds after 1970-01-01T00:00:00Z.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since the Unix epoch.
    #[must_use]
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Milliseconds since the Unix epoch, rounded down.
    #[must_use]
    pub const fn millis(self) -> i64 {
        self.0.div_euclid(1_000)
    }

    /// The instant `seconds` later, saturating at the end of time.
    #[must_use]
    pub const fn plus_seconds(self, seconds: i64) -> Self {
        Self(self.0.saturating_add(seconds.saturating_mul(MICROS_PER_SECOND)))
    }
}

/// As its text form.
impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.div_euclid(MICROS_PER_SECOND);
        let micros = self.0.rem_euclid(MICROS_PER_SECOND);
        let (year, month, day) = civil_from_days(seconds.div_euclid(SECONDS_PER_DAY));
        let of_day = seconds.rem_euclid(SECONDS_PER_DAY);
        let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
        if !(0..=9_999).contains(&year) {
            return write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z");
        }
        // Every ledger entry formats a timestamp; writing digits directly takes a tenth of the time.
        let mut text = *b"0000-00-00T00:00:00.000000Z";
        let parts = [
            (0..4, year),
            (5..7, month),
            (8..10, day),
            (11..13, hour),
            (14..16, minute),
            (17..19, second),
            (20..26, micros),
        ];
        for (place, mut rest) in parts {
            for digit in text[place].iter_mut().rev() {
                *digit += u8::try_from(rest % 10).unwrap_or_default();
                rest /= 10;
            }
        }
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for Timestamp {
    type Err = InvalidTimestamp;

    fn from_str(text: &str) -> Result<Self, InvalidTimestamp> {
        parse(text).ok_or(InvalidTimestamp)
    }
}

fn parse(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let number = |from: usize, len: usize| -> Option<i64> {
        let digits = bytes.get(from..from + len)?;
        digits.iter().all(u8::is_ascii_digit).then_some(())?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    };
    let mark = |at: usize, any: &[u8]| bytes.get(at).is_some_and(|b| any.contains(b)).then_some(());
    let (year, month, day) = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
    mark(4, b"-").and(mark(7, b"-")).and(mark(10, b"Tt ")).and(mark(13, b":")).and(mark(16, b":"))?;
    let (hour, minute, second) = (number(11, 2)?, number(14, 2)?, number(17, 2)?);
    let mut at = 19;
    let mut micros = 0;
    if bytes.get(at) == Some(&b'.') {
        let digits = bytes[at + 1..].iter().take_while(|b| b.is_ascii_digit()).count();
        (1..=9).contains(&digits).then_some(())?;
        let shown = digits.min(6);
        micros = number(at + 1, shown)? * 10_i64.pow(6 - u32::try_from(shown).ok()?);
        at += 1 + digits;
    }
    let offset_minutes = match bytes.get(at)? {
        b'Z' | b'z' if bytes.len() == at + 1 => 0,
        sign @ (b'+' | b'-') if bytes.len() == at + 6 => {
            mark(at + 3, b":")?;
            let (hours, minutes) = (number(at + 1, 2)?, number(at + 4, 2)?);
            (hours < 24 && minutes < 60).then_some(())?;
            (hours * 60 + minutes) * if *sign == b'-' { -1 } else { 1 }
        }
        _ => return None,
    };
    let valid = (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    valid.then_some(())?;
    let days = days_from_civil(year, month, day);
    let seconds = days * SECONDS_PER_DAY + hour * 3_600 + minute * 60 + second - offset_minutes * 60;
    Some(Timestamp(seconds * MICROS_PER_SECOND + micros))
}

pub(crate) const fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since the epoch of a proleptic Gregorian date, counted in 400-year eras that start in March.
pub(crate) const fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year, month and day.
pub(crate) const fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year + (month <= 2) as i64, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_instant_agree_both_ways() {
        for text in [
            "1970-01-01T00:00:00.000000Z",
            "2026-02-06T15:30:00.123000Z",
            "2000-02-29T23:59:59.999999Z",
            "1969-12-31T23:59:59.000001Z",
        ] {
            assert_eq!(text.parse::<Timestamp>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn offsets_are_taken_to_utc() {
        let east: Timestamp = "2026-02-06T15:30:00+02:00".parse().unwrap();
        assert_eq!(east.to_string(), "2026-02-06T13:30:00.000000Z");
    }

    #[test]
    fn what_is_not_a_date_time_is_refused() {
        for text in [
            "",
            "2026-02-30T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-02-06",
            "2026-02-06T24:00:00Z",
            "2026-02-06T00:00:00",
            "2026-02-06T00:00:00.Z",
            "+026-02-06T00:00:00Z",
        ] {
            assert_eq!(text.parse::<Timestamp>(), Err(InvalidTimestamp), "{text}");
        }
    }
}
