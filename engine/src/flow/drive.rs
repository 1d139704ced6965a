//! Drives one run: decide, commit, perform, repeat.
//!
//! The task holds the run's state machine and its calls in flight. Calls continue while a turn is committed, and what
//! arrives meanwhile is decided together in the next turn. A turn that the store can't take now is retried while calls
//! depend on it. Any other failed commit makes the run in memory stale: it is discarded and loaded again, with its
//! calls if nobody else changed the run, or left to its new owner.

use super::commit_turn::{Went, commit, owner_once_claimed};
use super::entrance::Entrance;
use super::node::{Inner, Standing, Stop, holds_much};
use super::perform::execute_tool;
use super::{load, observe, spans};
use crate::error::EngineError;
use crate::flow::port::Cancel;
use crate::offload::Costly;
use crate::port::ReadError;
use chimera_core::flow::call::{Answer, Found};
use chimera_core::flow::run::{At, Call, Effect, Env, Event, Kept, Mode, Owner, Run, Turn, UnderWay};
use chimera_core::flow::tables::CACHE_ENTRIES;
use chimera_core::record::{Json, Scope, Select};
use chimera_core::time::Timestamp;
use chimera_core::tool::Reach;
use chimera_core::{json, limits};
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tracing::Instrument;
use uuid::Uuid;

/// A wake-up from elsewhere in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nudge {
    /// New signals may be in the store.
    Look,
    /// A slot may be free.
    Tick,
}

/// The state before a turn, in case it is discarded.
#[derive(Default)]
struct Before {
    /// The calls in flight; `None` if they can't be kept.
    calls: Option<UnderWay>,
    /// Their responses, and those of earlier turns that could not be stored.
    answers: Vec<Event>,
    /// Where something was in flight.
    busy: Vec<At>,
}

impl Before {
    fn of(run: &Run, events: &[Event]) -> Self {
        // A pure call is simply repeated.
        let is_kept = |event: &&Event| match event {
            Event::Answered { at, .. } => !run.is_pure_at(*at),
            Event::Unwritten { .. } => true,
            _ => false,
        };
        let answers = events.iter().filter(is_kept);
        Self { calls: run.under_way(), answers: answers.cloned().collect(), busy: run.busy_places() }
    }
}

pub(super) struct Drive {
    inner: Arc<Inner>,
    run: Run,
    nudges: mpsc::Receiver<Nudge>,
    standing: watch::Sender<Standing>,
    calls: FuturesUnordered<BoxFuture<'static, Event>>,
    cancels: BTreeMap<At, watch::Sender<bool>>,
    /// Responses that arrived while waiting for the store.
    answered: Vec<Event>,
    /// Calls with outside effects, whose responses must not be lost.
    outside: BTreeSet<Uuid>,
    /// Turns that could not be stored. Successful turns in between don't reset it: a run may have to wait for a slot or
    /// read the cache before it reaches the same turn again.
    unwritten: u32,
    /// Every call recorded as in flight belongs to this task.
    alone: bool,
    /// The stored owner before the last turn.
    owner: Option<Owner>,
    /// Consecutive discarded turns.
    stale: u32,
    /// There are more signals than one turn handles.
    told_more: bool,
    /// Since when it can only wait for a slot.
    waits_since: Option<Timestamp>,
    /// It is unloaded and waits for a slot in the store.
    waits_in_store: bool,
    /// It is so large that any operation may take long.
    costly: Costly,
}

impl Drive {
    pub(super) fn new(
        inner: Arc<Inner>,
        run: Run,
        nudges: mpsc::Receiver<Nudge>,
        standing: watch::Sender<Standing>,
        alone: bool,
        costly: Costly,
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
            costly,
        }
    }

    /// Continues a run whose turn was just committed. Most short runs have ended with it; only the others allocate the
    /// loop.
    pub(super) async fn go(mut self, turn: Turn) {
        let events = self.perform(&turn);
        if turn.parked {
            self.waits_in_store = turn.waits_for_slot;
            return self.leave();
        }
        Box::pin(self.drive(events)).await;
    }

    /// Resumes a run that was just loaded.
    pub(super) async fn take_up(mut self) {
        // A run that waited in the store goes back there if there is no slot.
        let waited = self.inner.gate().resume(self.run.head().id);
        self.waits_since = waited.then_some(self.run.head().created_at);
        let mut events = vec![Event::Begun { alone: self.alone }];
        events.extend(self.told().await);
        Box::pin(self.drive(events)).await;
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

    /// Stops driving the run. Signals that arrive at the last moment trigger another load.
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
            inner.wake_again(id);
        }
    }

    /// One turn: decide, commit, perform. `None`: the run is no longer driven here.
    async fn turn(&mut self, events: Vec<Event>) -> Option<Vec<Event>> {
        let id = self.run.head().id;
        let writes_through = match self.inner.owner(id) {
            Some(owner) => owner,
            None => self.meanwhile(owner_once_claimed(Arc::clone(&self.inner), id)).await?,
        };
        self.owner = self.run.owner();
        let before = Before::of(&self.run, &events);
        let mut granted = self.inner.gate().granted(id);
        let kept = self.kept(&events);
        let inner = Arc::clone(&self.inner);
        let place = inner.offload.place(&self.run.head().claimant(), self.run.may_take_long()).await;
        let decided = place.run(|| self.decide(events, writes_through));
        // A cached output is looked up before the slot is used.
        granted.retain(|at| !self.run.is_busy_at(*at));
        if decided.as_ref().is_ok_and(|turn| !turn.more) && !granted.is_empty() {
            let next = self.inner.gate().unused(id, &granted);
            self.inner.tick(next);
        }
        let mut turn = match decided {
            Ok(turn) => turn,
            Err(error) => {
                tracing::error!(run_id = %self.run.head().id, error = %error, "a turn could not be built");
                return self.unwritable(kept).await;
            }
        };
        if let Some(tx) = turn.tx.take() {
            let has_calls = !self.calls.is_empty() || !self.answered.is_empty();
            let (inner, head) = (Arc::clone(&self.inner), Arc::clone(self.run.head()));
            match self.meanwhile(commit(inner, head, tx, &mut turn, self.run.owner(), has_calls)).await {
                Went::On => self.stale = 0,
                Went::Stale => return self.reload(before).await,
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

    /// Waits for the store while calls in flight continue.
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

    /// The responses among events that can't be obtained again.
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

    /// Handles a turn that can't be stored. Once the calls in flight have ended, the run is loaded again and continues
    /// with their responses; from the second time on it only ends. If even that can't be stored, it is retried
    /// periodically, with the responses kept. `None`: the process ends first, or another node owns the run.
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
                () = tokio::time::sleep(limits::RUN_UNWRITABLE_PAUSE) => {}
            }
        }
        let mut events = vec![Event::Unwritten { answers, again: self.unwritten < 2 }];
        events.extend(self.reload(Before::default()).await?);
        Some(events)
    }

    fn decide(&mut self, events: Vec<Event>, owner: Owner) -> Result<Turn, EngineError> {
        let inner = Arc::clone(&self.inner);
        let parts = &inner.parts;
        let now = parts.clock.steady();
        let head = Arc::clone(self.run.head());
        let catalog = inner.workflows.running(&head.tenant);
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
        inner.weigh(&self.run);
        if holds_much(&self.run) {
            self.costly.set();
        }
        let waits = self.run.wants_slot() && !self.run.is_busy();
        self.waits_since = waits.then(|| self.waits_since.unwrap_or(now));
        Ok(turn)
    }

    /// Loads the run again after its state in memory became stale. Calls continue if they are still its own.
    async fn reload(&mut self, before: Before) -> Option<Vec<Event>> {
        let (inner, id) = (Arc::clone(&self.inner), self.run.head().id);
        let (known, tried) = (self.owner, self.run.owner());
        let Before { calls, answers, mut busy } = before;
        busy.extend(self.run.busy_places());
        if calls.is_none() {
            self.drop_calls();
        }
        self.stale += 1;
        let mut pause = (limits::STORE_RETRY_PAUSE_FIRST * self.stale).min(limits::STORE_RETRY_PAUSE_MAX);
        loop {
            if !inner.goes_on() && (self.calls.is_empty() || inner.is_over()) {
                return None;
            }
            self.meanwhile(tokio::time::sleep(pause)).await;
            pause = (pause * 2).min(limits::STORE_RETRY_PAUSE_MAX);
            let row = match self.meanwhile(load::run_row(&*inner.parts.records, id)).await {
                Ok(Some(row)) => row,
                Ok(None) | Err(EngineError::Read(ReadError::Schema(_))) => return None,
                Err(_) => continue,
            };
            let owner = row.get("owner_lane").as_int();
            if owner.is_some() && owner != inner.owner(id).map(|owner| owner.lane) && !inner.parts.alone {
                return None;
            }
            let costly = self.costly.clone();
            match self.meanwhile(load::load(&*inner.parts.records, &inner.workflows, row, &costly)).await {
                Ok(run) => self.run = run,
                Err(EngineError::Read(_)) => continue,
                Err(error) => {
                    tracing::error!(run_id = %id, error = %error, "a run could not be loaded");
                    return None;
                }
            }
            let stored = self.run.owner();
            // If another node owned the run meanwhile, its calls may still be in flight.
            self.alone &= stored.is_none() || stored == known || stored == tried || inner.parts.alone;
            let mut events = Vec::new();
            let begun = Event::Begun { alone: self.alone };
            if calls.is_some_and(|calls| self.run.keep_calls(calls)) {
                self.leave_slots(&busy);
                let (unwritten, answers): (Vec<_>, Vec<_>) =
                    answers.into_iter().partition(|event| matches!(event, Event::Unwritten { .. }));
                events.extend(unwritten.into_iter().chain([begun]).chain(answers));
                events.append(&mut self.answered);
            } else {
                self.drop_calls();
                events.push(begun);
            }
            events.extend(self.told().await);
            return Some(events);
        }
    }

    /// Drops the calls in flight and releases their slots.
    fn drop_calls(&mut self) {
        self.calls = FuturesUnordered::new();
        self.answered.clear();
        self.cancels.clear();
        self.outside.clear();
        let next = self.inner.gate().forget_run(self.run.head().id);
        self.inner.tick(next);
    }

    /// Releases the slots of positions where nothing is in flight.
    fn leave_slots(&self, places: &[At]) {
        for at in places.iter().filter(|at| !self.run.is_busy_at(**at)) {
            let next = self.inner.gate().leave(self.run.head().id, *at);
            self.inner.tick(next);
        }
    }

    /// Starts the effects of a turn; returns the events to decide at once.
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
        let (inner, head, costly) = (Arc::clone(&self.inner), Arc::clone(self.run.head()), self.costly.clone());
        self.calls.push(
            async move {
                let parts = &inner.parts;
                let traced = spans::OpenCall::begin(parts, &head, &call);
                let performed = execute_tool(&parts.registry, &*parts.clock, &head, &call, cancel);
                let answer: Answer = performed.instrument(traced.stand_in()).await;
                let took_ms = traced.end(&answer);
                observe::call(&parts.registry, &call, &answer, took_ms);
                costly.begin(is_large(&answer)).await;
                Event::Answered { at: call.at, call: call.id, answer, took_ms }
            }
            .boxed(),
        );
    }

    fn recall(&mut self, at: At, key: String) {
        let (inner, head, costly) = (Arc::clone(&self.inner), Arc::clone(self.run.head()), self.costly.clone());
        self.calls.push(
            async move {
                let select = Select::from(&CACHE_ENTRIES, Scope::Tenant(head.tenant.clone()))
                    .with("workflow_id", head.workflow.id.as_str())
                    .with("cache_key", key)
                    .take(1);
                // A cache read error counts as a miss.
                let row = inner.parts.records.read(select).await.ok().and_then(|page| page.rows.into_iter().next());
                let now = inner.parts.clock.steady();
                let row = row.filter(|row| row.get("expires_at").as_time().is_none_or(|end| end > now));
                costly.begin(row.as_ref().is_some_and(load::is_large)).await;
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

    /// Waits for the next event.
    async fn wait(&mut self, stopping: &mut watch::Receiver<Stop>) -> Vec<Event> {
        if let Some(Some(event)) = self.calls.next().now_or_never() {
            return self.gather(event);
        }
        if !self.inner.goes_on() {
            return if self.calls.is_empty() { Vec::new() } else { self.rest_of_calls(stopping).await };
        }
        let mut due = self.run.next_deadline().map(|due| until(due, self.inner.parts.clock.steady()));
        if self.run.wants_slot() {
            // A freed slot is offered to one run; if that run can't use it, the others must find it by polling.
            due = Some(due.map_or(limits::SLOT_ASK_INTERVAL, |due| due.min(limits::SLOT_ASK_INTERVAL)));
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

    /// Waits for a call in flight, and nothing else.
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

    /// The pending signals of the run.
    async fn told(&mut self) -> Vec<Event> {
        let inner = Arc::clone(&self.inner);
        match load::signals(&*inner.parts.records, self.run.head().id).await {
            Ok((signals, more)) => {
                self.told_more = more;
                signals.into_iter().map(Event::Signalled).collect()
            }
            // They stay in the store; the next look finds them.
            Err(_) => Vec::new(),
        }
    }

    /// Collects all calls that have ended, to decide them in one turn.
    fn gather(&mut self, first: Event) -> Vec<Event> {
        let mut events = vec![first];
        while let Some(Some(event)) = self.calls.next().now_or_never() {
            events.push(event);
        }
        events
    }
}

/// Whether handling a response may take a lot of CPU.
fn is_large(answer: &Answer) -> bool {
    let large = |value: &Value| json::is_larger_than(value, limits::JSON_BYTES_ASIDE);
    match answer {
        Answer::Output(output) | Answer::Found(Found::Happened(output)) => large(output),
        Answer::Failed(error) => error.body.details.values().any(large),
        Answer::Found(Found::Never | Found::Unknowable) => false,
    }
}

fn until(due: Timestamp, now: Timestamp) -> Duration {
    u64::try_from(due.micros() - now.micros()).map_or(Duration::ZERO, Duration::from_micros)
}

async fn stopped(stopping: &mut watch::Receiver<Stop>) {
    let _ = stopping.wait_for(|stop| *stop != Stop::No).await;
}
