//! The system clock, filtered for jumps.
//!
//! Two clocks are read together: the wall clock, which can be set, and the time since boot, which can't. While
//! they advance alike, the time of day is the wall clock. When they suddenly differ, the wall clock has jumped:
//! the time of day first continues with the time since boot, and follows the wall clock once the jump has
//! lasted. So a short glitch has no effect, and a correction takes effect half a minute later.
//!
//! Nothing is logged here, because a log line asks for the time. The clock watcher collects the notices.

use chimera_core::limits::{CLOCK_JUMP_LASTING_SECONDS, CLOCK_JUMP_SECONDS, CLOCK_NOTICES_MAX, CLOCK_SLEW_PARTS};
use chimera_core::time::Timestamp;
use chimera_engine::port::Clock;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// How far both clocks may differ before that is a jump.
const JUMP: i64 = CLOCK_JUMP_SECONDS * 1_000_000;
/// How long a jump must last before it counts.
const LASTING: i64 = CLOCK_JUMP_LASTING_SECONDS * 1_000_000;
/// Differences up to this one are how exactly two clocks can be read one after the other.
const BLUR: i64 = 100_000;

/// What both clocks say at one moment, in microseconds.
#[derive(Clone, Copy, Debug)]
struct ClockReading {
    wall: i64,
    passed: i64,
}

/// Something that happened to the machine's clock, and by how many seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClockNotice {
    /// It jumped; nothing follows it yet.
    Jumped(i64),
    /// It jumped and stayed there: the time of day follows it.
    Followed(i64),
    /// It is back where it was before.
    Returned(i64),
}

/// The system clock.
#[derive(Debug)]
pub(crate) struct SystemClock(ClockFilter);

/// What the two clocks are made into, as a function of what they say.
#[derive(Debug)]
struct ClockFilter {
    /// The time of day less the time passed.
    offset: AtomicI64,
    /// The steady time less the time passed, while it stays the same.
    steady: AtomicI64,
    /// The steady time is on its way to another offset.
    slews: AtomicBool,
    /// A jump has been seen that does not count yet.
    jumped: AtomicBool,
    /// The latest time of day that was given.
    latest: AtomicI64,
    rest: Mutex<JumpState>,
}

/// What is needed only around a jump.
#[derive(Debug, Default)]
struct JumpState {
    pending: Option<PendingJump>,
    /// The offset before the jump that was followed last: a way back needs no waiting.
    before: Option<i64>,
    slew: Slew,
    notices: Vec<ClockNotice>,
}

/// A jump that does not count yet.
#[derive(Clone, Copy, Debug)]
struct PendingJump {
    offset: i64,
    since: i64,
    by: i64,
}

/// How the steady time gets from one offset to another without a jump.
#[derive(Clone, Copy, Debug, Default)]
struct Slew {
    since: i64,
    from: i64,
    to: i64,
}

impl Slew {
    fn offset(self, passed: i64) -> i64 {
        let most = (passed - self.since).max(0) / CLOCK_SLEW_PARTS;
        self.from + (self.to - self.from).clamp(-most, most)
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self(ClockFilter::new(read()))
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        // Somebody may have been held up between the two clocks; what differs is read again.
        let micros = self.0.fast_now(read()).unwrap_or_else(|| self.0.filtered_now(read()));
        Timestamp::from_micros(micros)
    }

    fn steady(&self) -> Timestamp {
        Timestamp::from_micros(self.0.steady(since_boot()))
    }
}

impl SystemClock {
    /// By how many seconds the wall clock has jumped, while that does not count.
    pub(crate) fn jump(&self) -> Option<i64> {
        self.now();
        self.0.rest().pending.map(|pending| seconds(pending.by))
    }

    /// What has happened since it was last asked for.
    pub(crate) fn take_notices(&self) -> Vec<ClockNotice> {
        self.now();
        std::mem::take(&mut self.0.rest().notices)
    }

    /// Seconds by which the time of day is ahead of the steady time.
    pub(crate) fn ahead(&self) -> f64 {
        (self.now().micros() - self.steady().micros()) as f64 / 1e6
    }
}

impl ClockFilter {
    fn new(reading: ClockReading) -> Self {
        let offset = reading.wall - reading.passed;
        Self {
            offset: AtomicI64::new(offset),
            steady: AtomicI64::new(offset),
            slews: AtomicBool::new(false),
            jumped: AtomicBool::new(false),
            latest: AtomicI64::new(reading.wall),
            rest: Mutex::default(),
        }
    }

    fn rest(&self) -> MutexGuard<'_, JumpState> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time of day while both clocks move alike; nothing when it takes a closer look.
    fn fast_now(&self, reading: ClockReading) -> Option<i64> {
        let gap = reading.wall - reading.passed - self.offset.load(Ordering::Relaxed);
        let alike = gap.abs() <= BLUR && !self.jumped.load(Ordering::Relaxed);
        alike.then(|| self.advance_latest(reading.wall))
    }

    /// The time of day, whatever the clocks do. A step of a few seconds is followed at once, but
    /// not back: the time of day stands still until it is reached.
    fn filtered_now(&self, reading: ClockReading) -> i64 {
        let mut rest = self.rest();
        let (offset, found) = (self.offset.load(Ordering::Relaxed), reading.wall - reading.passed);
        let gap = found - offset;
        if gap.abs() <= JUMP {
            if let Some(pending) = rest.pending.take() {
                rest.notice(ClockNotice::Returned(-seconds(pending.by)));
            }
            self.jumped.store(false, Ordering::Relaxed);
            if gap.abs() > BLUR {
                self.move_to(found, reading.passed, &mut rest);
            }
            return self.advance_latest(reading.wall);
        }
        if rest.before.is_some_and(|before| (found - before).abs() <= JUMP) {
            rest.before = None;
            rest.notice(ClockNotice::Returned(seconds(gap)));
        } else {
            let pending = match rest.pending.filter(|pending| (found - pending.offset).abs() <= JUMP) {
                Some(pending) => pending,
                None => {
                    rest.notice(ClockNotice::Jumped(seconds(gap)));
                    PendingJump { offset: found, since: reading.passed, by: gap }
                }
            };
            rest.pending = Some(pending);
            self.jumped.store(true, Ordering::Relaxed);
            if reading.passed - pending.since < LASTING {
                return self.advance_latest(reading.passed + offset);
            }
            rest.before = Some(offset);
            rest.notice(ClockNotice::Followed(seconds(gap)));
        }
        rest.pending = None;
        self.jumped.store(false, Ordering::Relaxed);
        self.move_to(found, reading.passed, &mut rest);
        self.latest.store(reading.wall, Ordering::Relaxed);
        reading.wall
    }

    fn move_to(&self, offset: i64, passed: i64, rest: &mut JumpState) {
        self.offset.store(offset, Ordering::Relaxed);
        let from = if self.slews.load(Ordering::Relaxed) {
            rest.slew.offset(passed)
        } else {
            self.steady.load(Ordering::Relaxed)
        };
        rest.slew = Slew { since: passed, from, to: offset };
        self.slews.store(true, Ordering::Relaxed);
    }

    fn advance_latest(&self, micros: i64) -> i64 {
        self.latest.fetch_max(micros, Ordering::Relaxed).max(micros)
    }

    /// The steady time. When the wall clock was corrected, it goes a little faster or slower until
    /// both agree: deadlines in the store are times of day to other processes.
    fn steady(&self, passed: i64) -> i64 {
        if !self.slews.load(Ordering::Acquire) {
            return passed + self.steady.load(Ordering::Relaxed);
        }
        let rest = self.rest();
        let offset = rest.slew.offset(passed);
        if offset == rest.slew.to {
            self.steady.store(offset, Ordering::Relaxed);
            self.slews.store(false, Ordering::Release);
        }
        passed + offset
    }
}

impl JumpState {
    fn notice(&mut self, notice: ClockNotice) {
        if self.notices.len() < CLOCK_NOTICES_MAX {
            self.notices.push(notice);
        }
    }
}

/// The nearest whole seconds: the clocks are read one after the other.
const fn seconds(micros: i64) -> i64 {
    (micros + 500_000).div_euclid(1_000_000)
}

fn read() -> ClockReading {
    let passed = since_boot();
    ClockReading { wall: wall(), passed }
}

#[allow(clippy::disallowed_methods)] // the one place that reads the clock
fn wall() -> i64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_micros()).unwrap_or(i64::MAX),
        Err(_) => 0,
    }
}

/// Goes on while the machine sleeps, where the system has such a clock.
#[cfg(target_os = "linux")]
const PASSED: rustix::time::ClockId = rustix::time::ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const PASSED: rustix::time::ClockId = rustix::time::ClockId::Monotonic;

fn since_boot() -> i64 {
    let time = rustix::time::clock_gettime(PASSED);
    time.tv_sec.saturating_mul(1_000_000).saturating_add(time.tv_nsec / 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;
    const HOUR: i64 = 3_600;
    const DAY: i64 = 24 * HOUR;
    /// The wall clock when the machine had been up for no time.
    const WALL: i64 = 1_770_000_000;

    /// A machine whose wall clock can be set.
    struct Machine {
        reckoning: ClockFilter,
        passed: i64,
        wrong: i64,
    }

    impl Machine {
        fn new() -> Self {
            Self { reckoning: ClockFilter::new(ClockReading { wall: WALL * SECOND, passed: 0 }), passed: 0, wrong: 0 }
        }

        fn reading(&self) -> ClockReading {
            ClockReading { wall: (WALL + self.passed + self.wrong) * SECOND, passed: self.passed * SECOND }
        }

        /// The time of day, in seconds since the start.
        fn now(&self) -> i64 {
            let fast = self.reckoning.fast_now(self.reading());
            fast.unwrap_or_else(|| self.reckoning.filtered_now(self.reading())) / SECOND - WALL
        }

        fn steady(&self) -> i64 {
            self.reckoning.steady(self.passed * SECOND) / SECOND - WALL
        }

        /// Lets seconds pass, and asks for the time in each.
        fn pass(&mut self, seconds: i64) -> i64 {
            for _ in 0..seconds {
                self.passed += 1;
                self.now();
            }
            self.now()
        }

        fn set(&mut self, wrong: i64) -> i64 {
            self.wrong = wrong;
            self.now()
        }

        fn noticed(&self) -> Vec<ClockNotice> {
            std::mem::take(&mut self.reckoning.rest().notices)
        }

        fn waits(&self) -> bool {
            self.reckoning.rest().pending.is_some()
        }
    }

    #[test]
    fn while_both_clocks_move_alike_both_times_are_the_wall_clocks() {
        let mut machine = Machine::new();
        assert_eq!((machine.pass(100), machine.steady()), (100, 100));
        assert!(machine.noticed().is_empty() && !machine.waits());
    }

    #[test]
    fn a_glitch_of_a_day_for_two_seconds_does_nothing_but_is_noticed() {
        let mut machine = Machine::new();
        machine.pass(10);
        assert_eq!(machine.set(DAY), 10);
        assert_eq!(machine.pass(2), 12);
        assert!(machine.waits());
        assert_eq!(machine.set(0), 12);
        assert_eq!((machine.pass(100), machine.steady(), machine.waits()), (112, 112, false));
        assert_eq!(machine.noticed(), [ClockNotice::Jumped(DAY), ClockNotice::Returned(-DAY)]);
    }

    #[test]
    fn a_jump_that_lasts_is_followed_in_both_directions_once() {
        for by in [DAY, -HOUR] {
            let mut machine = Machine::new();
            machine.pass(10);
            machine.set(by);
            assert_eq!(machine.pass(29), 39, "not yet");
            assert_eq!(machine.pass(1), 40 + by);
            assert_eq!(machine.pass(5), 45 + by);
            assert_eq!(machine.noticed(), [ClockNotice::Jumped(by), ClockNotice::Followed(by)]);
            assert!(!machine.waits());
        }
    }

    #[test]
    fn a_clock_that_comes_back_after_its_jump_was_followed_is_followed_at_once_but_only_once() {
        let mut machine = Machine::new();
        machine.set(-HOUR);
        assert_eq!(machine.pass(40), 40 - HOUR);
        assert_eq!(machine.set(0), 40);
        assert_eq!(machine.set(-HOUR), 40, "the next glitch waits again");
        assert_eq!(
            machine.noticed(),
            [
                ClockNotice::Jumped(-HOUR),
                ClockNotice::Followed(-HOUR),
                ClockNotice::Returned(HOUR),
                ClockNotice::Jumped(-HOUR)
            ]
        );
    }

    #[test]
    fn a_clock_that_keeps_jumping_is_not_followed() {
        let mut machine = Machine::new();
        for hour in 1..20 {
            machine.set(hour * HOUR);
            machine.pass(20);
        }
        assert_eq!(machine.now(), 19 * 20);
        assert!(machine.waits());
    }

    #[test]
    fn a_step_of_a_few_seconds_is_followed_at_once_and_never_backwards() {
        let mut machine = Machine::new();
        machine.pass(10);
        assert_eq!(machine.set(3), 13);
        assert_eq!(machine.set(0), 13, "it stands still");
        assert_eq!(machine.pass(2), 13);
        assert_eq!(machine.pass(2), 14);
        assert!(machine.noticed().is_empty());
    }

    #[test]
    fn the_steady_time_never_jumps_nor_goes_back_and_reaches_the_corrected_clock() {
        for by in [HOUR, -HOUR] {
            let mut machine = Machine::new();
            machine.set(by);
            let mut last = machine.steady();
            for _ in 0..11 * HOUR {
                machine.pass(1);
                let next = machine.steady();
                assert!((0..=2).contains(&(next - last)), "{last} {next}");
                last = next;
            }
            assert_eq!(machine.steady(), machine.now());
            assert!(!machine.reckoning.slews.load(Ordering::Relaxed));
        }
    }

    #[test]
    fn a_jump_back_moves_no_deadline_by_more_than_a_tenth() {
        let mut machine = Machine::new();
        machine.set(-HOUR);
        machine.pass(31);
        let due = machine.steady() + 100;
        machine.pass(112);
        assert!(machine.steady() >= due);
    }

    #[test]
    fn the_real_clock_moves_on() {
        let clock = SystemClock::default();
        let (now, steady) = (clock.now(), clock.steady());
        assert!(clock.now() >= now && clock.steady() >= steady);
        assert!(clock.ahead().abs() < 1.0 && clock.jump().is_none());
    }
}
