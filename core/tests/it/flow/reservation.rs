//! Sliding windows: no window of their length ever holds more than the limit, however runs interleave.

use chimera_core::flow::reservation::{CountedCall, LimitReached, Window, WindowKey};
use chimera_core::limits::{RESERVATION_ENTRIES_MAX, RESERVATION_WINDOW_PARTS};
use chimera_core::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(1_700_000_000_000_000 + seconds * 1_000_000)
}

fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn window(seconds: u32) -> Window {
    Window::empty(WindowKey { subject: "s".to_owned(), seconds })
}

fn entry(number: u128, amount: i64) -> CountedCall {
    CountedCall { effect: Some(id(number)), at: at(0), amount, is_write: true }
}

/// Counts a call if it fits.
fn take(window: &mut Window, number: u128, amount: i64, most: i64, now: Timestamp) -> Result<(), LimitReached> {
    window.check(id(number), amount, most, now)?;
    window.reserve(entry(number, amount), now);
    Ok(())
}

#[test]
fn a_call_fits_until_the_limit_is_reached_and_again_when_the_first_one_has_left() {
    let mut window = window(60);
    for (number, second) in [(1, 0), (2, 10), (3, 20)] {
        assert_eq!(take(&mut window, number, 1, 3, at(second)), Ok(()));
    }
    let reached = Err(LimitReached { used: 3, free_at: Some(at(60)) });
    assert_eq!(take(&mut window, 4, 1, 3, at(30)), reached);
    assert_eq!(take(&mut window, 4, 1, 3, at(59)), reached);
    assert_eq!(take(&mut window, 4, 1, 3, at(60)), Ok(()));
    assert_eq!(take(&mut window, 5, 1, 3, at(60)), Err(LimitReached { used: 3, free_at: Some(at(70)) }));
}

#[test]
fn an_amount_waits_for_as_many_to_leave_as_it_needs_and_one_above_the_limit_never_fits() {
    let mut window = window(60);
    for (number, second) in [(1, 0), (2, 10), (3, 20)] {
        assert_eq!(take(&mut window, number, 30, 100, at(second)), Ok(()));
    }
    assert_eq!(take(&mut window, 4, 50, 100, at(30)), Err(LimitReached { used: 90, free_at: Some(at(70)) }));
    assert_eq!(take(&mut window, 4, 101, 100, at(30)), Err(LimitReached { used: 90, free_at: None }));
    assert_eq!(take(&mut window, 4, i64::MAX, 100, at(30)), Err(LimitReached { used: 90, free_at: None }));
    assert_eq!(take(&mut window, 4, 10, 100, at(30)), Ok(()));
}

#[test]
fn a_retry_counts_once_and_from_its_last_attempt() {
    let mut window = window(60);
    assert_eq!(take(&mut window, 1, 1, 1, at(0)), Ok(()));
    assert_eq!(take(&mut window, 1, 1, 1, at(50)), Ok(()));
    assert_eq!(window.entries().len(), 1);
    assert_eq!(take(&mut window, 2, 1, 1, at(70)), Err(LimitReached { used: 1, free_at: Some(at(110)) }));
}

#[test]
fn what_took_no_effect_gives_its_place_back() {
    let mut window = window(60);
    assert_eq!(take(&mut window, 1, 1, 1, at(0)), Ok(()));
    window.release(id(1));
    assert_eq!(take(&mut window, 2, 1, 1, at(0)), Ok(()));
}

#[test]
fn a_clock_that_is_behind_does_not_reorder_a_window() {
    let mut window = window(60);
    assert_eq!(take(&mut window, 1, 1, 2, at(30)), Ok(()));
    assert_eq!(take(&mut window, 2, 1, 2, at(10)), Ok(()));
    let times: Vec<Timestamp> = window.entries().iter().map(|entry| entry.at).collect();
    assert_eq!(times, [at(30), at(30)]);
}

/// A node that remembers a deleted row can't take another one for it.
#[test]
fn a_row_that_is_written_again_has_a_version_that_it_never_had() {
    let (mut old, mut new) = (window(60), window(60));
    old.written(at(0));
    (0..1_000).for_each(|_| old.written(at(1)));
    // It is deleted when nothing in it counts any more.
    new.written(at(61));
    assert!(new.version() > old.version());
}

#[test]
fn a_window_is_stored_as_it_is() {
    let mut written = window(60);
    take(&mut written, 1, 1, 9, at(1)).unwrap();
    take(&mut written, 2, 5, 9, at(2)).unwrap();
    let text = serde_json::to_string(written.entries()).unwrap();
    let read: Vec<CountedCall> = serde_json::from_str(&text).unwrap();
    assert_eq!(read, written.entries());
}

#[test]
fn many_calls_stay_few_entries_that_leave_no_sooner_and_hardly_later() {
    let (hour, most) = (3_600_u32, 10_000);
    let mut window = window(hour);
    for call in 0..5_000_i64 {
        assert_eq!(take(&mut window, u128::try_from(call).unwrap(), 1, most, at(call / 2)), Ok(()));
        assert!(window.entries().len() <= RESERVATION_ENTRIES_MAX);
    }
    let used = |second: i64| match window.check(id(9_999_999), most, most, at(second)) {
        Ok(()) => 0,
        Err(reached) => reached.used,
    };
    let part = i64::from(hour) / RESERVATION_WINDOW_PARTS + 1;
    for second in (2_500..7_000).step_by(37) {
        let exact = (0..5_000_i64).filter(|call| call / 2 + i64::from(hour) > second).count();
        let late = (0..5_000_i64).filter(|call| call / 2 + i64::from(hour) + part > second).count();
        let counted = usize::try_from(used(second)).unwrap();
        assert!((exact..=late).contains(&counted), "at {second}: {exact} <= {counted} <= {late}");
    }
    assert_eq!(used(2_500 + i64::from(hour)), 0);
}

/// A small generator, so that a seed reproduces a history.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// A call that has read the row and not written it yet.
struct Reader {
    effect: u128,
    amount: i64,
    seen: Window,
}

/// Runs that read, are overtaken, write by compare-and-set, fail, and are sent again, in any order.
#[test]
fn no_window_holds_more_than_its_limit_whatever_the_order() {
    for seed in 1..=400_u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let (seconds, most) = (u32::try_from(5 + dice.roll(60)).unwrap(), i64::try_from(1 + dice.roll(400)).unwrap());
        let amount_max = if dice.roll(2) == 0 { 1 } else { 40 };
        let (mut row, mut now, mut next) = (window(seconds), 0_i64, 0_u128);
        let mut readers: Vec<Reader> = Vec::new();
        // When each effect was sent, and how much it was. A failed one took no effect.
        let mut sent: Vec<(i64, u128, i64)> = Vec::new();
        let mut amounts: BTreeMap<u128, i64> = BTreeMap::new();
        let mut failed: BTreeSet<u128> = BTreeSet::new();
        for _ in 0..600 {
            now += i64::try_from(dice.roll(3)).unwrap();
            match dice.roll(10) {
                0..=3 => {
                    next += 1;
                    let amount = i64::try_from(1 + dice.roll(amount_max)).unwrap();
                    amounts.insert(next, amount);
                    readers.push(Reader { effect: next, amount, seen: row.clone() });
                }
                4 if !sent.is_empty() => {
                    let (_, effect, amount) = sent[usize::try_from(dice.roll(sent.len() as u64)).unwrap()];
                    if !failed.contains(&effect) {
                        readers.push(Reader { effect, amount, seen: row.clone() });
                    }
                }
                5 if !sent.is_empty() => {
                    // It fails, and the next one who needs a place finds out.
                    let (_, effect, _) = sent[usize::try_from(dice.roll(sent.len() as u64)).unwrap()];
                    if readers.iter().all(|reader| reader.effect != effect) {
                        failed.insert(effect);
                        row.release(id(effect));
                        row.written(at(now));
                    }
                }
                _ if !readers.is_empty() => {
                    let at_index = usize::try_from(dice.roll(readers.len() as u64)).unwrap();
                    let Reader { effect, amount, mut seen } = readers.swap_remove(at_index);
                    if seen.version() != row.version() {
                        readers.push(Reader { effect, amount, seen: row.clone() });
                    } else if take(&mut seen, effect, amount, most, at(now)).is_ok() {
                        seen.written(at(now));
                        row = seen;
                        sent.push((now, effect, amount));
                    }
                }
                _ => {}
            }
        }
        for (end, ..) in &sent {
            let inside = sent.iter().filter(|(at, ..)| at <= end && at + i64::from(seconds) > *end);
            let effects: BTreeSet<u128> =
                inside.map(|(_, effect, _)| *effect).filter(|it| !failed.contains(it)).collect();
            let sum: i64 = effects.iter().map(|effect| amounts[effect]).sum();
            assert!(sum <= most, "seed {seed}: {sum} of {most} within {seconds} s before {end}");
        }
        assert!(!sent.is_empty(), "seed {seed}");
    }
}
