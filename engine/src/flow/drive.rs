//! Drives one run: decide, commit, perform, repeat.
//!
//! The task holds the run's state machine and its calls in flight. Calls continue while a turn is committed, and what
//! arrives meanwhile is decided together in the next turn. A turn that the store can't take now is retried while calls
//! depend on it. Any other failed commit makes the run in memory stale: it is discarded and loaded again, with its
//! calls if nobody else changed the run, or left to its new owner.
//!
//! The first turn is decided and committed in `first_turn`; the driver continues from there.

use super::call_tasks::CallTasks;
use super::commit_turn::{CommitOutcome, RunAfterTurn, commit, owner_once_claimed};
use super::definitions::PinnedSpecs;
use super::engine::{EngineState, Shutdown, is_heavy};
use super::perform::execute_tool;
use super::progress::RunProgress;
use super::turn_gate::TurnGate;
use super::work::wake_workers;
use super::{events, load, observe, reservations, spans};
use crate::error::EngineError;
use crate::offload::CostFlag;
use crate::port::ReadError;
use crate::rows;
use chimera_core::flow::call::{CallOutcome, CheckResult};
use chimera_core::flow::reservation::Limit;
use chimera_core::flow::run::{
    AfterRefusal, Call, CallMode, CallsInFlight, Effect, Env, Event, EventQuery, LaneOwner, ReceivedAnswer, Run,
    RunPlace, Turn,
};
use chimera_core::flow::tables::{CacheEntryRow, RunBrief, cache_entries};
use chimera_core::record::{Scope, StoredRow};
use chimera_core::time::Timestamp;
use chimera_core::tool::EffectKind;
use chimera_core::{json, limits};
use futures::FutureExt;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tracing::Instrument;

/// A wake-up from elsewhere in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WakeUp {
    /// New signals may be in the store.
    CheckSignals,
    /// A slot may be free.
    Tick,
}

/// The state before a turn, in case it is discarded.
#[derive(Default)]
struct TurnSnapshot {
    /// The calls in flight; `None` if they can't be kept.
    calls: Option<CallsInFlight>,
    /// Their responses, and those of earlier turns that could not be stored.
    answers: Vec<Event>,
    /// Where something was in flight.
    busy: Vec<RunPlace>,
}

impl TurnSnapshot {
    fn of(run: &Run, events: &[Event]) -> Self {
        // A pure call is simply repeated.
        let is_kept = |event: &&Event| match event {
            Event::CallAnswered { at, .. } => !run.is_pure_at(*at),
            Event::TurnRefused { .. } => true,
            _ => false,
        };
        let answers = events.iter().filter(is_kept);
        Self { calls: run.calls_in_flight(), answers: answers.cloned().collect(), busy: run.places_in_flight() }
    }
}

/// How the rest of the process and a driven run reach each other.
pub(super) struct RunChannels {
    pub(super) nudges: mpsc::Receiver<WakeUp>,
    pub(super) progress: watch::Sender<RunProgress>,
}

pub(super) struct RunDriver {
    inner: Arc<EngineState>,
    /// Boxed, because a driver is moved several times.
    run: Box<Run>,
    channels: RunChannels,
    calls: CallTasks,
    /// Turns that could not be stored. Successful turns in between don't reset it: a run may have to wait for a slot or
    /// read the cache before it reaches the same turn again.
    unwritten: u32,
    /// Every call recorded as in flight belongs to this task.
    owns_all_calls: bool,
    /// The stored owner before the last turn.
    owner: Option<LaneOwner>,
    /// Consecutive discarded turns.
    stale: u32,
    /// There are more signals than one turn handles.
    more_signals: bool,
    /// Since when it can only wait for a slot.
    waits_since: Option<Timestamp>,
    /// It is unloaded and waits for a slot in the store.
    waits_in_store: bool,
    /// It is so large that any operation may take long.
    costly: CostFlag,
}

impl RunDriver {
    pub(super) fn new(
        inner: Arc<EngineState>,
        run: Box<Run>,
        channels: RunChannels,
        owns_all_calls: bool,
        costly: CostFlag,
    ) -> Self {
        let owner = run.owner();
        Self {
            inner,
            run,
            channels,
            calls: CallTasks::default(),
            unwritten: 0,
            owns_all_calls,
            owner,
            stale: 0,
            more_signals: false,
            waits_since: None,
            waits_in_store: false,
            costly,
        }
    }

    /// Continues a run whose turn was just committed. Most short runs have ended with it; only the others allocate the
    /// loop.
    pub(super) async fn continue_from(mut self, turn: Turn) {
        let events = self.perform(&turn);
        if turn.parked {
            self.waits_in_store = turn.waits_for_slot;
            return self.stop();
        }
        Box::pin(self.drive(events)).await;
    }

    /// Resumes a run that was just loaded.
    pub(super) async fn resume(mut self) {
        // A run that waited in the store goes back there if there is no slot.
        let waited = self.inner.call_slots().resume(self.run.head().id);
        self.waits_since = waited.then_some(self.run.head().created_at);
        let mut events = vec![Event::Claimed { owns_all_calls: self.owns_all_calls }];
        events.extend(self.pending_signals().await);
        Box::pin(self.drive(events)).await;
    }

    async fn drive(mut self, mut events: Vec<Event>) {
        let mut stopping = self.inner.stopping();
        loop {
            if events.is_empty() {
                events = self.wait(&mut stopping).await;
            }
            let over = match *stopping.borrow() {
                Shutdown::Running => false,
                Shutdown::Drain => events.is_empty() && self.calls.is_empty(),
                Shutdown::Now => true,
            };
            if over {
                break;
            }
            match self.turn(std::mem::take(&mut events)).await {
                Some(next) => events = next,
                None => break,
            }
        }
        self.stop();
    }

    /// Stops driving the run. Signals that arrive at the last moment trigger another load.
    fn stop(self) {
        let Self { inner, run, channels: RunChannels { mut nudges, progress }, more_signals: mut has_signals, .. } =
            self;
        let id = run.head().id;
        if self.waits_in_store {
            inner.unload(id, progress);
        } else {
            inner.release(id);
        }
        while let Ok(nudge) = nudges.try_recv() {
            has_signals |= nudge == WakeUp::CheckSignals;
        }
        if has_signals && inner.is_running() {
            inner.wake_again(id);
        }
    }

    /// One turn: decide, commit, perform. `None`: the run is no longer driven here.
    async fn turn(&mut self, events: Vec<Event>) -> Option<Vec<Event>> {
        let id = self.run.head().id;
        let writes_through = match self.inner.owner(id) {
            Some(owner) => owner,
            None => self.calls.run_while(owner_once_claimed(Arc::clone(&self.inner), id)).await?,
        };
        self.owner = self.run.owner();
        let before = TurnSnapshot::of(&self.run, &events);
        let mut granted = self.inner.call_slots().granted(id);
        let kept = self.unrepeatable_answers(&events);
        let inner = Arc::clone(&self.inner);
        let work_slot = inner.offload.acquire(&self.run.head().claimant(), self.run.may_take_long()).await;
        let decided = work_slot.run(|| self.decide(events, writes_through));
        // A cached output is looked up before the slot is used.
        granted.retain(|at| !self.run.is_busy_at(*at));
        if decided.as_ref().is_ok_and(|turn| !turn.more) && !granted.is_empty() {
            let next = self.inner.call_slots().release_unused(id, &granted);
            self.inner.wake_for_slots(next);
        }
        let mut turn = match decided {
            Ok(turn) => turn,
            Err(error) => {
                tracing::error!(run_id = %self.run.head().id, error = %error, "a turn could not be built");
                return self.handle_unwritable(kept).await;
            }
        };
        if turn.tx.is_some() {
            let head = Arc::clone(self.run.head());
            let left = RunAfterTurn { head, owner: self.run.owner(), has_calls: self.calls.has_any() };
            match self.calls.run_while(commit(Arc::clone(&self.inner), left, &mut turn)).await {
                CommitOutcome::Committed => self.stale = 0,
                CommitOutcome::Stale => return self.reload(before, None).await,
                CommitOutcome::Contended => {
                    let pause = reservations::retry_pause(self.run.head().id, self.stale);
                    return self.reload(before, Some(pause)).await;
                }
                CommitOutcome::OwnershipLost => return None,
                CommitOutcome::Unwritable => return self.handle_unwritable(kept).await,
            }
        }
        for ReceivedAnswer { call, .. } in kept {
            self.calls.settle(call);
        }
        let mut events = self.perform(&turn);
        events.append(&mut self.calls.take_answered());
        self.publish_progress(&turn);
        if turn.parked {
            self.waits_in_store = turn.waits_for_slot;
            return None;
        }
        if std::mem::take(&mut self.more_signals) {
            events.extend(self.pending_signals().await);
        }
        Some(events)
    }

    /// The responses among events that can't be obtained again.
    fn unrepeatable_answers(&self, events: &[Event]) -> Vec<ReceivedAnswer> {
        let mut kept = Vec::new();
        for event in events {
            match event {
                Event::CallAnswered { at, call, answer, took_ms } if self.calls.must_keep(*call) => {
                    let (answer, in_doubt) = (answer.clone(), self.run.is_in_doubt(*at));
                    kept.push(ReceivedAnswer { at: *at, call: *call, answer, took_ms: *took_ms, in_doubt });
                }
                Event::TurnRefused { answers, .. } => kept.extend_from_slice(answers),
                _ => {}
            }
        }
        kept
    }

    /// Handles a turn that can't be stored. Once the calls in flight have ended, the run is loaded again and continues
    /// with their responses; from the second time on it only ends. If even that can't be stored, it is retried
    /// periodically, with the responses kept. `None`: the process ends first, or another node owns the run.
    async fn handle_unwritable(&mut self, mut answers: Vec<ReceivedAnswer>) -> Option<Vec<Event>> {
        self.unwritten += 1;
        let mut stopping = self.inner.stopping();
        let answered = self.calls.take_answered();
        answers.extend(self.unrepeatable_answers(&answered));
        while !self.calls.is_empty() {
            let ended = self.calls.next_or_stop(&mut stopping).await;
            if ended.is_empty() {
                return None;
            }
            answers.extend(self.unrepeatable_answers(&ended));
        }
        self.calls.settle_all();
        if self.unwritten > 2 {
            tokio::select! {
                biased;
                () = wait_for_stop(&mut stopping) => return None,
                () = tokio::time::sleep(limits::RUN_WRITE_FAILED_PAUSE) => {}
            }
        }
        let then = match self.unwritten {
            0 | 1 => AfterRefusal::Retry,
            2 => AfterRefusal::End,
            _ => AfterRefusal::EndWithoutSignals,
        };
        let mut events = vec![Event::TurnRefused { answers, then }];
        events.extend(self.reload(TurnSnapshot::default(), None).await?);
        Some(events)
    }

    fn decide(&mut self, events: Vec<Event>, owner: LaneOwner) -> Result<Turn, EngineError> {
        let inner = Arc::clone(&self.inner);
        let parts = &inner.parts;
        let now = parts.clock.steady();
        let head = Arc::clone(self.run.head());
        // A patch may name a tool that the run already uses: it means the same definition.
        let pinned = PinnedSpecs::of_graph(&head.pins, self.run.graph());
        let catalog = inner.workflows.running(&head.tenant).pinned(&pinned);
        let has_waited = self.waits_since.is_some_and(|since| since.plus_seconds(limits::PARK_SECONDS_MIN) <= now);
        let mut env = Env {
            now,
            ids: &mut || parts.random.row_id(now),
            gate: &mut TurnGate { inner: &inner, tenant: &head.tenant, has_waited },
            policy: &*parts.policy,
            catalog: &catalog,
            projection: &*parts.projection,
            jobs: &*parts.jobs,
            windows: &inner.joined,
            owner,
        };
        let turn = self.run.step(events, &mut env)?;
        inner.record_memory(&self.run);
        if is_heavy(&self.run) {
            self.costly.set();
        }
        let waits = self.run.wants_slot() && !self.run.is_busy();
        self.waits_since = waits.then(|| self.waits_since.unwrap_or(now));
        Ok(turn)
    }

    /// Loads the run again after its state in memory became stale. Calls continue if they are still its own. The pause is
    /// the usual one unless one is given.
    async fn reload(&mut self, before: TurnSnapshot, pause: Option<Duration>) -> Option<Vec<Event>> {
        let (inner, id) = (Arc::clone(&self.inner), self.run.head().id);
        let (known, tried) = (self.owner, self.run.owner());
        let TurnSnapshot { calls, answers, mut busy } = before;
        busy.extend(self.run.places_in_flight());
        if calls.is_none() {
            self.drop_calls();
        }
        self.stale += 1;
        let usual = (limits::STORE_RETRY_PAUSE_FIRST * self.stale).min(limits::STORE_RETRY_PAUSE_MAX);
        let mut pause = pause.unwrap_or(usual);
        loop {
            if !inner.is_running() && (self.calls.is_empty() || inner.is_stopped()) {
                return None;
            }
            self.calls.run_while(tokio::time::sleep(pause)).await;
            pause = (pause * 2).clamp(limits::STORE_RETRY_PAUSE_FIRST, limits::STORE_RETRY_PAUSE_MAX);
            let row = match self.calls.run_while(load::run_row(&*inner.parts.records, id)).await {
                Ok(Some(row)) => row,
                Ok(None) | Err(EngineError::Read(ReadError::Schema(_))) => return None,
                Err(_) => continue,
            };
            let owner = match RunBrief::peek(&row) {
                Ok(row) => row.owner_lane,
                Err(error) => {
                    tracing::error!(run_id = %id, %error, "a run could not be loaded");
                    return None;
                }
            };
            if owner.is_some() && owner != inner.owner(id).map(|owner| owner.lane) && !inner.parts.alone {
                return None;
            }
            let costly = self.costly.clone();
            match self.calls.run_while(load::load(&*inner.parts.records, &inner.workflows, row, &costly)).await {
                Ok(run) => *self.run = run,
                Err(EngineError::Read(_)) => continue,
                Err(error) => {
                    tracing::error!(run_id = %id, error = %error, "a run could not be loaded");
                    return None;
                }
            }
            let stored = self.run.owner();
            // If another node owned the run meanwhile, its calls may still be in flight.
            self.owns_all_calls &= stored.is_none() || stored == known || stored == tried || inner.parts.alone;
            let mut events = Vec::new();
            let begun = Event::Claimed { owns_all_calls: self.owns_all_calls };
            if calls.is_some_and(|calls| self.run.adopt_calls(calls)) {
                self.leave_slots(&busy);
                let (unwritten, answers): (Vec<_>, Vec<_>) =
                    answers.into_iter().partition(|event| matches!(event, Event::TurnRefused { .. }));
                events.extend(unwritten.into_iter().chain([begun]).chain(answers));
                events.append(&mut self.calls.take_answered());
            } else {
                self.drop_calls();
                events.push(begun);
            }
            events.extend(self.pending_signals().await);
            return Some(events);
        }
    }

    /// Drops the calls in flight and releases their slots.
    fn drop_calls(&mut self) {
        self.calls = CallTasks::default();
        let next = self.inner.call_slots().drop_run(self.run.head().id);
        self.inner.wake_for_slots(next);
    }

    /// Releases the slots of positions where nothing is in flight.
    fn leave_slots(&self, places: &[RunPlace]) {
        for at in places.iter().filter(|at| !self.run.is_busy_at(**at)) {
            let next = self.inner.call_slots().release(self.run.head().id, *at);
            self.inner.wake_for_slots(next);
        }
    }

    /// Starts the effects of a turn; returns the events to decide at once.
    fn perform(&mut self, turn: &Turn) -> Vec<Event> {
        spans::report_turn(&self.inner, &self.run, turn);
        observe::turn(&self.run, turn);
        for effect in &turn.effects {
            match effect {
                Effect::Call(call) => self.call(call.clone()),
                Effect::Cancel(at) => self.calls.cancel(*at),
                Effect::LookUpCache { at, key } => self.look_up_cache(*at, key.clone()),
                Effect::LookUpEvent(query) => self.look_up_event(query.clone()),
                Effect::Consult { at, limits } => self.consult(*at, limits.clone()),
                Effect::Wake(run) => self.inner.wake(*run),
                Effect::Notify => self.inner.messages.notify_one(),
                Effect::WorkQueued(queue) => wake_workers(&self.inner, &self.run.head().tenant, queue),
                Effect::Release(at) => {
                    self.calls.release(*at);
                    let next = self.inner.call_slots().release(self.run.head().id, *at);
                    self.inner.wake_for_slots(next);
                }
            }
        }
        if !turn.asked.is_empty() || !turn.unknown_outcomes.is_empty() {
            self.inner.messages.notify_one();
        }
        if turn.more { vec![Event::Tick] } else { Vec::new() }
    }

    fn call(&mut self, call: Call) {
        if call.tool.effect != EffectKind::Pure && matches!(call.mode, CallMode::Execute | CallMode::Undo { .. }) {
            self.calls.keep_answer(call.id);
        }
        let cancel = self.calls.register(call.at);
        let (inner, head, costly) = (Arc::clone(&self.inner), Arc::clone(self.run.head()), self.costly.clone());
        self.calls.push(
            async move {
                let parts = &inner.parts;
                let traced = spans::CallSpan::begin(parts, &head, &call);
                let performed = execute_tool(parts, &head, &call, cancel);
                let answer: CallOutcome = performed.instrument(traced.placeholder()).await;
                let took_ms = traced.end(&answer);
                observe::call(&call, &answer, took_ms);
                costly.mark_costly(is_large(&answer)).await;
                Event::CallAnswered { at: call.at, call: call.id, answer, took_ms }
            }
            .boxed(),
        );
    }

    fn look_up_cache(&mut self, at: RunPlace, key: String) {
        let (inner, head, costly) = (Arc::clone(&self.inner), Arc::clone(self.run.head()), self.costly.clone());
        self.calls.push(
            async move {
                let select = CacheEntryRow::select(Scope::Tenant(head.tenant.clone()))
                    .with(cache_entries::workflow_id, head.workflow.id.as_str())
                    .with(cache_entries::cache_key, key)
                    .take(1);
                // A cache read error counts as a miss.
                let rows = inner.parts.records.read(select).await.map(|page| page.rows).unwrap_or_default();
                let row = rows::decodable::<CacheEntryRow>(rows).next();
                costly.mark_costly(row.as_ref().is_some_and(load::is_large)).await;
                let now = inner.parts.clock.steady();
                let row = row.filter(|row| row.expires_at.is_none_or(|end| end > now));
                let hit = row.and_then(|row| row.output.value().inspect_err(rows::log_skipped).ok());
                Event::CacheLookedUp { at, hit }
            }
            .boxed(),
        );
    }

    fn look_up_event(&self, query: EventQuery) {
        let (inner, head) = (Arc::clone(&self.inner), Arc::clone(self.run.head()));
        self.calls.push(
            async move {
                let found = events::lookup::look_up(&inner, &head, &query).await;
                Event::EventLookedUp { at: query.at, last: query.last, found }
            }
            .boxed(),
        );
    }

    fn consult(&mut self, at: RunPlace, limits: Vec<Limit>) {
        let (inner, head) = (Arc::clone(&self.inner), Arc::clone(self.run.head()));
        self.calls.push(
            async move {
                let facts = reservations::consult(&inner, &head.tenant, &limits).await;
                Event::Consulted { at, facts }
            }
            .boxed(),
        );
    }

    fn publish_progress(&self, turn: &Turn) {
        if turn.status.is_some() || turn.parked || turn.waits_for_person {
            let progress = RunProgress::of(&self.run, turn.is_resting());
            self.channels.progress.send_replace(progress);
        }
    }

    /// Waits for the next event.
    async fn wait(&mut self, stopping: &mut watch::Receiver<Shutdown>) -> Vec<Event> {
        let ended = self.calls.take_ended();
        if !ended.is_empty() {
            return ended;
        }
        if !self.inner.is_running() {
            return if self.calls.is_empty() { Vec::new() } else { self.calls.next_or_stop(stopping).await };
        }
        let mut due = self.run.next_deadline().map(|due| duration_until(due, self.inner.parts.clock.steady()));
        if self.run.wants_slot() {
            // A freed slot is offered to one run; if that run can't use it, the others must find it by polling.
            due = Some(due.map_or(limits::SLOT_RETRY_INTERVAL, |due| due.min(limits::SLOT_RETRY_INTERVAL)));
        }
        let sleep = async {
            match due {
                Some(due) => tokio::time::sleep(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            Some(ended) = self.calls.next() => ended,
            () = wait_for_stop(stopping) => Vec::new(),
            nudge = self.channels.nudges.recv() => match nudge {
                Some(WakeUp::CheckSignals) => self.check_signals().await,
                _ => vec![Event::Tick],
            },
            () = sleep => vec![Event::Tick],
        }
    }

    async fn check_signals(&mut self) -> Vec<Event> {
        let mut events = self.pending_signals().await;
        events.push(Event::Tick);
        events
    }

    /// The pending signals of the run.
    async fn pending_signals(&mut self) -> Vec<Event> {
        let inner = Arc::clone(&self.inner);
        match load::signals(&*inner.parts.records, self.run.head().id).await {
            Ok((signals, more)) => {
                self.more_signals = more;
                signals.into_iter().map(Event::Signalled).collect()
            }
            // They stay in the store; the next look finds them.
            Err(_) => Vec::new(),
        }
    }
}

/// Whether handling a response may take a lot of CPU.
fn is_large(answer: &CallOutcome) -> bool {
    let large = |value: &Value| json::is_larger_than(value, limits::JSON_INLINE_BYTES_MAX);
    match answer {
        CallOutcome::Output(output) | CallOutcome::Checked(CheckResult::Happened(output)) => large(output),
        CallOutcome::Failed(error) => error.body.details.values().any(large),
        CallOutcome::Checked(CheckResult::DidNotHappen | CheckResult::Unknown) => false,
    }
}

fn duration_until(due: Timestamp, now: Timestamp) -> Duration {
    u64::try_from(due.micros() - now.micros()).map_or(Duration::ZERO, Duration::from_micros)
}

async fn wait_for_stop(stopping: &mut watch::Receiver<Shutdown>) {
    let _ = stopping.wait_for(|stop| *stop != Shutdown::Running).await;
}
