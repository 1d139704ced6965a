//! What is done when a schedule is looked at: start a tick, skip it, queue it, or wait.
//!
//! | what is due | runs | `skip` | `queue` | `allow` | `cancel_previous` |
//! |---|---|---|---|---|---|
//! | a queued tick | ended | start | start | start | start |
//! | a tick | none | start | start | start | start |
//! | a tick | active | skip | queue, or skip when the queue is full | start | start, and cancel the others |
//!
//! A tick that is later than the grace time has been missed, and the catch-up policy says whether it still counts. So a
//! downtime, a clock that jumps and a schedule that was held up are one case, and none of them starts a flood.

use super::{CatchUp, Overlap, Timing};
use crate::limits::{
    SCHEDULE_ACTIVE_RUNS_MAX, SCHEDULE_CATCH_UP_MAX, SCHEDULE_GRACE_SECONDS, SCHEDULE_MISSED_COUNT_MAX,
    SCHEDULE_QUEUE_CHECK_SECONDS,
};
use crate::time::Timestamp;
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// There is no tick later than this, 9999-12-31: times have years with four digits.
const LAST_TICK: Timestamp = Timestamp::from_micros(253_402_214_400_000_000);

/// When a schedule ticks, and its policies.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduleRules {
    pub timing: Timing,
    pub overlap: Overlap,
    /// Ticks that may wait under [`Overlap::Queue`].
    pub queue_max: usize,
    pub catch_up: CatchUp,
    /// How old a tick may be to be started under [`CatchUp::All`].
    pub catch_up_seconds: i64,
    /// A tick starts up to this much later, by an amount that depends on the tick alone.
    pub jitter_seconds: i64,
    pub starts_at: Option<Timestamp>,
    pub ends_at: Option<Timestamp>,
}

/// What a schedule still has to do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Backlog {
    /// The next tick; `None`: there is none.
    pub next_at: Option<Timestamp>,
    /// Ticks that wait for a run to end, oldest first.
    pub queued: Vec<Timestamp>,
    /// Runs of earlier ticks that are not finished.
    pub active_runs: Vec<Uuid>,
}

/// Ticks that passed and are not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missed {
    pub first: Timestamp,
    pub last: Timestamp,
    /// Counted up to [`SCHEDULE_MISSED_COUNT_MAX`].
    pub count: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TickAction {
    Start {
        tick: Timestamp,
    },
    /// Too many runs are active, or any, depending on the policy.
    Skip {
        tick: Timestamp,
    },
    Queue {
        tick: Timestamp,
    },
    Wait,
}

/// The decision, and what is left to do after it. Of a started run the caller adds the id.
#[derive(Clone, Debug, PartialEq)]
pub struct Wake {
    pub missed: Option<Missed>,
    pub action: TickAction,
    pub backlog: Backlog,
}

impl ScheduleRules {
    /// The first tick from an instant on, within the schedule's own limits.
    #[must_use]
    pub fn first_from(&self, from: Timestamp) -> Option<Timestamp> {
        let from = self.starts_at.map_or(from, |start| start.max(from));
        self.within(self.timing.next_at_or_after(from))
    }

    /// The tick after another.
    #[must_use]
    pub fn next_after(&self, tick: Timestamp) -> Option<Timestamp> {
        self.within(self.timing.next_after(tick))
    }

    fn within(&self, tick: Option<Timestamp>) -> Option<Timestamp> {
        tick.filter(|tick| *tick <= LAST_TICK && self.ends_at.is_none_or(|end| *tick <= end))
    }

    /// When a tick is started at the earliest: the same on every node.
    #[must_use]
    pub fn start_of(&self, schedule: Uuid, tick: Timestamp) -> Timestamp {
        if self.jitter_seconds <= 0 {
            return tick;
        }
        let digest = Sha256::new().chain_update(schedule).chain_update(tick.micros().to_be_bytes()).finalize();
        let drawn = digest.iter().take(7).fold(0_i64, |number, byte| (number << 8) | i64::from(*byte));
        tick.plus_seconds(drawn % (self.jitter_seconds + 1))
    }

    /// When the schedule has to be looked at; `None`: never.
    #[must_use]
    pub fn due_at(&self, schedule: Uuid, backlog: &Backlog, now: Timestamp) -> Option<Timestamp> {
        let tick = backlog.next_at.map(|tick| self.start_of(schedule, tick));
        let queue = (!backlog.queued.is_empty()).then(|| now.plus_seconds(SCHEDULE_QUEUE_CHECK_SECONDS));
        tick.into_iter().chain(queue).min()
    }

    /// Drops the ticks before an instant; returns how many, counted up to [`SCHEDULE_MISSED_COUNT_MAX`].
    pub fn drop_until(&self, backlog: &mut Backlog, from: Timestamp) -> usize {
        let Some(first) = backlog.next_at.filter(|tick| *tick < from) else { return 0 };
        let ticks = std::iter::successors(Some(first), |tick| self.next_after(*tick));
        let dropped = ticks.take_while(|tick| *tick < from).take(SCHEDULE_MISSED_COUNT_MAX).count();
        backlog.next_at = self.first_from(from);
        dropped
    }

    /// The last tick up to an instant that may start by `now`. The tick `first` may; later ones may have more jitter.
    fn last_due(&self, schedule: Uuid, first: Timestamp, (until, now): (Timestamp, Timestamp)) -> Timestamp {
        let mut last = self.timing.last_until(first, until);
        while last > first && self.start_of(schedule, last) > now {
            last = self.timing.last_until(first, Timestamp::from_micros(last.micros() - 1));
        }
        last
    }

    /// The due tick that is still started, if any. `first` is the first due tick, `last` the last one.
    fn chosen(&self, first: Timestamp, last: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let not_before = |seconds: i64| {
            let from = now.plus_seconds(-seconds).max(first);
            self.timing.next_at_or_after(from).filter(|tick| *tick <= last)
        };
        let on_time = not_before(SCHEDULE_GRACE_SECONDS + self.jitter_seconds);
        match self.catch_up {
            CatchUp::Skip => on_time,
            CatchUp::Last => on_time.or(Some(last)),
            CatchUp::All => {
                let first = not_before(self.catch_up_seconds.max(SCHEDULE_GRACE_SECONDS + self.jitter_seconds))?;
                let due = std::iter::successors(Some(first), |tick| self.timing.next_after(*tick));
                let due: Vec<Timestamp> = due.take_while(|tick| *tick <= last).collect();
                due.get(due.len().saturating_sub(SCHEDULE_CATCH_UP_MAX)).copied()
            }
        }
    }

    /// Ticks from `first` up to, not including, `end`.
    fn missed(&self, first: Timestamp, end: Option<Timestamp>, last: Timestamp) -> Option<Missed> {
        let until = match end {
            Some(end) if end <= first => return None,
            Some(end) => self.timing.last_until(first, Timestamp::from_micros(end.micros() - 1)),
            None => last,
        };
        let ticks = std::iter::successors(Some(first), |tick| self.timing.next_after(*tick));
        let count = ticks.take_while(|tick| *tick <= until).take(SCHEDULE_MISSED_COUNT_MAX).count();
        Some(Missed { first, last: until, count })
    }
}

/// Decides what is done about a schedule now. Its active runs are those that are not finished at this moment.
#[must_use]
pub fn decide(schedule: Uuid, rules: &ScheduleRules, backlog: Backlog, now: Timestamp) -> Wake {
    let is_free = backlog.active_runs.is_empty() || matches!(rules.overlap, Overlap::Allow | Overlap::CancelPrevious);
    if is_free && let Some((tick, rest)) = backlog.queued.split_first() {
        let (tick, queued) = (*tick, rest.to_vec());
        return Wake { missed: None, action: TickAction::Start { tick }, backlog: Backlog { queued, ..backlog } };
    }
    let due = backlog.next_at.filter(|tick| rules.start_of(schedule, *tick) <= now);
    let Some(first) = due else { return Wake { missed: None, action: TickAction::Wait, backlog } };
    let until = rules.ends_at.map_or(now, |end| end.min(now));
    let last = rules.last_due(schedule, first, (until, now));
    let chosen = rules.chosen(first, last, now);
    let missed = rules.missed(first, chosen, last);
    let next_at = rules.next_after(chosen.unwrap_or(last));
    let mut backlog = Backlog { next_at, ..backlog };
    let Some(tick) = chosen else { return Wake { missed, action: TickAction::Wait, backlog } };
    let active = backlog.active_runs.len();
    let action = match rules.overlap {
        _ if active == 0 && backlog.queued.is_empty() => TickAction::Start { tick },
        Overlap::Allow | Overlap::CancelPrevious if active < SCHEDULE_ACTIVE_RUNS_MAX => TickAction::Start { tick },
        Overlap::Queue if backlog.queued.len() < rules.queue_max => {
            backlog.queued.push(tick);
            TickAction::Queue { tick }
        }
        _ => TickAction::Skip { tick },
    };
    Wake { missed, action, backlog }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(text: &str) -> Timestamp {
        format!("2027-01-01T{text}Z").parse().unwrap()
    }

    /// Every minute.
    fn rules(overlap: Overlap, catch_up: CatchUp) -> ScheduleRules {
        ScheduleRules {
            timing: Timing::Interval { every_seconds: 60, anchor: at("00:00:00") },
            overlap,
            queue_max: 2,
            catch_up,
            catch_up_seconds: 600,
            jitter_seconds: 0,
            starts_at: None,
            ends_at: None,
        }
    }

    fn next(tick: &str) -> Backlog {
        Backlog { next_at: Some(at(tick)), ..Backlog::default() }
    }

    fn look(rules: &ScheduleRules, backlog: Backlog, now: &str) -> Wake {
        decide(Uuid::nil(), rules, backlog, at(now))
    }

    #[test]
    fn a_tick_starts_when_it_is_due_and_not_before() {
        let rules = rules(Overlap::Skip, CatchUp::Last);
        assert_eq!(look(&rules, next("00:01:00"), "00:00:59").action, TickAction::Wait);
        let wake = look(&rules, next("00:01:00"), "00:01:00");
        assert_eq!((wake.action, wake.missed), (TickAction::Start { tick: at("00:01:00") }, None));
        assert_eq!(wake.backlog, next("00:02:00"));
    }

    #[test]
    fn the_overlap_policy_says_what_a_tick_does_while_a_run_is_active() {
        let busy = |queued: &[&str], runs: usize| Backlog {
            queued: queued.iter().map(|tick| at(tick)).collect(),
            active_runs: vec![Uuid::nil(); runs],
            ..next("00:05:00")
        };
        let act = |overlap, backlog| look(&rules(overlap, CatchUp::Last), backlog, "00:05:00").action;
        let tick = at("00:05:00");
        assert_eq!(act(Overlap::Skip, busy(&[], 1)), TickAction::Skip { tick });
        assert_eq!(act(Overlap::Allow, busy(&[], 1)), TickAction::Start { tick });
        assert_eq!(act(Overlap::Allow, busy(&[], SCHEDULE_ACTIVE_RUNS_MAX)), TickAction::Skip { tick });
        assert_eq!(act(Overlap::CancelPrevious, busy(&[], 1)), TickAction::Start { tick });
        assert_eq!(act(Overlap::CancelPrevious, busy(&[], SCHEDULE_ACTIVE_RUNS_MAX)), TickAction::Skip { tick });
        assert_eq!(act(Overlap::Queue, busy(&[], 1)), TickAction::Queue { tick });
        assert_eq!(act(Overlap::Queue, busy(&["00:03:00", "00:04:00"], 1)), TickAction::Skip { tick });
        let freed = look(&rules(Overlap::Queue, CatchUp::Last), busy(&["00:03:00", "00:04:00"], 0), "00:05:00");
        assert_eq!(freed.action, TickAction::Start { tick: at("00:03:00") }, "queued ticks come first");
        assert_eq!(freed.backlog.queued, [at("00:04:00")]);
    }

    #[test]
    fn the_catch_up_policy_says_what_is_started_after_a_downtime() {
        let wake = |catch_up| look(&rules(Overlap::Skip, catch_up), next("00:01:00"), "00:30:40");
        let missed = |first, last, count| Some(Missed { first: at(first), last: at(last), count });
        let skip = wake(CatchUp::Skip);
        assert_eq!((skip.action, skip.missed), (TickAction::Wait, missed("00:01:00", "00:30:00", 30)));
        let last = wake(CatchUp::Last);
        assert_eq!(last.action, TickAction::Start { tick: at("00:30:00") });
        assert_eq!(last.missed, missed("00:01:00", "00:29:00", 29));
        let all = wake(CatchUp::All);
        assert_eq!(all.action, TickAction::Start { tick: at("00:21:00") }, "within ten minutes");
        assert_eq!((all.missed, all.backlog.next_at), (missed("00:01:00", "00:20:00", 20), Some(at("00:22:00"))));
    }

    #[test]
    fn a_window_with_too_many_ticks_starts_only_the_last_of_them() {
        let mut rules = rules(Overlap::Allow, CatchUp::All);
        rules.catch_up_seconds = 86_400;
        let wake = look(&rules, next("00:01:00"), "20:00:00");
        let TickAction::Start { tick } = wake.action else { panic!("{wake:?}") };
        let left = (at("20:00:00").micros() - tick.micros()) / 60_000_000 + 1;
        assert_eq!(left, i64::try_from(SCHEDULE_CATCH_UP_MAX).unwrap());
    }

    #[test]
    fn a_schedule_ends_with_its_last_tick() {
        let rules = ScheduleRules { ends_at: Some(at("00:02:30")), ..rules(Overlap::Skip, CatchUp::Last) };
        let wake = look(&rules, next("00:02:00"), "00:10:00");
        assert_eq!((wake.action, wake.backlog.next_at), (TickAction::Start { tick: at("00:02:00") }, None));
        assert_eq!(rules.first_from(at("00:02:31")), None);
        assert_eq!(rules.due_at(Uuid::nil(), &wake.backlog, at("00:10:00")), None);
    }

    proptest! {
        /// However long the downtime and whatever the policy: looking again and again ends, ticks are started in order,
        /// none twice, none ahead of time, and no more than the limit.
        #[test]
        fn no_downtime_starts_a_flood(
            catch_up in proptest::sample::select(CatchUp::ALL),
            overlap in proptest::sample::select(Overlap::ALL),
            away in 0_i64..40_000_000,
            every in 1_i64..100_000,
            jitter in 0_i64..30,
            window in 0_i64..604_800,
        ) {
            let first = at("00:00:00");
            let rules = ScheduleRules {
                timing: Timing::Interval { every_seconds: every, anchor: first },
                catch_up_seconds: window,
                jitter_seconds: jitter,
                ..rules(overlap, catch_up)
            };
            let now = first.plus_seconds(away);
            let mut backlog = Backlog { next_at: Some(first), ..Backlog::default() };
            let mut started: Vec<Timestamp> = Vec::new();
            for round in 0.. {
                prop_assert!(round <= SCHEDULE_CATCH_UP_MAX + 60, "it does not end");
                let wake = decide(Uuid::nil(), &rules, backlog.clone(), now);
                prop_assert!(wake.backlog.next_at > backlog.next_at || wake.action == TickAction::Wait);
                if let TickAction::Start { tick } = wake.action {
                    prop_assert!(rules.start_of(Uuid::nil(), tick) <= now);
                    prop_assert!(started.last().is_none_or(|last| *last < tick));
                    started.push(tick);
                }
                let done = wake.action == TickAction::Wait && wake.missed.is_none();
                backlog = wake.backlog;
                if done {
                    break;
                }
            }
            let on_time = usize::try_from((SCHEDULE_GRACE_SECONDS + jitter) / every + 1).unwrap();
            prop_assert!(started.len() <= SCHEDULE_CATCH_UP_MAX.max(on_time));
            prop_assert!(catch_up == CatchUp::All || started.len() <= on_time);
            prop_assert!(backlog.next_at.is_some_and(|next| rules.start_of(Uuid::nil(), next) > now));
        }
    }
}
