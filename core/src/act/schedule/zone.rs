//! Time zones by IANA name: how far local time is from UTC at an instant, and when that changes.
//!
//! `zones.txt` holds the rule that each zone follows now, in POSIX `TZ` syntax as in a compiled zone file, from
//! release 2025b of the IANA database. Where a zone changes its clocks on dates that no rule describes (Ramadan in
//! Morocco), the instants of the changes stand before the names. The past is not in the table: schedules look forward.

use crate::time::{civil_from_days, days_from_civil, days_in};
use std::sync::LazyLock;

/// `RULE[|INSTANT OFFSET,…] NAME…` in every line.
const TABLE: &str = include_str!("zones.txt");

const HOUR: i64 = 3_600;
const DAY: i64 = 86_400;

/// A time zone. Instants and local times are in seconds; local time is UTC plus the offset.
#[derive(Clone, Copy, Debug)]
pub struct Zone {
    name: &'static str,
    rule: &'static Rule,
}

impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// A change of the clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    pub at: i64,
    pub before: i64,
    pub after: i64,
}

#[derive(Debug)]
struct Rule {
    standard: i64,
    summer: Option<Summer>,
    /// Changes on irregular dates, and the offset from each on.
    irregular: Vec<(i64, i64)>,
}

#[derive(Debug)]
struct Summer {
    offset: i64,
    start: YearDay,
    end: YearDay,
}

/// The `week`th `weekday` of a month (5: the last), and the local time in seconds.
#[derive(Debug)]
struct YearDay {
    month: i64,
    week: i64,
    weekday: i64,
    time: i64,
}

struct Tables {
    rules: Vec<Rule>,
    /// Sorted by name.
    names: Vec<(&'static str, usize)>,
}

static TABLES: LazyLock<Tables> = LazyLock::new(|| {
    let mut tables = Tables { rules: Vec::new(), names: Vec::new() };
    for line in TABLE.lines() {
        let mut words = line.split(' ');
        if let Some(rule) = words.next().and_then(parse_rule) {
            tables.names.extend(words.map(|name| (name, tables.rules.len())));
            tables.rules.push(rule);
        }
    }
    tables.names.sort_unstable();
    tables
});

impl Zone {
    pub const UTC: &'static str = "UTC";

    /// The zone with an IANA name such as `Europe/Berlin`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let tables = &*TABLES;
        let at = tables.names.binary_search_by_key(&name, |(name, _)| name).ok()?;
        let (name, rule) = tables.names.get(at)?;
        Some(Self { name, rule: tables.rules.get(*rule)? })
    }

    /// Every name.
    pub fn names() -> impl Iterator<Item = &'static str> {
        TABLES.names.iter().map(|(name, _)| *name)
    }

    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Seconds that local time is ahead of UTC.
    #[must_use]
    pub fn offset_at(self, at: i64) -> i64 {
        self.last_transition(at).map_or(self.rule.standard, |transition| transition.after)
    }

    /// The first change after an instant.
    #[must_use]
    pub fn next_transition(self, after: i64) -> Option<Transition> {
        self.around(after).into_iter().find(|transition| transition.at > after)
    }

    /// The last change at or before an instant.
    #[must_use]
    pub fn last_transition(self, at: i64) -> Option<Transition> {
        self.around(at).into_iter().rev().find(|transition| transition.at <= at)
    }

    /// The changes of the years around an instant, in order.
    fn around(self, at: i64) -> Vec<Transition> {
        let rule = self.rule;
        let year = civil_from_days(at.div_euclid(DAY)).0;
        let regular_from = rule.irregular.last().map_or(i64::MIN, |(at, _)| *at);
        let mut changes: Vec<(i64, i64)> = match rule.summer.as_ref() {
            Some(summer) => (year - 1..=year + 1)
                .flat_map(|year| {
                    let start = (summer.start.local_seconds(year) - rule.standard, summer.offset);
                    let end = (summer.end.local_seconds(year) - summer.offset, rule.standard);
                    [start, end]
                })
                .filter(|(at, _)| *at > regular_from)
                .collect(),
            None => Vec::new(),
        };
        changes.extend(rule.irregular.iter().filter(|(change, _)| (change - at).abs() < 800 * DAY));
        changes.sort_unstable();
        let mut before = rule.irregular.iter().rev().find(|(first, _)| Some(first) < changes.first().map(|(at, _)| at));
        let mut offset = match (before.take(), &rule.summer, changes.first()) {
            (Some((_, offset)), ..) => *offset,
            // Between two regular changes: whatever the first of them ends.
            (None, Some(summer), Some((_, after))) if rule.irregular.is_empty() && *after == rule.standard => {
                summer.offset
            }
            _ => rule.standard,
        };
        let mut transitions = Vec::with_capacity(changes.len());
        for (at, after) in changes {
            if after != offset {
                transitions.push(Transition { at, before: offset, after });
                offset = after;
            }
        }
        transitions
    }
}

impl YearDay {
    /// The day and time in a year, in local seconds since the epoch.
    fn local_seconds(&self, year: i64) -> i64 {
        let first = days_from_civil(year, self.month, 1);
        // 1970-01-01 was a Thursday.
        let ahead = (self.weekday - (first + 4)).rem_euclid(7);
        let mut day = ahead + 7 * (self.week - 1);
        if day >= days_in(year, self.month) {
            day -= 7;
        }
        (first + day) * DAY + self.time
    }
}

/// Parses `STANDARD[SUMMER,START,END][|INSTANT OFFSET,…]`.
fn parse_rule(text: &str) -> Option<Rule> {
    let (posix, irregular) = text.split_once('|').unwrap_or((text, ""));
    let change = |text: &str| {
        let sign = text.rfind(['+', '-'])?;
        Some((text.get(..sign)?.parse().ok()?, text.get(sign..)?.parse().ok()?))
    };
    let irregular = irregular.split(',').filter(|text| !text.is_empty()).map(change).collect::<Option<Vec<_>>>()?;
    let mut parts = posix.split(',');
    let (standard, rest) = parse_offset(parts.next()?)?;
    let summer = match (parts.next(), parts.next()) {
        (Some(start), Some(end)) => {
            let offset = match rest {
                // Without an offset, summer time is one hour ahead.
                name if !name.ends_with(|c: char| c.is_ascii_digit()) => standard + HOUR,
                name => parse_offset(name)?.0,
            };
            Some(Summer { offset, start: parse_year_day(start)?, end: parse_year_day(end)? })
        }
        _ => None,
    };
    Some(Rule { standard, summer, irregular })
}

/// Parses an abbreviation and an offset, which POSIX counts west of UTC; returns the rest.
fn parse_offset(text: &str) -> Option<(i64, &str)> {
    let named = match text.strip_prefix('<') {
        Some(quoted) => quoted.split_once('>')?.1,
        None => text.trim_start_matches(|c: char| c.is_ascii_alphabetic()),
    };
    let end =
        named.char_indices().skip(1).find(|(_, c)| !c.is_ascii_digit() && *c != ':').map_or(named.len(), |(at, _)| at);
    Some((-parse_clock(named.get(..end)?)?, named.get(end..)?))
}

/// Parses `[-]HOURS[:MINUTES]` to seconds.
fn parse_clock(text: &str) -> Option<i64> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let (hours, minutes) = digits.split_once(':').unwrap_or((digits, "0"));
    Some(sign * (hours.parse::<i64>().ok()? * HOUR + minutes.parse::<i64>().ok()? * 60))
}

/// Parses `Mmonth.week.weekday[/TIME]`.
fn parse_year_day(text: &str) -> Option<YearDay> {
    let (day, time) = text.strip_prefix('M')?.split_once('/').unwrap_or((text.strip_prefix('M')?, "2"));
    let mut numbers = day.split('.').map(str::parse);
    let (month, week, weekday) = (numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
    Some(YearDay { month, week, weekday, time: parse_clock(time)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

    fn seconds(text: &str) -> i64 {
        text.parse::<Timestamp>().unwrap().micros() / 1_000_000
    }

    #[test]
    fn every_line_of_the_table_can_be_read() {
        assert_eq!(TABLES.rules.len(), TABLE.lines().count());
        assert!(Zone::names().count() > 590);
        assert!(Zone::named("Europe/Berlin").is_some() && Zone::named("europe/berlin").is_none());
    }

    #[test]
    fn clocks_change_when_the_zone_says() {
        for (zone, at, before, after) in [
            ("Europe/Berlin", "2027-03-28T01:00:00Z", 3_600, 7_200),
            ("Europe/Berlin", "2027-10-31T01:00:00Z", 7_200, 3_600),
            ("America/New_York", "2027-03-14T07:00:00Z", -18_000, -14_400),
            ("America/New_York", "2027-11-07T06:00:00Z", -14_400, -18_000),
            ("Australia/Lord_Howe", "2027-04-03T15:00:00Z", 39_600, 37_800),
            ("Australia/Lord_Howe", "2027-10-02T15:30:00Z", 37_800, 39_600),
            ("Europe/Dublin", "2027-03-28T01:00:00Z", 0, 3_600),
            ("America/St_Johns", "2027-03-14T05:30:00Z", -12_600, -9_000),
            ("Pacific/Auckland", "2027-04-03T14:00:00Z", 46_800, 43_200),
            ("Africa/Casablanca", "2027-02-07T02:00:00Z", 3_600, 0),
            ("Africa/Casablanca", "2027-03-14T02:00:00Z", 0, 3_600),
            ("America/Nuuk", "2027-03-28T01:00:00Z", -7_200, -3_600),
        ] {
            let (named, at) = (Zone::named(zone).unwrap(), seconds(at));
            assert_eq!(named.next_transition(at - 1), Some(Transition { at, before, after }), "{zone}");
            assert_eq!((named.offset_at(at - 1), named.offset_at(at)), (before, after), "{zone}");
        }
    }

    #[test]
    fn a_zone_without_changes_has_none() {
        for (zone, offset) in [("UTC", 0), ("Asia/Kolkata", 19_800), ("Asia/Kathmandu", 20_700), ("Etc/GMT+5", -18_000)]
        {
            let zone = Zone::named(zone).unwrap();
            assert_eq!((zone.next_transition(1_800_000_000), zone.offset_at(1_800_000_000)), (None, offset));
        }
    }
}
