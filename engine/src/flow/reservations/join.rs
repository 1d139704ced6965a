//! Commits turns that take places within limits, several in one transaction.
//!
//! All runs that share a limit change the same row, and a row changes once per transaction. If each turn committed on its
//! own, all but one of those that read the same version would lose. So turns that wait for the same lane are joined:
//! their places are taken in order on the newest known row, and one transaction has all their changes and one
//! compare-and-set per row. A turn that does not fit is told so and reads its limits again. If the transaction loses,
//! each turn is tried alone, so that nobody fails because of others.
//!
//! A turn whose windows nobody else is changing commits on its own, at once. Within a process, a window is changed by one
//! transaction at a time; between processes the compare-and-set decides.

use super::is_contended;
use super::read::read_window;
use crate::flow::engine::EngineState;
use crate::port::CommitError;
use chimera_core::flow::reservation::{
    RESERVATIONS, Reservation, Window, WindowChange, WindowKey, reservations, window_change,
};
use chimera_core::flow::run::{KnownWindows, RunHead, Turn};
use chimera_core::limits;
use chimera_core::record::{Conflict, RowKey, Tx, Unstorable};
use chimera_core::time::Timestamp;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// A turn that takes places within limits.
#[derive(Clone, Debug)]
pub(in crate::flow) struct ReservingTurn {
    pub(in crate::flow) tenant: String,
    /// Without the rows of the windows.
    pub(in crate::flow) tx: Tx,
    pub(in crate::flow) reserved: Vec<Reservation>,
    /// The windows, as far as the turn read them.
    pub(in crate::flow) read: Vec<Window>,
}

impl ReservingTurn {
    /// The turn of a run, with its transaction.
    pub(in crate::flow) fn of(head: &RunHead, turn: &mut Turn, tx: Tx) -> Self {
        let (reserved, read) = (std::mem::take(&mut turn.reserved), std::mem::take(&mut turn.windows_read));
        Self { tenant: head.tenant.clone(), tx, reserved, read }
    }
}

type SlotKey = (String, WindowKey);

/// A window that this process changes.
#[derive(Default)]
struct WindowSlot {
    /// Held by the transaction that changes it.
    turn: tokio::sync::Mutex<()>,
    /// As this process last wrote it. Another process may have changed it since.
    latest: Mutex<Option<Window>>,
}

impl WindowSlot {
    fn latest(&self) -> MutexGuard<'_, Option<Window>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The turns that wait for one lane.
#[derive(Default)]
struct LaneQueue {
    waiting: Mutex<VecDeque<Waiting>>,
    /// Held by the one that commits for all.
    leader: tokio::sync::Mutex<()>,
}

struct Waiting {
    turn: ReservingTurn,
    done: oneshot::Sender<Result<(), CommitError>>,
}

/// The windows that this process changes, and the turns that wait for it.
#[derive(Default)]
pub(in crate::flow) struct JoinedTurns {
    lanes: Mutex<BTreeMap<i64, Arc<LaneQueue>>>,
    windows: Mutex<BTreeMap<SlotKey, Arc<WindowSlot>>>,
}

impl KnownWindows for JoinedTurns {
    fn latest(&self, tenant: &str, key: &WindowKey) -> Option<Window> {
        let windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = windows.get(&(tenant.to_owned(), key.clone()))?;
        slot.latest().clone()
    }
}

impl JoinedTurns {
    fn slot(&self, key: &SlotKey) -> Arc<WindowSlot> {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        if windows.len() >= limits::WINDOWS_KEPT_MAX && !windows.contains_key(key) {
            windows.retain(|_, slot| Arc::strong_count(slot) > 1);
        }
        Arc::clone(windows.entry(key.clone()).or_default())
    }

    fn lane(&self, lane: i64) -> Arc<LaneQueue> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(lanes.entry(lane).or_default())
    }
}

impl LaneQueue {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes as many turns as fit into one transaction.
    fn take(&self) -> Vec<Waiting> {
        let mut waiting = self.waiting();
        let (mut taken, mut rows) = (Vec::new(), 0);
        while let Some(next) = waiting.front() {
            rows += row_count(&next.turn.tx);
            if taken.len() >= limits::JOINED_TURNS_MAX || (!taken.is_empty() && rows > limits::JOINED_ROWS_MAX) {
                break;
            }
            taken.extend(waiting.pop_front());
        }
        taken
    }
}

fn row_count(tx: &Tx) -> usize {
    tx.inserts.len() + tx.updates.len() + tx.steps.len() + tx.entries.len()
}

/// Commits a turn, with others that wait. A conflict on the row of a window means that its places must be taken anew.
pub(in crate::flow) async fn commit(inner: &EngineState, turn: ReservingTurn) -> Result<(), CommitError> {
    if turn.reserved.is_empty() {
        return inner.parts.records.commit(turn.tx).await.map(drop);
    }
    if let Some(result) = commit_alone(inner, &turn).await {
        return result;
    }
    // Without a lane, the commit claims one or fails.
    let lane = inner.parts.records.lane(turn.tx.affinity).map_or(0, |lane| lane.lane);
    let queue = inner.joined.lane(lane);
    let (done, mut result) = oneshot::channel();
    queue.waiting().push_back(Waiting { turn, done });
    loop {
        let leading = queue.leader.lock().await;
        match result.try_recv() {
            Ok(result) => return result,
            // Whoever led was dropped, so what came of it is not known.
            Err(oneshot::error::TryRecvError::Closed) => return Err(CommitError::Unknown),
            Err(oneshot::error::TryRecvError::Empty) => {}
        }
        commit_group(inner, queue.take()).await;
        drop(leading);
    }
}

/// Commits a turn whose windows nobody else is changing. None: somebody is.
async fn commit_alone(inner: &EngineState, turn: &ReservingTurn) -> Option<Result<(), CommitError>> {
    let slots = slots_of(inner, std::slice::from_ref(turn));
    let held: Result<Vec<_>, _> = slots.values().map(|slot| slot.turn.try_lock()).collect();
    let held = held.ok()?;
    let results = try_group(inner, &slots, std::slice::from_ref(turn)).await;
    drop(held);
    results?.pop()
}

fn slots_of(inner: &EngineState, turns: &[ReservingTurn]) -> BTreeMap<SlotKey, Arc<WindowSlot>> {
    slot_keys(turns).map(|key| (key.clone(), inner.joined.slot(&key))).collect()
}

/// Commits the turns of a group, together if possible, and tells each how it ended.
async fn commit_group(inner: &EngineState, group: Vec<Waiting>) {
    let (turns, waiters): (Vec<ReservingTurn>, Vec<_>) = group.into_iter().map(|one| (one.turn, one.done)).unzip();
    let slots = slots_of(inner, &turns);
    // In the order of their keys, so that two groups never wait for each other.
    let mut held = Vec::with_capacity(slots.len());
    for slot in slots.values() {
        held.push(slot.turn.lock().await);
    }
    let results = match try_group(inner, &slots, &turns).await {
        Some(results) => results,
        None => {
            let mut results = Vec::with_capacity(turns.len());
            for turn in &turns {
                let alone = try_group(inner, &slots, std::slice::from_ref(turn)).await;
                results.extend(alone.unwrap_or_else(|| vec![Err(CommitError::Unknown)]));
            }
            results
        }
    };
    drop(held);
    for (waiter, result) in waiters.into_iter().zip(results) {
        // Its run may be gone.
        let _ = waiter.send(result);
    }
}

fn slot_keys(turns: &[ReservingTurn]) -> impl Iterator<Item = SlotKey> {
    let keys = turns.iter().flat_map(|turn| turn.reserved.iter().map(|one| (turn.tenant.clone(), one.key.clone())));
    keys.collect::<std::collections::BTreeSet<_>>().into_iter()
}

/// Commits turns in one transaction. None: it lost for another reason than its windows, and there are several.
async fn try_group(
    inner: &EngineState,
    slots: &BTreeMap<SlotKey, Arc<WindowSlot>>,
    turns: &[ReservingTurn],
) -> Option<Vec<Result<(), CommitError>>> {
    for attempt in 0..limits::RESERVE_TRIES_MAX {
        let mut base = newest(slots, turns, attempt == 0);
        if slot_keys(turns).any(|key| !base.contains_key(&key)) {
            // A window that this process wrote was dropped from memory since.
            if let Err(error) = refresh(inner, slots, turns).await {
                return Some(vec![Err(error); turns.len()]);
            }
            base = newest(slots, turns, attempt == 0);
        }
        let Placed { tx, windows, results, now } = match place(inner, base, turns) {
            Ok(placed) => placed,
            Err(error) => {
                tracing::error!(%error, "the row of a limit could not be built");
                return Some(vec![Err(contended(None)); turns.len()]);
            }
        };
        if results.iter().all(Result::is_err) {
            return Some(results);
        }
        let error = match inner.parts.records.commit(tx).await {
            Ok(_) => {
                for (key, mut window) in windows {
                    window.written(now);
                    if let Some(slot) = slots.get(&key) {
                        *slot.latest() = Some(window);
                    }
                }
                return Some(results);
            }
            Err(error) => error,
        };
        match error {
            CommitError::Conflict(conflict) if is_contended(&conflict) => {
                if let Err(error) = refresh(inner, slots, turns).await {
                    return Some(vec![Err(error); turns.len()]);
                }
            }
            CommitError::Conflict(_) | CommitError::Invalid(_) | CommitError::Rejected { .. } if turns.len() > 1 => {
                return None;
            }
            error => {
                forget(slots, turns);
                return Some(results.into_iter().map(|placed| placed.and(Err(error.clone()))).collect());
            }
        }
    }
    Some(vec![Err(contended(None)); turns.len()])
}

/// The newest known state of the windows of some turns. What they read themselves is outdated once it was refreshed.
fn newest(
    slots: &BTreeMap<SlotKey, Arc<WindowSlot>>,
    turns: &[ReservingTurn],
    is_first: bool,
) -> BTreeMap<SlotKey, Window> {
    let mut newest: BTreeMap<SlotKey, Window> = BTreeMap::new();
    let known = slot_keys(turns).filter_map(|key| Some((slots.get(&key)?.latest().clone()?, key)));
    newest.extend(known.map(|(window, key)| (key, window)));
    for turn in turns.iter().filter(|_| is_first) {
        for window in &turn.read {
            let key = (turn.tenant.clone(), window.key().clone());
            // Of the same version, the one that was read may have given places back.
            if newest.get(&key).is_none_or(|known| known.version() <= window.version()) {
                newest.insert(key, window.clone());
            }
        }
    }
    newest
}

/// Turns with their places, in one transaction.
struct Placed {
    tx: Tx,
    windows: BTreeMap<SlotKey, Window>,
    /// Which turns are part of it.
    results: Vec<Result<(), CommitError>>,
    /// When they were taken.
    now: Timestamp,
}

/// Takes the places of each turn in order.
fn place(
    inner: &EngineState,
    mut windows: BTreeMap<SlotKey, Window>,
    turns: &[ReservingTurn],
) -> Result<Placed, Unstorable> {
    let now = inner.parts.clock.steady();
    let (mut tx, mut results) = (Tx::default(), Vec::with_capacity(turns.len()));
    let mut touched: BTreeMap<SlotKey, &Reservation> = BTreeMap::new();
    for turn in turns {
        if !fits(&windows, turn, now) {
            results.push(Err(contended(turn.reserved.first().map(|one| (&turn.tenant, one)))));
            continue;
        }
        for one in &turn.reserved {
            let slot = (turn.tenant.clone(), one.key.clone());
            if let Some(window) = windows.get_mut(&slot) {
                window.reserve(one.entry, now);
            }
            touched.insert(slot, one);
        }
        tx.affinity = turn.tx.affinity;
        tx.append(turn.tx.clone());
        results.push(Ok(()));
    }
    for (slot, one) in &touched {
        let Some(window) = windows.get(slot) else { continue };
        match window_change(window, &slot.0, &one.rule, now)? {
            WindowChange::Insert(insert) => tx.inserts.push(insert),
            WindowChange::Update(update) => tx.updates.push(update),
        }
    }
    windows.retain(|slot, _| touched.contains_key(slot));
    Ok(Placed { tx, windows, results, now })
}

/// Whether all places of a turn are free. Several within one window are taken one after the other.
fn fits(windows: &BTreeMap<SlotKey, Window>, turn: &ReservingTurn, now: Timestamp) -> bool {
    let mut tried: BTreeMap<&WindowKey, Window> = BTreeMap::new();
    turn.reserved.iter().all(|one| {
        let Some(known) = windows.get(&(turn.tenant.clone(), one.key.clone())) else { return false };
        let effect = one.entry.effect.unwrap_or_default();
        let is_free =
            |window: &Window| one.is_approved_beyond || window.check(effect, one.entry.amount, one.most, now).is_ok();
        if turn.reserved.iter().filter(|other| other.key == one.key).count() == 1 {
            return is_free(known);
        }
        let window = tried.entry(&one.key).or_insert_with(|| known.clone());
        let is_free = is_free(window);
        window.reserve(one.entry, now);
        is_free
    })
}

/// Reads the windows of some turns again: another process has changed one of them.
async fn refresh(
    inner: &EngineState,
    slots: &BTreeMap<SlotKey, Arc<WindowSlot>>,
    turns: &[ReservingTurn],
) -> Result<(), CommitError> {
    for key in slot_keys(turns) {
        let Some(slot) = slots.get(&key) else { continue };
        let read = read_window(inner, &key.0, &key.1).await.map_err(|_| contended(None))?;
        *slot.latest() = Some(read);
    }
    Ok(())
}

/// The windows may have changed.
fn forget(slots: &BTreeMap<SlotKey, Arc<WindowSlot>>, turns: &[ReservingTurn]) {
    slot_keys(turns).filter_map(|key| slots.get(&key)).for_each(|slot| *slot.latest() = None);
}

/// The places of a turn must be taken anew.
fn contended(place: Option<(&String, &Reservation)>) -> CommitError {
    let values = place.map_or_else(Vec::new, |(tenant, one)| {
        vec![tenant.as_str().into(), one.key.subject.as_str().into(), i64::from(one.key.seconds).into()]
    });
    const COLUMNS: &[&str] = &[reservations::tenant_id, reservations::subject, reservations::window_seconds];
    CommitError::Conflict(Conflict::Stale(RowKey { table: RESERVATIONS.name, columns: COLUMNS, values }))
}
