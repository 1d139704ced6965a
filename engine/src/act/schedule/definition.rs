//! What a caller says of a schedule, and how it is checked.

use chimera_core::act::schedule::{
    CatchUp, Cron, Overlap, ScheduleRules, Timing, Zone, interval_text, is_schedule_name, parse_interval,
};
use chimera_core::act::tables::ScheduleRow;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::limits::{
    NOTES_BYTES_MAX, SCHEDULE_CATCH_UP_SECONDS_DEFAULT, SCHEDULE_CATCH_UP_SECONDS_MAX, SCHEDULE_INTERVAL_SECONDS_MAX,
    SCHEDULE_INTERVAL_SECONDS_MIN, SCHEDULE_JITTER_SECONDS_MAX, SCHEDULE_JITTER_TICKS_MAX, SCHEDULE_NAME_CHARS_MAX,
    SCHEDULE_QUEUE_DEFAULT, SCHEDULE_QUEUE_MAX,
};
use chimera_core::redact::Redactor;
use chimera_core::time::Timestamp;
use serde_json::{Value, json};

/// What a schedule starts, when, and its policies.
#[derive(Clone, Debug)]
pub struct ScheduleDefinition {
    pub workflow_id: String,
    /// `None`: the newest version at the time of the request.
    pub version: Option<i64>,
    /// Ticks start the newest version of their time instead of a fixed one.
    pub follow_latest: bool,
    pub inputs: Value,
    /// Exactly one of `cron` and `every`.
    pub cron: Option<String>,
    /// The IANA name of the zone in which `cron` is read; UTC if absent.
    pub time_zone: Option<String>,
    /// An interval such as `15m`.
    pub every: Option<String>,
    /// An instant from which the intervals are counted; the start, or now, if absent.
    pub anchor_at: Option<Timestamp>,
    pub overlap: Overlap,
    pub queue_max: Option<u32>,
    pub catch_up: CatchUp,
    pub catch_up_window_seconds: Option<i64>,
    pub jitter_seconds: i64,
    pub starts_at: Option<Timestamp>,
    pub ends_at: Option<Timestamp>,
}

fn invalid(pointer: &str, message: impl Into<String>) -> ErrorBody {
    ErrorBody::new(Code::ValidationFailed, message).with("pointer", pointer)
}

/// Refuses what can't name a schedule.
pub(super) fn check_name(name: &str) -> Result<(), ErrorBody> {
    let message = || {
        format!(
            "a schedule's name has 1 to {SCHEDULE_NAME_CHARS_MAX} letters, digits, '_', '-' or '.', and begins with a \
             letter or digit"
        )
    };
    if is_schedule_name(name) { Ok(()) } else { Err(invalid("/name", message())) }
}

impl ScheduleDefinition {
    /// A definition with default policies.
    #[must_use]
    pub fn of(workflow_id: impl Into<String>) -> Self {
        Self {
            workflow_id: workflow_id.into(),
            version: None,
            follow_latest: false,
            inputs: json!({}),
            cron: None,
            time_zone: None,
            every: None,
            anchor_at: None,
            overlap: Overlap::Skip,
            queue_max: None,
            catch_up: CatchUp::Last,
            catch_up_window_seconds: None,
            jitter_seconds: 0,
            starts_at: None,
            ends_at: None,
        }
    }

    /// Checks the times and policies, and returns when the schedule ticks.
    pub(super) fn rules(&self, now: Timestamp) -> Result<ScheduleRules, ErrorBody> {
        let queue_max = self.queue_max.unwrap_or(SCHEDULE_QUEUE_DEFAULT);
        if !(1..=SCHEDULE_QUEUE_MAX).contains(&queue_max) {
            return Err(invalid("/queue_max", format!("queue_max must be a number from 1 to {SCHEDULE_QUEUE_MAX}")));
        }
        let window = self.catch_up_window_seconds.unwrap_or(SCHEDULE_CATCH_UP_SECONDS_DEFAULT);
        if !(0..=SCHEDULE_CATCH_UP_SECONDS_MAX).contains(&window) {
            let message = format!("catch_up_window_seconds must be a number from 0 to {SCHEDULE_CATCH_UP_SECONDS_MAX}");
            return Err(invalid("/catch_up_window_seconds", message));
        }
        if !(0..=SCHEDULE_JITTER_SECONDS_MAX).contains(&self.jitter_seconds) {
            let message = format!("jitter_seconds must be a number from 0 to {SCHEDULE_JITTER_SECONDS_MAX}");
            return Err(invalid("/jitter_seconds", message));
        }
        if self.follow_latest && self.version.is_some() {
            return Err(invalid("/follow_latest", "follow_latest goes without a version"));
        }
        if let (Some(start), Some(end)) = (self.starts_at, self.ends_at)
            && end <= start
        {
            return Err(invalid("/ends_at", "ends_at must be later than starts_at"));
        }
        Ok(ScheduleRules {
            timing: self.timing(now)?,
            overlap: self.overlap,
            queue_max: queue_max as usize,
            catch_up: self.catch_up,
            catch_up_seconds: window,
            jitter_seconds: self.jitter_seconds,
            starts_at: self.starts_at,
            ends_at: self.ends_at,
        })
    }

    fn timing(&self, now: Timestamp) -> Result<Timing, ErrorBody> {
        match (&self.cron, &self.every) {
            (Some(cron), None) if self.anchor_at.is_none() => {
                let name = self.time_zone.as_deref().unwrap_or(Zone::UTC);
                let cron = Cron::parse(cron).map_err(|error| invalid("/cron", error.to_string()))?;
                Ok(Timing::Cron { cron, zone: Zone::named(name).ok_or_else(|| unknown_zone(name))? })
            }
            (None, Some(every)) if self.time_zone.is_none() => {
                let limits = SCHEDULE_INTERVAL_SECONDS_MIN..=SCHEDULE_INTERVAL_SECONDS_MAX;
                let seconds = parse_interval(every).filter(|seconds| limits.contains(seconds)).ok_or_else(|| {
                    let (min, max) = (interval_text(*limits.start()), interval_text(*limits.end()));
                    invalid(
                        "/every",
                        format!("`{every}` is not an interval; use 90s, 15m, 6h, 1d or 2w, {min} to {max}"),
                    )
                })?;
                let whole_second = Timestamp::from_micros(now.micros() - now.micros().rem_euclid(1_000_000));
                let anchor = self.anchor_at.or(self.starts_at).unwrap_or(whole_second);
                Ok(Timing::Interval { every_seconds: seconds, anchor })
            }
            (Some(_), None) => Err(invalid("/anchor_at", "anchor_at goes with every, not with cron")),
            (None, Some(_)) => Err(invalid("/time_zone", "time_zone goes with cron, not with every")),
            _ => Err(invalid("", "exactly one of cron and every is required")),
        }
    }
}

/// Refuses a zone, with the name that was probably meant.
fn unknown_zone(name: &str) -> ErrorBody {
    let place = |name: &str| name.rsplit('/').next().unwrap_or(name).replace(' ', "_").to_ascii_lowercase();
    let meant = Zone::names().find(|known| place(known) == place(name));
    let hint = meant
        .map_or_else(|| "use an IANA name such as Europe/Berlin".to_owned(), |meant| format!("did you mean {meant}?"));
    invalid("/time_zone", format!("there is no time zone `{name}`; {hint}"))
}

/// A reason to keep, with credentials masked. Refuses one that is too long.
pub(super) fn masked_reason(reason: Option<String>) -> Result<Option<String>, ErrorBody> {
    match &reason {
        Some(text) if text.len() > NOTES_BYTES_MAX || text.contains('\0') => {
            Err(invalid("/reason", format!("the reason has more than {NOTES_BYTES_MAX} bytes or holds U+0000")))
        }
        _ => Ok(reason.map(|text| Redactor::default().text(&text).into_owned())),
    }
}

/// Refuses a jitter that could delay a tick beyond the next one: ticks would come in bursts.
pub(super) fn check_jitter(rules: &ScheduleRules, now: Timestamp) -> Result<(), ErrorBody> {
    if rules.jitter_seconds == 0 {
        return Ok(());
    }
    let ticks = || std::iter::successors(rules.first_from(now), |tick| rules.next_after(*tick));
    let gaps = ticks().zip(ticks().skip(1)).take(SCHEDULE_JITTER_TICKS_MAX);
    let shortest = gaps.map(|(tick, next)| next.micros() - tick.micros()).min();
    match shortest.map(|micros| micros / 1_000_000) {
        Some(seconds) if seconds <= rules.jitter_seconds => {
            let message = format!("jitter_seconds must be smaller than {seconds}, the time between two ticks");
            Err(invalid("/jitter_seconds", message))
        }
        _ => Ok(()),
    }
}

/// When a stored schedule ticks.
pub(super) fn rules_of(row: &ScheduleRow) -> Result<ScheduleRules, ErrorBody> {
    let stored = ScheduleDefinition {
        cron: row.cron.clone(),
        time_zone: row.time_zone.clone(),
        every: row.every_seconds.map(interval_text),
        anchor_at: row.anchor_at,
        overlap: row.overlap,
        queue_max: Some(row.queue_max),
        catch_up: row.catch_up,
        catch_up_window_seconds: Some(row.catch_up_seconds),
        jitter_seconds: row.jitter_seconds,
        starts_at: row.starts_at,
        ends_at: row.ends_at,
        ..ScheduleDefinition::of(row.workflow_id.as_str())
    };
    stored.rules(row.created_at)
}
