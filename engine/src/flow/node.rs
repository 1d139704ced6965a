//! The flow engine of one process: which runs it drives, and how others reach them.
//!
//! A run is driven by one task, in `drive`. This file starts such tasks, tells them that there is
//! something to look at, and keeps what they share. The store is the truth about who owns a run;
//! what stands here is only what this process works on right now.

use super::drive::{Drive, Nudge};
use super::gate::{Slots, Turnstile};
use super::memory::Memory;
use super::places::{Driven, Full, Places};
use super::{Asking, Registry, Workflows, load, spans};
use crate::error::EngineError;
use crate::flow::port::Notifier;
use crate::offload::{Costly, Offload, Place};
use crate::port::{Bus, Clock, CommitError, Hold, Outage, Random, Records, Span, Spans, Unavailable};
use crate::pulse::Pulse;
use bytes::Bytes;
use chimera_core::access::Claimant;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::policy::{Action, Policy, PolicyVerdict};
use chimera_core::flow::run::{Head, Owner, Run, RunStatus, Turn};
use chimera_core::record::{Row, Tx};
use chimera_core::{json, limits};
use serde_json::Value;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tracing::Instrument;
use uuid::Uuid;

/// The topic on which runs that were told something are named.
pub(super) const TOPIC: &str = "flow.runs";

/// What a flow engine is made of.
#[derive(Clone)]
pub struct Parts {
    /// Where everything is kept.
    pub records: Arc<dyn Records>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Where ids come from.
    pub random: Arc<dyn Random>,
    /// How other processes are told to look.
    pub bus: Arc<dyn Bus>,
    /// What can be called.
    pub registry: Arc<Registry>,
    /// What the rules say.
    pub policy: Arc<dyn Policy>,
    /// Who tells people and systems how runs ended, and that they wait.
    pub notifier: Arc<dyn Notifier>,
    /// Who hears what runs did, as spans.
    pub spans: Arc<dyn Spans>,
    /// How people are asked to decide.
    pub asking: Asking,
    /// How many calls may be under way.
    pub slots: Slots,
    /// Nobody else can be writing to this store: it is a file that this process has locked.
    pub alone: bool,
}

/// The flow engine of one process.
#[derive(Clone)]
pub struct Flow {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) parts: Parts,
    pub(super) workflows: Workflows,
    pub(super) gate: Mutex<Turnstile>,
    pub(super) driven: Driven,
    memory: Mutex<Memory>,
    /// Rings when a message to somebody waits to be sent.
    pub(super) messages: Notify,
    stopping: watch::Sender<Stop>,
    /// Where turns are decided that may take long.
    pub(super) offload: Arc<Offload>,
    /// When runs were last looked after.
    pub(super) pulse: Pulse,
}

/// Whether an engine goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stop {
    /// It does.
    No,
    /// It begins nothing more and waits for what is under way.
    Drain,
    /// It is over.
    Now,
}

/// A run on its way into the store.
pub(super) struct Launched {
    pub(super) standing: watch::Receiver<Standing>,
    /// Whether it has arrived.
    pub(super) durable: oneshot::Receiver<Result<(), CommitError>>,
}

/// Where a run stands, for whoever waits for it in this process.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// Its status.
    pub status: RunStatus,
    /// Nothing more happens before somebody does something.
    pub rests: bool,
    /// What came of it, once it has ended.
    pub ended: Option<Arc<Ended>>,
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// What it gave.
    pub result: Option<Value>,
    /// Why it failed or was stopped.
    pub error: Option<ErrorBody>,
}

impl Standing {
    pub(super) fn of(run: &Run, rests: bool) -> Self {
        let status = run.status();
        let ended = || Arc::new(Ended { result: run.result().cloned(), error: run.failure().cloned() });
        Self { status, rests, ended: status.is_final().then(ended) }
    }
}

impl Flow {
    /// An engine that drives nothing yet.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        Self::bounded(parts, Places::default())
    }

    /// An engine that drives at most so many runs at a time.
    #[must_use]
    pub fn bounded(parts: Parts, places: Places) -> Self {
        let workflows = Workflows::new(
            Arc::clone(&parts.records),
            Arc::clone(&parts.clock),
            Arc::clone(&parts.random),
            Arc::clone(&parts.registry),
        );
        let offload = Arc::clone(&workflows.offload);
        let gate = Mutex::new(Turnstile::new(parts.slots.clone()));
        let pulse = Pulse::begin(parts.clock.steady());
        let inner = Inner {
            parts,
            workflows,
            gate,
            driven: Driven::new(places),
            memory: Mutex::new(Memory::new(places.memory_bytes)),
            messages: Notify::new(),
            stopping: watch::Sender::new(Stop::No),
            offload,
            pulse,
        };
        Self { inner: Arc::new(inner) }
    }

    /// The workflows.
    #[must_use]
    pub fn workflows(&self) -> &Workflows {
        &self.inner.workflows
    }

    /// The tools.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.inner.parts.registry
    }

    /// What the policy says about a call that might be made.
    #[must_use]
    pub fn judge(&self, action: &Action<'_>) -> PolicyVerdict {
        self.inner.parts.policy.judge(action)
    }

    /// Why nothing may be changed or driven now, if so.
    #[must_use]
    pub fn hold(&self) -> Option<Hold> {
        self.inner.parts.records.hold()
    }

    /// A place for work of a request that may keep a processor busy, where it holds up nobody. Refused if too much of
    /// the same caller waits already.
    pub(crate) async fn place_to_work(&self, who: &Claimant, may_take_long: bool) -> Result<Place, EngineError> {
        self.inner.offload.admit(who, may_take_long)?;
        Ok(self.inner.offload.place(who, may_take_long).await)
    }

    /// Goes through work of a request that waits in between, where it holds up nobody if it may keep a processor busy.
    /// Refused, with nothing done, if too much of the same caller waits already.
    pub async fn aside<T>(
        &self,
        who: &Claimant,
        may_take_long: bool,
        work: impl Future<Output = T>,
    ) -> Result<T, EngineError> {
        self.inner.offload.admit(who, may_take_long)?;
        Ok(self.inner.offload.aside(who, may_take_long, work).await)
    }

    /// What damage of the store keeps anything new from being begun, if so.
    #[must_use]
    pub fn damage(&self) -> Option<Unavailable> {
        self.inner.parts.records.damage()
    }

    /// When runs were last looked after.
    #[must_use]
    pub fn pulse(&self) -> &Pulse {
        &self.inner.pulse
    }

    /// How many runs this process drives.
    #[must_use]
    pub fn active(&self) -> usize {
        self.inner.driven.len()
    }

    /// How much memory the values of the runs take that this process drives, roughly.
    #[must_use]
    pub fn memory_held(&self) -> usize {
        self.inner.memory().taken()
    }

    /// Whether it begins nothing more.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        !self.inner.goes_on()
    }

    /// How many calls of tools are under way.
    #[must_use]
    pub fn calls_under_way(&self) -> usize {
        self.inner.gate().taken()
    }

    /// How many calls wait for a slot, as far as this process remembers them.
    #[must_use]
    pub fn calls_waiting(&self) -> usize {
        self.inner.gate().waiting()
    }

    /// Begins nothing more: calls that are under way may end and be written down, and a run without
    /// any is driven no further.
    pub fn drain(&self) {
        self.inner.stopping.send_if_modified(|stop| std::mem::replace(stop, Stop::Drain.max(*stop)) == Stop::No);
        self.inner.driven.unwatch();
    }

    /// Lets every run finish the turn that it is in and drives none any further.
    pub fn stop(&self) {
        self.inner.stopping.send_replace(Stop::Now);
        self.inner.driven.unwatch();
    }

    /// Waits until a run that this process drives has ended or rests. None: it drives no such run.
    pub async fn rest(&self, run: Uuid) -> Option<Standing> {
        let mut standing = self.inner.driven.standing(run)?;
        let rested = standing.wait_for(|standing| standing.rests).await.map(|standing| standing.clone());
        let last = standing.borrow().clone();
        Some(rested.unwrap_or(last))
    }
}

/// Whether the turns of a run may keep a processor busy because it holds much.
pub(super) fn holds_much(run: &Run) -> bool {
    run.memory_bytes() >= limits::RUN_MEMORY_BYTES_COUNTED
        || json::is_larger_than(&run.head().inputs, limits::JSON_BYTES_ASIDE)
}

impl Inner {
    pub(super) fn gate(&self) -> MutexGuard<'_, Turnstile> {
        let mut gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        gate.share(self.parts.registry.is_shared());
        gate
    }

    pub(super) fn memory(&self) -> MutexGuard<'_, Memory> {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.share(self.parts.registry.is_shared());
        memory
    }

    /// Counts what a run holds that is driven here.
    pub(super) fn weigh(&self, run: &Run) {
        self.memory().weigh(run.head().id, &run.head().tenant, run.memory_bytes());
    }

    /// Whether another run can be driven, of one tenant or another.
    pub(super) fn has_room(&self) -> bool {
        !self.driven.is_full()
    }

    /// Whether another run of this tenant can be driven.
    pub(super) fn has_room_for(&self, tenant: &str) -> bool {
        self.full_for(tenant).is_none() && self.memory().has_room_for(tenant)
    }

    fn full_for(&self, tenant: &str) -> Option<Full> {
        self.driven.full_for(tenant, self.parts.registry.is_shared())
    }

    /// Refuses a run for which there is no place.
    pub(super) fn check_room_for(&self, tenant: &str) -> Result<(), EngineError> {
        let crowded = || self.memory().is_crowded(tenant).then_some(Full::Memory);
        let Some(full) = self.full_for(tenant).or_else(crowded) else { return Ok(()) };
        let body = |message: String| ErrorBody::new(Code::Overloaded, message).retry_after(1);
        let body = match full {
            Full::Process { runs } => {
                body(format!("{runs} runs are under way, as many as may be; try again when some have ended"))
            }
            Full::Memory => {
                let message =
                    format!("as many runs of tenant {tenant} wait for memory as may; try again when some have ended");
                body(message).with("tenant", tenant)
            }
            Full::Tenant { runs } => {
                let message = format!(
                    "{runs} runs of tenant {tenant} are under way, as many as may be; try again when some have ended"
                );
                body(message).with("tenant", tenant)
            }
        };
        Err(EngineError::Refused(Box::new(body)))
    }

    /// How many runs can be driven at a time.
    pub(super) const fn runs_max(&self) -> usize {
        self.driven.places().total
    }

    pub(super) fn is_active(&self, run: Uuid) -> bool {
        self.driven.contains(run)
    }

    pub(super) fn stopping(&self) -> watch::Receiver<Stop> {
        self.stopping.subscribe()
    }

    /// Whether anything new may begin.
    pub(super) fn goes_on(&self) -> bool {
        *self.stopping.borrow() == Stop::No
    }

    /// Whether nothing goes on any more, not even what is under way.
    pub(super) fn is_over(&self) -> bool {
        *self.stopping.borrow() == Stop::Now
    }

    /// Commits the first turn of a run and drives it. The run has its place here before it is in
    /// the store, so that nobody in this process takes it for an orphan; and it goes on even if
    /// whoever asked for it has stopped waiting. Calls that were made for it already are told then.
    pub(super) fn launch(self: &Arc<Self>, run: Run, turn: Turn, tx: Tx, made: Vec<Span>) -> Launched {
        let (inbox, nudges) = mpsc::channel(limits::RUN_INBOX_MAX);
        let first = Standing::of(&run, turn.parked && !turn.waits_for_slot);
        let (told, durable) = oneshot::channel();
        let id = run.head().id;
        let entered = self.driven.enter(id, &run.head().tenant, inbox, first.clone());
        // A fresh id has no place yet.
        let sender = entered.unwrap_or_else(|| watch::Sender::new(first));
        let standing = sender.subscribe();
        self.weigh(&run);
        let inner = Arc::clone(self);
        let span = spans::under_run(&*self.parts.spans, id);
        let task = async move {
            let committed = inner.parts.records.commit(tx).await;
            let failed = committed.is_err();
            if failed {
                inner.release(id);
            }
            // Whoever stopped waiting needs no answer.
            let _ = told.send(committed.map(drop));
            if !failed {
                made.into_iter().for_each(|span| inner.parts.spans.ended(span));
                let (offload, costly) = (Arc::clone(&inner.offload), Costly::new(holds_much(&run)));
                let who = run.head().claimant();
                let drive = Drive::new(inner, run, nudges, sender, true, costly.clone());
                offload.aside_once(&who, &costly, drive.go(turn)).await;
            }
        };
        tokio::spawn(task.instrument(span));
        Launched { standing, durable }
    }

    /// A run is not driven here any more.
    pub(super) fn release(self: &Arc<Self>, run: Uuid) {
        self.driven.leave(run);
        self.free_memory(run);
        self.forget(run);
    }

    /// A run waits in the store for a slot, and is driven again when there is one.
    pub(super) fn release_to_wait(self: &Arc<Self>, run: Uuid, standing: watch::Sender<Standing>) {
        if !self.goes_on() {
            return self.release(run);
        }
        self.driven.leave_to_wait(run, standing);
        let next = self.memory().leave_to_wait(run);
        self.tick(next);
        // A slot may have been kept for it while it was on its way out.
        if !self.gate().granted(run).is_empty() {
            self.fetch(run);
        }
    }

    /// Drops what a run holds, or the wish for room.
    fn free_memory(self: &Arc<Self>, run: Uuid) {
        let next = self.memory().leave(run);
        self.tick(next);
    }

    /// Drops the slots and wishes of a run.
    fn forget(self: &Arc<Self>, run: Uuid) {
        let next = self.gate().forget_run(run);
        self.tick(next);
    }

    /// Tells runs that a slot is kept for them.
    pub(super) fn tick(self: &Arc<Self>, runs: Vec<Uuid>) {
        for run in runs {
            if !self.nudge(run, Nudge::Tick) {
                self.fetch(run);
            }
        }
    }

    /// A slot is kept for a run that waits in the store: it is taken up. It gets a place even if there is
    /// none, since there are no more of them than slots. If it does not wait there any more, the
    /// slot goes to the next.
    fn fetch(self: &Arc<Self>, run: Uuid) {
        let inner = Arc::clone(self);
        tokio::spawn(async move {
            let mut pause = limits::STORE_RETRY_PAUSE_FIRST;
            while inner.goes_on() && !inner.is_active(run) {
                match load::run_row(&*inner.parts.records, run).await {
                    Ok(row) => {
                        let waits = |row: &Row| row.get("owner_lane").is_null() && !row.get("next_deadline").is_null();
                        match row.filter(waits) {
                            Some(row) if inner.has_memory_for(&row) => {
                                if let Err(error) = inner.drive_row(row).await {
                                    tracing::warn!(run_id = %run, error = %error, "a run could not be taken up");
                                }
                            }
                            Some(_) => {}
                            // It ended, or another process has it: no room is kept for it any more.
                            None => inner.free_memory(run),
                        }
                        break;
                    }
                    Err(_) => tokio::time::sleep(pause).await,
                }
                pause = (pause * 2).min(limits::STORE_RETRY_PAUSE_MAX);
            }
            if !inner.is_active(run) {
                inner.forget(run);
            }
        });
    }

    /// Tells a run that this process drives to look up.
    pub(super) fn nudge(&self, run: Uuid, nudge: Nudge) -> bool {
        self.driven.nudge(run, nudge)
    }

    /// A run has something to do: whoever drives it is told, and if nobody does, it is taken up.
    pub(super) fn wake(self: &Arc<Self>, run: Uuid) {
        if self.nudge(run, Nudge::Look) {
            return;
        }
        let inner = Arc::clone(self);
        let task = async move {
            inner.look_after(run).await;
            // Another process may own it. Once this one drives it, nobody else needs the hint.
            if !inner.is_active(run) {
                let _ = inner.parts.bus.publish(TOPIC, Bytes::copy_from_slice(run.as_bytes())).await;
            }
        };
        // Whoever rings is who the message is sent for.
        tokio::spawn(task.in_current_span());
    }

    /// Takes a run up again that was told something while it was being left. This process drove it until
    /// now, so there is nobody else to tell; a hint would come back and wake the run once more, for ever.
    pub(super) fn wake_again(self: &Arc<Self>, run: Uuid) {
        let inner = Arc::clone(self);
        tokio::spawn(async move { inner.look_after(run).await }.in_current_span());
    }

    async fn look_after(self: &Arc<Self>, run: Uuid) {
        if let Err(error) = self.take_up(run).await {
            tracing::warn!(run_id = %run, error = %error, "a run could not be taken up");
        }
    }

    /// Takes a run up that nobody drives: it was parked, or its owner is gone.
    pub(super) async fn take_up(self: &Arc<Self>, run: Uuid) -> Result<(), EngineError> {
        let records = &self.parts.records;
        if !self.goes_on() || !self.has_room() || records.hold().is_some() || records.damage().is_some() {
            return Ok(());
        }
        let Some(row) = load::run_row(&*self.parts.records, run).await? else { return Ok(()) };
        if !self.may_take(&row) || self.full_for(row.text("tenant_id")).is_some() || !self.has_memory_for(&row) {
            return Ok(());
        }
        self.drive_row(row).await
    }

    /// Drives the run of a row whose owner is gone, whatever the row says.
    pub(super) async fn take_over(self: &Arc<Self>, row: Row) -> Result<(), EngineError> {
        self.drive_row(row).await
    }

    async fn drive_row(self: &Arc<Self>, row: Row) -> Result<(), EngineError> {
        let id = row.uuid("id");
        if self.owner(id).is_none() {
            // The keeper looks again; by then a lane may be held.
            return Ok(());
        }
        let (inbox, nudges) = mpsc::channel(limits::RUN_INBOX_MAX);
        let status = RunStatus::parse(row.text("status")).unwrap_or(RunStatus::Running);
        let first = Standing { status, rests: false, ended: None };
        // The place is taken before the rows are read: a run is driven by one task only.
        let Some(sender) = self.driven.enter(id, row.text("tenant_id"), inbox, first) else { return Ok(()) };
        let alone = self.parts.alone || row.get("owner_lane").is_null();
        let costly = Costly::default();
        let who = Claimant::new(row.text("tenant_id"), row.text("actor"));
        let loaded = load::load(&*self.parts.records, &self.workflows, row, &costly);
        match self.offload.aside_once(&who, &costly, loaded).await {
            Ok(run) => {
                self.weigh(&run);
                let span = spans::under_run(&*self.parts.spans, id);
                let offload = Arc::clone(&self.offload);
                let drive = Drive::new(Arc::clone(self), run, nudges, sender, alone, costly.clone()).take_up();
                tokio::spawn(async move { offload.aside_once(&who, &costly, drive).await }.instrument(span));
                Ok(())
            }
            Err(error) => {
                self.release(id);
                Err(error)
            }
        }
    }

    /// Whether there is memory for a run that is in the store.
    fn has_memory_for(&self, row: &Row) -> bool {
        self.memory().may_take_up(row.uuid("id"), row.text("tenant_id"))
    }

    /// Whether nobody else drives the run of this row.
    fn may_take(&self, row: &Row) -> bool {
        let owner = row.get("owner_lane").as_int();
        owner.is_none() || self.parts.alone || owner == self.owner(row.uuid("id")).map(|owner| owner.lane)
    }

    /// The lane through which a run is written; none while none is held. Nothing is driven then: a
    /// row that names no owner would be found by nobody if this process ended.
    pub(super) fn owner(&self, run: Uuid) -> Option<Owner> {
        let held = self.parts.records.lane(chimera_core::flow::run::affinity(run))?;
        Some(Owner { lane: held.lane, epoch: held.epoch })
    }

    /// The lane through which a run is written, as soon as one is held or it is known that none can be.
    pub(super) async fn claimed_owner(&self, run: Uuid) -> Result<Owner, CommitError> {
        if let Some(owner) = self.owner(run) {
            return Ok(owner);
        }
        // An empty transaction is answered once the lane is claimed or can't be.
        let probe = Tx { affinity: chimera_core::flow::run::affinity(run), ..Tx::default() };
        self.parts.records.commit(probe).await?;
        self.owner(run).ok_or_else(|| Unavailable::new(Outage::Passing, "no ledger lane is held").into())
    }

    /// A fresh, time-ordered id.
    pub(super) fn id(&self) -> Uuid {
        self.parts.random.row_id(self.parts.clock.steady())
    }

    /// What the ledger is told about a run's owner and trace.
    pub(super) fn trace(head: &Head) -> String {
        chimera_core::id::trace_id(head.id)
    }
}
