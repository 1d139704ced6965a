//! Times as a person says them: how long ago.

use chimera_core::time::Timestamp;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// `3 min ago`, `in 2 h`; beyond two months, the date.
pub(crate) fn age(at: Timestamp, now: Timestamp) -> String {
    let seconds = (now.micros() - at.micros()).div_euclid(1_000_000);
    let long = match seconds.abs() {
        0 => return "now".to_owned(),
        seconds @ 1..MINUTE => format!("{seconds} s"),
        seconds @ MINUTE..HOUR => format!("{} min", seconds / MINUTE),
        seconds if seconds < 2 * DAY => format!("{} h", seconds / HOUR),
        seconds if seconds < 60 * DAY => format!("{} d", seconds / DAY),
        _ => return at.to_string().chars().take_while(|c| *c != 'T').collect(),
    };
    if seconds > 0 { format!("{long} ago") } else { format!("in {long}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_said_by_its_distance() {
        let now: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
        let ago = |seconds: i64| age(Timestamp::from_micros(now.micros() - seconds * 1_000_000), now);
        let said = [0, 59, 200, 7_200, 100_000, 3 * DAY, 90 * DAY, -120].map(ago);
        assert_eq!(said, ["now", "59 s ago", "3 min ago", "2 h ago", "27 h ago", "3 d ago", "2025-12-01", "in 2 min"]);
    }
}
