//! One run under way: decide, commit, perform, and again.
//!
//! The task holds the run's state machine and the calls that are under way. They go on while a turn is
//! being committed, and what arrives meanwhile is decided together in the next one. A turn that the store can't
//! take now is kept as long as calls hang on it. Any other that can't be committed makes the run in memory
//! worth nothing: it is thrown away and read again, or left to whoever owns it now.

use super::entrance::Entrance;
use super::node::{Inner, Standing, Stop};
use super::perform::execute_tool;
use super::{FlowError, ask, doubt, load, observe, seal, spans};
use crate::port::{Cancel, CommitError, ReadError};
use chimera_core::flow::call::Answer;
use chimera_core::flow::run::{At, Call, Effect, Env, Event, Head, Kept, Mode, Owner, Run, Turn};
use chimera_core::flow::tables::{CACHE_ENTRIES, EFFECTS, RUNS};
use chimera_core::flow::tool::Reach;
use chimera_core::limits;
use chimera_core::record::{Json, Scope, Select, Tx};
use chimera_core::time::Timestamp;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tracing::Instrument;
use uuid::Uuid;

/// Pause before a refused commit is tried again; it doubles up to the last.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LAST: Duration = Duration::from_secs(5);

/// Pause before a run is tried again that can't even be ended.
const PAUSE_UNWRITABLE: Duration = Duration::from_secs(60);

/// How often a run that waits for a slot asks for one without being told.
const LOOK_FOR_SLOT: Duration = Duration::from_secs(1);

/// What a run is told by others in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nudge {
    /// There are signals in the store.
    Look,
    /// A slot may be free.
    Tick,
}

/// What came of a turn.
enum Went {
    On,
    /// The run in memory is not what stands in the store.
    Stale,
    /// Somebody else owns the run.
    Lost,
    /// No store takes it, however often it is tried.
    Unwritable,
}

pub(super) struct Drive {
    inner: Arc<Inner>,
    run: Run,
    nudges: mpsc::Receiver<Nudge>,
    standing: watch::Sender<Standing>,
    calls: FuturesUnordered<BoxFuture<'static, Event>>,
    cancels: BTreeMap<At, watch::Sender<bool>>,
    /// What calls answered while the store was waited for.
    answered: Vec<Event>,
    /// Calls that reach outside and whose answers must not be lost.
    outside: BTreeSet<Uuid>,
    /// Turns that could not be written. What is written between them says nothing: a run may have to wait for a
    /// slot or look for a recorded output before it comes to the same turn again.
    unwritten: u32,
    /// Every call that is written down as under way is a call of this task.
    alone: bool,
    /// The owner that the store knew before the last turn.
    owner: Option<Owner>,
    /// Turns in a row that were thrown away.
    stale: u32,
    /// More was told than one turn takes in.
    told_more: bool,
    /// Since when all that it can do is wait for a slot.
    waits_since: Option<Timestamp>,
    /// It leaves to wait for a slot in the store.
    waits_in_store: bool,
}

impl Drive {
    pub(super) fn new(
        inner: Arc<Inner>,
        run: Run,
        nudges: mpsc::Receiver<Nudge>,
        standing: watch::Sender<Standing>,
        alone: bool,
    ) -> Self {
        let (calls, cancels, owner) = (FuturesUnordered::new(), BTreeMap::new(), run.owner());
        let (stale, told_more, waits_since, waits_in_store) = (0, false, None, false);
        let (outside, unwritten) = (BTreeSet::new(), 0);
        Self {
            inner,
            run,
            nudges,
            standing,
            calls,
            cancels,
            answered: Vec::new(),
            outside,
            unwritten,
            alone,
            owner,
            stale,
            told_more,
            waits_since,
            waits_in_store,
        }
    }

    /// Goes on with a run whose turn was just committed.
    pub(super) async fn go(mut self, turn: Turn) {
        let events = self.perform(&turn);
        if turn.parked {
            self.waits_in_store = turn.waits_for_slot;
            return self.leave();
        }
        self.drive(events).await;
    }

    /// Takes a run up that was just read.
    pub(super) async fn take_up(mut self) {
        // Whoever waited in the store and finds no slot goes back there.
        let waited = self.inner.gate().resume(self.run.head().id);
        self.waits_since = waited.then_some(self.run.head().created_at);
        let mut events = vec![Event::Begun { alone: self.alone }];
        events.extend(self.told().await);
        self.drive(events).await;
    }

    async fn drive(mut self, mut events: Vec<Event>) {
        let mut stopping = self.inner.stopping();
        loop {
            if events.is_empty() {
                events = self.wait(&mut stopping).await;
            }
            let over = match *stopping.borrow() {
                Stop::No => false,
                Stop::Drain => events.is_empty() && self.calls.is_empty(),
                Stop::Now => true,
            };
            if over {
                break;
            }
            match self.turn(std::mem::take(&mut events)).await {
                Some(next) => events = next,
                None => break,
            }
        }
        self.leave();
    }

    /// Drives the run no more. What it was told in the very last moment is looked at again.
    fn leave(self) {
        let Self { inner, run, mut nudges, standing, told_more: mut told, .. } = self;
        let id = run.head().id;
        if self.waits_in_store {
            inner.release_to_wait(id, standing);
        } else {
            inner.release(id);
        }
        while let Ok(nudge) = nudges.try_recv() {
            told |= nudge == Nudge::Look;
        }
        if told && inner.goes_on() {
            inner.wake(id);
        }
    }

    /// Decides, commits and performs. None: the run is not driven here any more.
    async fn turn(&mut self, events: Vec<Event>) -> Option<Vec<Event>> {
        let id = self.run.head().id;
        let writes_through = match self.inner.owner(id) {
            Some(owner) => owner,
            None => self.meanwhile(owner_once_claimed(Arc::clone(&self.inner), id)).await?,
        };
        self.owner = self.run.owner();
        let mut granted = self.inner.gate().granted(id);
        let kept = self.kept(&events);
        let decided = self.decide(events, writes_through);
        // A recorded output is looked for before the slot is used.
        granted.retain(|at| !self.run.is_busy_at(*at));
        if decided.as_ref().is_ok_and(|turn| !turn.more) && !granted.is_empty() {
            let next = self.inner.gate().unused(id, &granted);
            self.inner.tick(next);
        }
        let mut turn = match decided {
            Ok(turn) => turn,
            Err(error) => {
                tracing::error!(run_id = %self.run.head().id, error = %error, "a turn could not be written");
                return self.unwritable(kept).await;
            }
        };
        if let Some(tx) = turn.tx.take() {
            let has_calls = !self.calls.is_empty() || !self.answered.is_empty();
            let (inner, head) = (Arc::clone(&self.inner), Arc::clone(self.run.head()));
            match self.meanwhile(commit(inner, head, tx, &turn, self.run.owner(), has_calls)).await {
                Went::On => self.stale = 0,
                Went::Stale => return self.reload().await,
                Went::Lost => return None,
                Went::Unwritable => return self.unwritable(kept).await,
            }
        }
        for Kept { call, .. } in kept {
            self.outside.remove(&call);
        }
        let mut events = self.perform(&turn);
        events.append(&mut self.answered);
        self.tell(&turn);
        if turn.parked {
            self.waits_in_store = turn.waits_for_slot;
            return None;
        }
        if std::mem::take(&mut self.told_more) {
            events.extend(self.told().await);
        }
        Some(events)
    }

    /// Waits for the store, and lets calls that are under way go on meanwhile.
    async fn meanwhile<T>(&mut self, wait: impl Future<Output = T>) -> T {
        tokio::pin!(wait);
        loop {
            tokio::select! {
                biased;
                done = &mut wait => return done,
                Some(event) = self.calls.next() => self.answered.push(event),
            }
        }
    }

    /// The answers among events that nobody could give again.
    fn kept(&self, events: &[Event]) -> Vec<Kept> {
        let mut kept = Vec::new();
        for event in events {
            match event {
                Event::Answered { at, call, answer, took_ms } if self.outside.contains(call) => {
                    let (answer, in_doubt) = (answer.clone(), self.run.is_in_doubt(*at));
                    kept.push(Kept { at: *at, call: *call, answer, took_ms: *took_ms, in_doubt });
                }
                Event::Unwritten { answers, .. } => kept.extend_from_slice(answers),
                _ => {}
            }
        }
        kept
    }

    /// A turn can't be written. Once the calls under way have ended, the run is read again and goes on with what
    /// they gave; from the second time on it only ends. If not even that can be written, it is tried again now and
    /// then, with the answers kept. None: the process ends first, or another one has the run.
    async fn unwritable(&mut self, mut answers: Vec<Kept>) -> Option<Vec<Event>> {
        self.unwritten += 1;
        let mut stopping = self.inner.stopping();
        let answered = std::mem::take(&mut self.answered);
        answers.extend(self.kept(&answered));
        while !self.calls.is_empty() {
            let ended = self.rest_of_calls(&mut stopping).await;
            if ended.is_empty() {
                return None;
            }
            answers.extend(self.kept(&ended));
        }
        self.outside.clear();
        if self.unwritten > 2 {
            tokio::select! {
                biased;
                () = stopped(&mut stopping) => return None,
                () = tokio::time::sleep(PAUSE_UNWRITABLE) => {}
            }
        }
        let mut events = vec![Event::Unwritten { answers, again: self.unwritten < 2 }];
        events.extend(self.reload().await?);
        Some(events)
    }

    fn decide(&mut self, events: Vec<Event>, owner: Owner) -> Result<Turn, FlowError> {
        let inner = Arc::clone(&self.inner);
        let parts = &inner.parts;
        let now = parts.clock.steady();
        let catalog = inner.workflows.running();
        let head = Arc::clone(self.run.head());
        let has_waited = self.waits_since.is_some_and(|since| since.plus_seconds(limits::PARK_SECONDS_MIN) <= now);
        let mut env = Env {
            now,
            ids: &mut || parts.random.row_id(now),
            gate: &mut Entrance { inner: &inner, tenant: &head.tenant, has_waited },
            policy: &*parts.policy,
            catalog: &catalog,
            owner,
        };
        let turn = self.run.step(events, &mut env)?;
        let waits = self.run.wants_slot() && !self.run.is_busy();
        self.waits_since = waits.then(|| self.waits_since.unwrap_or(now));
        Ok(turn)
    }

    /// Reads the run again after its state in memory has become worthless.
    async fn reload(&mut self) -> Option<Vec<Event>> {
        let id = self.run.head().id;
        let (known, tried) = (self.owner, self.run.owner());
        self.calls = FuturesUnordered::new();
        self.answered.clear();
        self.cancels.clear();
        let next = self.inner.gate().forget_run(id);
        self.inner.tick(next);
        self.stale += 1;
        let mut pause = (PAUSE_FIRST * self.stale).min(PAUSE_LAST);
        loop {
            if !self.inner.goes_on() {
                return None;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_LAST);
            let row = match load::run_row(&*self.inner.parts.records, id).await {
                Ok(Some(row)) => row,
                Ok(None) | Err(FlowError::Read(ReadError::Schema(_))) => return None,
                Err(_) => continue,
            };
            let owner = row.get("owner_lane").as_int();
            if owner.is_some() && owner != self.inner.owner(id).map(|owner| owner.lane) && !self.inner.parts.alone {
                return None;
            }
            match load::load(&*self.inner.parts.records, &self.inner.workflows, row).await {
                Ok(run) => self.run = run,
                Err(FlowError::Read(_)) => continue,
                Err(error) => {
                    tracing::error!(run_id = %id, error = %error, "a run could not be read");
                    return None;
                }
            }
            let stored = self.run.owner();
            // The calls of this task were dropped just now. If another node had the run meanwhile,
            // its calls may be under way still.
            self.alone &= stored.is_none() || stored == known || stored == tried || self.inner.parts.alone;
            let mut events = vec![Event::Begun { alone: self.alone }];
            events.extend(self.told().await);
            return Some(events);
        }
    }

    /// Begins what the turn wants done; gives what is to be decided at once.
    fn perform(&mut self, turn: &Turn) -> Vec<Event> {
        spans::tell(&self.inner, &self.run, turn);
        observe::turn(&self.run, turn);
        for effect in &turn.effects {
            match effect {
                Effect::Call(call) => self.call(call.clone()),
                Effect::Cancel(at) => {
                    if let Some(cancel) = self.cancels.get(at) {
                        cancel.send_replace(true);
                    }
                }
                Effect::Recall { at, key } => self.recall(*at, key.clone()),
                Effect::Wake(run) => self.inner.wake(*run),
                Effect::Notify => self.inner.messages.notify_one(),
                Effect::Release(at) => {
                    self.cancels.remove(at);
                    let next = self.inner.gate().leave(self.run.head().id, *at);
                    self.inner.tick(next);
                }
            }
        }
        if !turn.asked.is_empty() || !turn.doubted.is_empty() {
            self.inner.messages.notify_one();
        }
        if turn.more { vec![Event::Tick] } else { Vec::new() }
    }

    fn call(&mut self, call: Call) {
        let (sender, cancel) = Cancel::pair();
        self.cancels.insert(call.at, sender);
        let registry = &self.inner.parts.registry;
        let reaches_out = registry.get(&call.tool).is_some_and(|tool| tool.spec().effect != Reach::Pure);
        if reaches_out && matches!(call.mode, Mode::Execute | Mode::Undo { .. }) {
            self.outside.insert(call.id);
        }
        let (inner, head) = (Arc::clone(&self.inner), Arc::clone(self.run.head()));
        self.calls.push(
            async move {
                let parts = &inner.parts;
                let traced = spans::OpenCall::begin(parts, &head, &call);
                let performed = execute_tool(&parts.registry, &*parts.clock, &head, &call, cancel);
                let answer: Answer = performed.instrument(traced.stand_in()).await;
                let took_ms = traced.end(&answer);
                observe::call(&parts.registry, &call, &answer, took_ms);
                Event::Answered { at: call.at, call: call.id, answer, took_ms }
            }
            .boxed(),
        );
    }

    fn recall(&mut self, at: At, key: String) {
        let (inner, head) = (Arc::clone(&self.inner), Arc::clone(self.run.head()));
        self.calls.push(
            async move {
                let select = Select::from(&CACHE_ENTRIES, Scope::Tenant(head.tenant.clone()))
                    .with("workflow_id", head.workflow.id.as_str())
                    .with("cache_key", key)
                    .take(1);
                // A cache that can't be read is a cache without the entry.
                let row = inner.parts.records.read(select).await.ok().and_then(|page| page.rows.into_iter().next());
                let now = inner.parts.clock.steady();
                let row = row.filter(|row| row.get("expires_at").as_time().is_none_or(|end| end > now));
                Event::Recalled { at, hit: row.and_then(|row| row.get("output").as_json().map(Json::to_value)) }
            }
            .boxed(),
        );
    }

    fn tell(&self, turn: &Turn) {
        if turn.status.is_some() || turn.parked {
            let standing = Standing::of(&self.run, turn.parked && !turn.waits_for_slot);
            self.standing.send_replace(standing);
        }
    }

    /// Waits for something to happen to the run.
    async fn wait(&mut self, stopping: &mut watch::Receiver<Stop>) -> Vec<Event> {
        if let Some(Some(event)) = self.calls.next().now_or_never() {
            return self.gather(event);
        }
        if !self.inner.goes_on() {
            return if self.calls.is_empty() { Vec::new() } else { self.rest_of_calls(stopping).await };
        }
        let mut due = self.run.next_deadline().map(|due| until(due, self.inner.parts.clock.steady()));
        if self.run.wants_slot() {
            // A freed slot is offered to one run; if that one can't use it, the others must find it.
            due = Some(due.map_or(LOOK_FOR_SLOT, |due| due.min(LOOK_FOR_SLOT)));
        }
        let sleep = async {
            match due {
                Some(due) => tokio::time::sleep(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            Some(event) = self.calls.next() => self.gather(event),
            () = stopped(stopping) => Vec::new(),
            nudge = self.nudges.recv() => match nudge {
                Some(Nudge::Look) => self.look().await,
                _ => vec![Event::Tick],
            },
            () = sleep => vec![Event::Tick],
        }
    }

    /// Waits for a call that is under way still, and for nothing else.
    async fn rest_of_calls(&mut self, stopping: &mut watch::Receiver<Stop>) -> Vec<Event> {
        tokio::select! {
            biased;
            Some(event) = self.calls.next() => self.gather(event),
            _ = stopping.wait_for(|stop| *stop == Stop::Now) => Vec::new(),
        }
    }

    async fn look(&mut self) -> Vec<Event> {
        let mut events = self.told().await;
        events.push(Event::Tick);
        events
    }

    /// What others told the run and it has not taken in.
    async fn told(&mut self) -> Vec<Event> {
        let inner = Arc::clone(&self.inner);
        match load::signals(&*inner.parts.records, self.run.head().id).await {
            Ok((signals, more)) => {
                self.told_more = more;
                signals.into_iter().map(Event::Signalled).collect()
            }
            // They stay where they are; looking again finds them.
            Err(_) => Vec::new(),
        }
    }

    /// Everything else that has ended by now is decided in the same turn.
    fn gather(&mut self, first: Event) -> Vec<Event> {
        let mut events = vec![first];
        while let Some(Some(event)) = self.calls.next().now_or_never() {
            events.push(event);
        }
        events
    }
}

fn until(due: Timestamp, now: Timestamp) -> Duration {
    u64::try_from(due.micros() - now.micros()).map_or(Duration::ZERO, Duration::from_micros)
}

/// Commits a turn after which the run has this owner. A store that takes nothing now is tried again while an answer
/// from outside would be lost otherwise, or calls that are under way, until the process ends. Anything else is
/// read and decided anew.
async fn commit(
    inner: Arc<Inner>,
    head: Arc<Head>,
    mut tx: Tx,
    turn: &Turn,
    owner: Option<Owner>,
    has_calls: bool,
) -> Went {
    if let Err(error) = seal::notes(&mut tx, &inner, &head, &turn.notes) {
        tracing::error!(run_id = %head.id, error = %error, "a turn could not be entered in the ledger");
        return Went::Unwritable;
    }
    if let Err(error) = ask::tell(&mut tx, &inner, &head, &turn.asked).await {
        tracing::error!(run_id = %head.id, error = %error, "nobody could be told that a run waits");
        return Went::Unwritable;
    }
    if let Err(error) = doubt::tell(&mut tx, &inner, &head, &turn.doubted).await {
        tracing::error!(run_id = %head.id, error = %error, "nobody could be told that a call is in doubt");
        return Went::Unwritable;
    }
    let keeps = has_calls || tx.updates.iter().any(|update| update.table == &EFFECTS);
    let mut pause = PAUSE_FIRST;
    loop {
        let spare = keeps.then(|| tx.clone());
        let error = match inner.parts.records.commit(tx).await {
            Ok(_) => return Went::On,
            Err(error) => error,
        };
        let id = head.id;
        match (error, spare) {
            (CommitError::Conflict(conflict), _) => {
                tracing::debug!(run_id = %id, conflict = %conflict, "a turn met another change");
                return Went::Stale;
            }
            // Whoever works with the new schema, or after the store was resumed, takes the run over and looks
            // into its calls.
            (CommitError::Fenced | CommitError::Blocked(_), _) => return Went::Lost,
            (CommitError::Unavailable(_) | CommitError::Overloaded, Some(again)) => {
                let Some(held) = owner_after_pause(&inner, id, &mut pause).await else { return Went::Lost };
                tx = again;
                if owner.is_some_and(|owner| owner != held) {
                    rename_owner(&mut tx, id, held);
                }
            }
            (CommitError::Unavailable(_) | CommitError::Overloaded | CommitError::Unknown, _) => return Went::Stale,
            (error @ (CommitError::Invalid(_) | CommitError::Rejected { .. }), _) => {
                tracing::error!(run_id = %id, error = %error, "a turn was refused by the store");
                return Went::Unwritable;
            }
        }
    }
}

/// The lane through which a turn is tried again after a pause. None: the process ends, or nothing may be
/// written any more.
async fn owner_after_pause(inner: &Inner, run: Uuid, pause: &mut Duration) -> Option<Owner> {
    let mut stopping = inner.stopping();
    let claimed = async {
        loop {
            tokio::time::sleep(*pause).await;
            *pause = (*pause * 2).min(PAUSE_LAST);
            match inner.claimed_owner(run).await {
                Ok(owner) => return Some(owner),
                Err(CommitError::Unavailable(_) | CommitError::Overloaded) => {}
                Err(_) => return None,
            }
        }
    };
    tokio::select! {
        biased;
        _ = stopping.wait_for(|stop| *stop == Stop::Now) => None,
        owner = claimed => owner,
    }
}

/// Lets a turn name the lane through which it is written now: whoever takes that lane over finds the run, and
/// whoever has taken the lane from before leaves it alone.
fn rename_owner(tx: &mut Tx, run: Uuid, owner: Owner) {
    let cells = [("owner_lane", owner.lane), ("owner_epoch", owner.epoch)];
    for update in tx.updates.iter_mut().filter(|update| update.table == &RUNS && update.key == [run.into()]) {
        for (at, value) in cells.iter().filter_map(|(column, value)| Some((RUNS.position(column)?, *value))) {
            update.set.retain(|(set, _)| *set != at);
            update.set.push((at, value.into()));
        }
    }
}

/// The lane that the next turn is written through. While none is held the run waits: calls under way
/// go on and are taken in afterwards. None: the process ends first.
async fn owner_once_claimed(inner: Arc<Inner>, run: Uuid) -> Option<Owner> {
    let (mut stopping, mut pause) = (inner.stopping(), PAUSE_FIRST);
    let claimed = async {
        loop {
            if let Ok(owner) = inner.claimed_owner(run).await {
                return owner;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_LAST);
        }
    };
    tokio::select! {
        biased;
        _ = stopping.wait_for(|stop| *stop == Stop::Now) => None,
        owner = claimed => Some(owner),
    }
}

async fn stopped(stopping: &mut watch::Receiver<Stop>) {
    let _ = stopping.wait_for(|stop| *stop != Stop::No).await;
}
