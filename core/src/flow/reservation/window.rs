//! A sliding window: what was counted, and whether one more fits.
//!
//! An entry counts from its time for the length of the window, excluding the end. So no window of that length, wherever
//! it begins, contains more than the limit.
//!
//! Each entry names the effect of its call. A retry finds its entry again and moves it to the time of the new attempt,
//! so that it counts once, and for as long as that attempt requires. Beyond [`RESERVATION_ENTRIES_MAX`] entries, old ones that are close
//! together become one, at the time of the last of them: they count a little longer, never shorter.

use crate::limits::{RESERVATION_ENTRIES_MAX, RESERVATION_WINDOW_PARTS};
use crate::time::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

/// Which window: what is counted, over how long. Windows belong to a tenant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WindowKey {
    pub subject: String,
    pub seconds: u32,
}

/// A counted call, or several that were joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedCall {
    /// None if it stands for several.
    pub effect: Option<Uuid>,
    pub at: Timestamp,
    pub amount: i64,
    /// The call may have taken no effect if its effect failed. A read counts however it ended.
    pub is_write: bool,
}

/// As a list, because a row has many of them.
impl Serialize for CountedCall {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.effect, self.at.micros(), self.amount, u8::from(self.is_write)).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for CountedCall {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (effect, at, amount, is_write) = <(Option<Uuid>, i64, i64, u8)>::deserialize(deserializer)?;
        Ok(Self { effect, at: Timestamp::from_micros(at), amount, is_write: is_write != 0 })
    }
}

/// The limit does not allow the call now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitReached {
    /// The total without the call.
    pub used: i64,
    /// When it fits if nothing else is counted meanwhile. None: never.
    pub free_at: Option<Timestamp>,
}

/// What one limit has counted.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    key: WindowKey,
    /// Zero until it has a row.
    version: i64,
    /// In order of time.
    entries: Vec<CountedCall>,
}

impl Window {
    /// A window that has counted nothing.
    #[must_use]
    pub const fn empty(key: WindowKey) -> Self {
        Self { key, version: 0, entries: Vec::new() }
    }

    /// The window of a row.
    #[must_use]
    pub fn load(key: WindowKey, version: i64, mut entries: Vec<CountedCall>) -> Self {
        entries.sort_by_key(|entry| entry.at);
        Self { key, version, entries }
    }

    #[must_use]
    pub const fn key(&self) -> &WindowKey {
        &self.key
    }

    /// The version of its row; zero if it has none.
    #[must_use]
    pub const fn version(&self) -> i64 {
        self.version
    }

    #[must_use]
    pub fn entries(&self) -> &[CountedCall] {
        &self.entries
    }

    /// The version of its row once it is written. The first one is the time, so that a row that was deleted and written
    /// again never gets a version that somebody remembers.
    #[must_use]
    pub const fn next_version(&self, now: Timestamp) -> i64 {
        if self.version == 0 { now.micros() } else { self.version + 1 }
    }

    /// The row was written.
    pub const fn written(&mut self, now: Timestamp) {
        self.version = self.next_version(now);
    }

    /// Entries whose effects may turn out to have failed.
    pub fn releasable(&self, now: Timestamp) -> impl Iterator<Item = Uuid> {
        let now = self.time(now);
        self.counted(now).filter(|entry| entry.is_write).filter_map(|entry| entry.effect)
    }

    /// Whether the call of an effect fits now. An earlier entry of the same effect does not count.
    pub fn check(&self, effect: Uuid, amount: i64, most: i64, now: Timestamp) -> Result<(), LimitReached> {
        let now = self.time(now);
        let others = || self.counted(now).filter(|entry| entry.effect != Some(effect));
        let used = others().fold(0, |sum: i64, entry| sum.saturating_add(entry.amount));
        let mut excess = used.saturating_add(amount).saturating_sub(most);
        if excess <= 0 {
            return Ok(());
        }
        let free_at = others().find_map(|entry| {
            excess = excess.saturating_sub(entry.amount);
            (excess <= 0).then(|| entry.at.plus_seconds(i64::from(self.key.seconds)))
        });
        Err(LimitReached { used, free_at })
    }

    /// Counts the call of an effect. One that was counted before is moved.
    pub fn reserve(&mut self, mut entry: CountedCall, now: Timestamp) {
        let now = self.time(now);
        let seconds = i64::from(self.key.seconds);
        self.entries.retain(|known| known.at.plus_seconds(seconds) > now && known.effect != entry.effect);
        entry.at = now;
        self.entries.push(entry);
        self.join_old();
    }

    /// The call of an effect took no effect: it no longer counts.
    pub fn release(&mut self, effect: Uuid) {
        self.entries.retain(|entry| entry.effect != Some(effect));
    }

    /// The time of the window, which never goes back, whichever node's clock is behind.
    fn time(&self, now: Timestamp) -> Timestamp {
        self.entries.last().map_or(now, |last| last.at.max(now))
    }

    fn counted(&self, now: Timestamp) -> impl Iterator<Item = &CountedCall> {
        let seconds = i64::from(self.key.seconds);
        self.entries.iter().filter(move |entry| entry.at.plus_seconds(seconds) > now)
    }

    /// Joins the oldest entries of one part of the window until there are few enough.
    fn join_old(&mut self) {
        let part = |entry: &CountedCall| {
            let micros = (i64::from(self.key.seconds) * 1_000_000 / RESERVATION_WINDOW_PARTS).max(1);
            entry.at.micros().div_euclid(micros)
        };
        let excess = self.entries.len().saturating_sub(RESERVATION_ENTRIES_MAX);
        if excess == 0 {
            return;
        }
        let (mut joined, mut left) = (Vec::with_capacity(RESERVATION_ENTRIES_MAX), excess);
        for entry in &self.entries {
            match joined.last_mut() {
                Some(last) if left > 0 && part(last) == part(entry) => {
                    let amount = last.amount.saturating_add(entry.amount);
                    *last = CountedCall { effect: None, at: entry.at, amount, is_write: false };
                    left -= 1;
                }
                _ => joined.push(*entry),
            }
        }
        self.entries = joined;
    }
}
