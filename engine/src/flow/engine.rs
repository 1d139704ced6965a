//! The flow engine of one process: which runs it drives, and how to reach them.
//!
//! A run is driven by one task, in `drive`. This file starts the task of a stored run, wakes tasks, and holds what they
//! share; the task of a new run starts in `first_turn`. The store is the source of truth about who owns a run; this is only
//! what the process is working on right now.

use super::active_runs::{ActiveRuns, LimitReached, RunLimits};
use super::call_slots::{CallLimits, CallSlots};
use super::drive::{RunChannels, RunDriver, WakeUp};
use super::memory::MemoryBudget;
use super::progress::RunProgress;
use super::reservations::{EffectOutcomes, JoinedTurns};
use super::work::WorkQueues;
use super::{Asking, ToolRegistry, Workflows, load, spans};
use crate::error::EngineError;
use crate::flow::port::{CallLogSink, Notifier};
use crate::heartbeat::Heartbeat;
use crate::offload::{CostFlag, Offload, SizeBudget, WorkSlot};
use crate::port::{Bus, Clock, CommitError, Hold, Outage, Random, Records, Spans, Unavailable};
use bytes::Bytes;
use chimera_core::access::Claimant;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::policy::{Action, Policy, PolicyVerdict};
use chimera_core::flow::projection::Projection;
use chimera_core::flow::run::{LaneOwner, Run, RunHead};
use chimera_core::flow::tables::RunBrief;
use chimera_core::flow::work::Jobs;
use chimera_core::record::{Row, StoredRow, Tx};
use chimera_core::{json, limits};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, mpsc, watch};
use tracing::Instrument;
use uuid::Uuid;

/// The bus topic with the ids of runs that have new signals.
pub(super) const TOPIC: &str = "flow.runs";

/// The dependencies of a flow engine.
#[derive(Clone)]
pub struct FlowPorts {
    pub records: Arc<dyn Records>,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    /// Wakes other processes.
    pub bus: Arc<dyn Bus>,
    pub registry: Arc<ToolRegistry>,
    pub policy: Arc<dyn Policy>,
    /// Derives rows of other rooms, for runs whose workflow asks for them.
    pub projection: Arc<dyn Projection>,
    /// Sends notifications about ended and waiting runs.
    pub notifier: Arc<dyn Notifier>,
    pub spans: Arc<dyn Spans>,
    /// Starts and cancels sandboxed jobs.
    pub jobs: Arc<dyn Jobs>,
    /// Takes what tools write about their calls.
    pub call_log: Arc<dyn CallLogSink>,
    pub asking: Asking,
    /// Limits of calls in flight.
    pub slots: CallLimits,
    /// No other process can write to this store: it is a file that this process has locked.
    pub alone: bool,
}

/// The flow engine of one process.
#[derive(Clone)]
pub struct Flow {
    pub(super) inner: Arc<EngineState>,
}

pub(super) struct EngineState {
    pub(super) parts: FlowPorts,
    pub(super) workflows: Workflows,
    pub(super) call_slots: Mutex<CallSlots>,
    pub(super) driven: ActiveRuns,
    memory: Mutex<MemoryBudget>,
    /// Signalled when a message is queued.
    pub(super) messages: Notify,
    stopping: watch::Sender<Shutdown>,
    /// Runs turns that may take long.
    pub(super) offload: Arc<Offload>,
    /// The keeper's heartbeat.
    pub(super) pulse: Heartbeat,
    pub(super) work: WorkQueues,
    pub(super) outcomes: EffectOutcomes,
    pub(super) joined: JoinedTurns,
}

/// The engine's shutdown state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shutdown {
    Running,
    /// Starts nothing new and waits for what is in flight.
    Drain,
    /// Gives up what is in flight.
    Now,
}

impl Flow {
    #[must_use]
    pub fn new(parts: FlowPorts) -> Self {
        Self::bounded(parts, RunLimits::default())
    }

    /// An engine with these limits on active runs.
    #[must_use]
    pub fn bounded(parts: FlowPorts, places: RunLimits) -> Self {
        let workflows = Workflows::new(
            Arc::clone(&parts.records),
            Arc::clone(&parts.clock),
            Arc::clone(&parts.random),
            Arc::clone(&parts.registry),
        );
        let offload = Arc::clone(&workflows.offload);
        let call_slots = Mutex::new(CallSlots::new(parts.slots.clone()));
        let pulse = Heartbeat::start(parts.clock.steady());
        let inner = EngineState {
            parts,
            workflows,
            call_slots,
            driven: ActiveRuns::new(places),
            memory: Mutex::new(MemoryBudget::new(places.memory_bytes)),
            messages: Notify::new(),
            stopping: watch::Sender::new(Shutdown::Running),
            offload,
            pulse,
            work: WorkQueues::default(),
            outcomes: EffectOutcomes::default(),
            joined: JoinedTurns::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    #[must_use]
    pub fn workflows(&self) -> &Workflows {
        &self.inner.workflows
    }

    #[must_use]
    pub fn registry(&self) -> &ToolRegistry {
        &self.inner.parts.registry
    }

    /// The policy's verdict on a possible call.
    #[must_use]
    pub fn evaluate(&self, action: &Action<'_>) -> PolicyVerdict {
        self.inner.parts.policy.evaluate(action)
    }

    /// Why the store is held, if it is.
    #[must_use]
    pub fn hold(&self) -> Option<Hold> {
        self.inner.parts.records.hold()
    }

    /// Memory for work on JSON of a request. Refused if too much of the same caller's work waits already.
    pub async fn reserve_memory(&self, who: &Claimant, weight: usize) -> Result<SizeBudget, EngineError> {
        self.inner.offload.reserve_memory(who, weight).await
    }

    /// Memory to read a page of rows and to write it, before its size is known, in exchange for what the caller has.
    pub async fn reserve_page(&self, who: &Claimant, room: SizeBudget) -> SizeBudget {
        self.inner.offload.reserve_page(who, room).await
    }

    /// A slot for CPU-heavy work of a request. Refused if too much of the same caller's work waits already.
    pub(crate) async fn acquire_work_slot(&self, who: &Claimant, may_take_long: bool) -> Result<WorkSlot, EngineError> {
        self.inner.offload.admit(who, may_take_long)?;
        Ok(self.inner.offload.acquire(who, may_take_long).await)
    }

    /// Drives async work of a request, off the request threads if it may take long. Refused, with nothing done, if too
    /// much of the same caller's work waits already.
    pub async fn offload<T>(
        &self,
        who: &Claimant,
        may_take_long: bool,
        work: Pin<Box<impl Future<Output = T>>>,
    ) -> Result<T, EngineError> {
        self.inner.offload.admit(who, may_take_long)?;
        Ok(self.inner.offload.run(who, may_take_long, work).await)
    }

    /// The damage of the store that prevents new work, if any.
    #[must_use]
    pub fn damage(&self) -> Option<Unavailable> {
        self.inner.parts.records.damage()
    }

    /// The keeper's heartbeat.
    #[must_use]
    pub fn pulse(&self) -> &Heartbeat {
        &self.inner.pulse
    }

    /// The number of runs that this process drives.
    #[must_use]
    pub fn active_runs(&self) -> usize {
        self.inner.driven.len()
    }

    /// Estimated bytes held by the runs that this process drives.
    #[must_use]
    pub fn memory_held(&self) -> usize {
        self.inner.memory().taken()
    }

    /// Whether it is shutting down.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        !self.inner.is_running()
    }

    /// The number of tool calls in flight.
    #[must_use]
    pub fn calls_under_way(&self) -> usize {
        self.inner.call_slots().taken()
    }

    /// The number of calls that wait for a slot and are tracked by this process.
    #[must_use]
    pub fn calls_waiting(&self) -> usize {
        self.inner.call_slots().waiting()
    }

    /// Starts nothing new: calls in flight may end and be recorded, and a run without any is no longer driven.
    pub fn drain(&self) {
        self.inner
            .stopping
            .send_if_modified(|stop| std::mem::replace(stop, Shutdown::Drain.max(*stop)) == Shutdown::Running);
        self.inner.driven.unwatch();
    }

    /// Lets every run finish its current turn and drives none any further.
    pub fn stop(&self) {
        self.inner.stopping.send_replace(Shutdown::Now);
        self.inner.driven.unwatch();
    }

    /// Waits until a run has ended or rests. `None` if this process does not drive it.
    pub async fn rest(&self, run: Uuid) -> Option<RunProgress> {
        let mut progress = self.inner.driven.progress(run)?;
        let rested = progress.wait_for(|progress| progress.is_resting).await.map(|progress| progress.clone());
        let last = progress.borrow().clone();
        Some(rested.unwrap_or(last))
    }
}

/// Whether the turns of a run may take a lot of CPU because it holds a lot of data.
pub(super) fn is_heavy(run: &Run) -> bool {
    run.memory_bytes() >= limits::RUN_MEMORY_BYTES_COUNTED
        || json::is_larger_than(&run.head().inputs, limits::JSON_INLINE_BYTES_MAX)
}

impl EngineState {
    pub(super) fn call_slots(&self) -> MutexGuard<'_, CallSlots> {
        let mut call_slots = self.call_slots.lock().unwrap_or_else(PoisonError::into_inner);
        call_slots.set_shared(self.parts.registry.is_shared());
        call_slots
    }

    pub(super) fn memory(&self) -> MutexGuard<'_, MemoryBudget> {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.set_shared(self.parts.registry.is_shared());
        memory
    }

    /// Records the memory of an active run.
    pub(super) fn record_memory(&self, run: &Run) {
        self.memory().record(run.head().id, &run.head().tenant, run.memory_bytes());
    }

    /// Whether another run can be driven, for any tenant.
    pub(super) fn has_capacity(&self) -> bool {
        !self.driven.is_full()
    }

    /// Whether another run of this tenant can be driven.
    pub(super) fn has_capacity_for(&self, tenant: &str) -> bool {
        self.full_for(tenant).is_none() && self.memory().has_capacity_for(tenant)
    }

    fn full_for(&self, tenant: &str) -> Option<LimitReached> {
        self.driven.limit_reached(tenant, self.parts.registry.is_shared())
    }

    /// Refuses a run beyond the limits.
    pub(super) fn check_run_limits(&self, tenant: &str) -> Result<(), EngineError> {
        let crowded = || self.memory().is_queue_full(tenant).then_some(LimitReached::Memory);
        let Some(full) = self.full_for(tenant).or_else(crowded) else { return Ok(()) };
        let body = |message: String| ErrorBody::new(Code::Overloaded, message).retry_after(1);
        let body = match full {
            LimitReached::Process { runs } => {
                body(format!("{runs} runs are active, which is the limit; try again when some have ended"))
            }
            LimitReached::Memory => {
                let message =
                    format!("too many runs of tenant {tenant} wait for memory; try again when some have ended");
                body(message).with("tenant", tenant)
            }
            LimitReached::Tenant { runs } => {
                let message = format!(
                    "{runs} runs of tenant {tenant} are active, which is the limit; try again when some have ended"
                );
                body(message).with("tenant", tenant)
            }
        };
        Err(EngineError::Refused(Box::new(body)))
    }

    /// The limit of active runs.
    pub(super) const fn runs_max(&self) -> usize {
        self.driven.places().total
    }

    pub(super) fn is_active(&self, run: Uuid) -> bool {
        self.driven.contains(run)
    }

    pub(super) fn stopping(&self) -> watch::Receiver<Shutdown> {
        self.stopping.subscribe()
    }

    /// Whether anything new may begin.
    pub(super) fn is_running(&self) -> bool {
        *self.stopping.borrow() == Shutdown::Running
    }

    /// Whether everything has stopped, including calls in flight.
    pub(super) fn is_stopped(&self) -> bool {
        *self.stopping.borrow() == Shutdown::Now
    }

    /// Stops driving a run here.
    pub(super) fn release(self: &Arc<Self>, run: Uuid) {
        self.driven.leave(run);
        self.free_memory(run);
        self.drop_requests(run);
    }

    /// Unloads a run that waits for a slot; it is driven again when there is one.
    pub(super) fn unload(self: &Arc<Self>, run: Uuid, progress: watch::Sender<RunProgress>) {
        if !self.is_running() {
            return self.release(run);
        }
        self.driven.unload(run, progress);
        let next = self.memory().unload(run);
        self.wake_for_slots(next);
        // A slot may have been reserved for it while it was unloaded.
        if !self.call_slots().granted(run).is_empty() {
            self.load_granted(run);
        }
    }

    /// Drops what a run holds, and its request for memory.
    fn free_memory(self: &Arc<Self>, run: Uuid) {
        let next = self.memory().remove(run);
        self.wake_for_slots(next);
    }

    /// Drops the slots and requests of a run.
    fn drop_requests(self: &Arc<Self>, run: Uuid) {
        let next = self.call_slots().drop_run(run);
        self.wake_for_slots(next);
    }

    /// Wakes runs that have a reserved slot.
    pub(super) fn wake_for_slots(self: &Arc<Self>, runs: Vec<Uuid>) {
        for run in runs {
            if !self.nudge(run, WakeUp::Tick) {
                self.load_granted(run);
            }
        }
    }

    /// Loads a run that has a reserved slot. It is admitted even beyond the limit, since there are no more of these
    /// than slots. If it no longer waits in the store, the slot goes to the next.
    fn load_granted(self: &Arc<Self>, run: Uuid) {
        let inner = Arc::clone(self);
        tokio::spawn(async move {
            let mut pause = limits::STORE_RETRY_PAUSE_FIRST;
            while inner.is_running() && !inner.is_active(run) {
                match load::run_row(&*inner.parts.records, run).await {
                    Ok(row) => {
                        if let Err(error) = inner.drive_granted(run, row).await {
                            tracing::warn!(run_id = %run, error = %error, "a run could not be resumed");
                        }
                        break;
                    }
                    Err(_) => tokio::time::sleep(pause).await,
                }
                pause = (pause * 2).min(limits::STORE_RETRY_PAUSE_MAX);
            }
            if !inner.is_active(run) {
                inner.drop_requests(run);
            }
        });
    }

    /// Wakes a run that this process drives; false if it does not.
    pub(super) fn nudge(&self, run: Uuid, nudge: WakeUp) -> bool {
        self.driven.nudge(run, nudge)
    }

    /// Wakes a run: notifies the task that drives it, or loads the run if there is none.
    pub(super) fn wake(self: &Arc<Self>, run: Uuid) {
        if self.nudge(run, WakeUp::CheckSignals) {
            return;
        }
        let inner = Arc::clone(self);
        let task = async move {
            inner.resume_or_warn(run).await;
            // Another process may own it. If this one drives it, nobody else needs the hint.
            if !inner.is_active(run) {
                let _ = inner.parts.bus.publish(TOPIC, Bytes::copy_from_slice(run.as_bytes())).await;
            }
        };
        // Trace the hint as part of the caller's span.
        tokio::spawn(task.in_current_span());
    }

    /// Resumes a run that got a signal while it was being unloaded. This process drove it until now, so there is nobody
    /// else to notify; a hint would come back and wake the run again, forever.
    pub(super) fn wake_again(self: &Arc<Self>, run: Uuid) {
        let inner = Arc::clone(self);
        tokio::spawn(async move { inner.resume_or_warn(run).await }.in_current_span());
    }

    async fn resume_or_warn(self: &Arc<Self>, run: Uuid) {
        if let Err(error) = self.resume_unowned(run).await {
            tracing::warn!(run_id = %run, error = %error, "a run could not be resumed");
        }
    }

    /// Resumes a run that nobody drives: it was parked, or its owner is gone.
    pub(super) async fn resume_unowned(self: &Arc<Self>, run: Uuid) -> Result<(), EngineError> {
        let records = &self.parts.records;
        if !self.is_running() || !self.has_capacity() || records.hold().is_some() || records.damage().is_some() {
            return Ok(());
        }
        let Some(row) = load::run_row(&*self.parts.records, run).await? else { return Ok(()) };
        let brief = RunBrief::peek(&row)?;
        if !self.may_resume(&brief) || self.full_for(&brief.tenant_id).is_some() || !self.has_memory_for(&brief) {
            return Ok(());
        }
        self.drive_row(brief, row).await
    }

    /// Drives a run that has a reserved slot, if it still waits in the store.
    async fn drive_granted(self: &Arc<Self>, run: Uuid, row: Option<Row>) -> Result<(), EngineError> {
        let waits = |brief: &RunBrief| brief.owner_lane.is_none() && brief.next_deadline.is_some();
        let brief = row.as_ref().map(RunBrief::peek).transpose()?.filter(waits);
        match brief.zip(row) {
            Some((brief, row)) if self.has_memory_for(&brief) => self.drive_row(brief, row).await,
            Some(_) => Ok(()),
            // It ended, or another process has it: nothing is reserved for it any more.
            None => {
                self.free_memory(run);
                Ok(())
            }
        }
    }

    /// Loads the run of a row and drives it, whatever owner the row names. Nothing happens if this process drives it
    /// already.
    pub(super) async fn drive_row(self: &Arc<Self>, brief: RunBrief, row: Row) -> Result<(), EngineError> {
        let id = brief.id;
        if self.owner(id).is_none() {
            // The keeper polls again; by then a lane may be held.
            return Ok(());
        }
        let (inbox, nudges) = mpsc::channel(limits::RUN_INBOX_MAX);
        let first = RunProgress { status: brief.status, is_resting: false, ended: None };
        // Registered before the rows are read: a run is driven by one task only.
        let Some(sender) = self.driven.register(id, &brief.tenant_id, inbox, first) else { return Ok(()) };
        let owns_all_calls = self.parts.alone || brief.owner_lane.is_none();
        let costly = CostFlag::default();
        let who = Claimant::new(&brief.tenant_id, &brief.actor);
        let loaded = Box::pin(load::load(&*self.parts.records, &self.workflows, row, &costly));
        match self.offload.run_when_costly(&who, &costly, loaded).await {
            Ok(run) => {
                self.record_memory(&run);
                let span = spans::run_placeholder(&*self.parts.spans, id);
                let offload = Arc::clone(&self.offload);
                let channels = RunChannels { nudges, progress: sender };
                let drive = RunDriver::new(Arc::clone(self), Box::new(run), channels, owns_all_calls, costly.clone());
                let drive = Box::pin(drive.resume());
                tokio::spawn(async move { offload.run_when_costly(&who, &costly, drive).await }.instrument(span));
                Ok(())
            }
            Err(error) => {
                self.release(id);
                Err(error)
            }
        }
    }

    /// Whether there is memory to load this run.
    fn has_memory_for(&self, row: &RunBrief) -> bool {
        self.memory().may_take_up(row.id, &row.tenant_id)
    }

    /// Whether nobody else drives the run of this row.
    fn may_resume(&self, row: &RunBrief) -> bool {
        let owner = row.owner_lane;
        owner.is_none() || self.parts.alone || owner == self.owner(row.id).map(|owner| owner.lane)
    }

    /// The lane that a run is written through; `None` while none is held. Nothing is driven then: nobody would find a
    /// row without an owner if this process ended.
    pub(super) fn owner(&self, run: Uuid) -> Option<LaneOwner> {
        let held = self.parts.records.lane(chimera_core::flow::run::affinity(run))?;
        Some(LaneOwner { lane: held.lane, epoch: held.epoch })
    }

    /// The lane that a run is written through, once one is held. An error if none can be claimed.
    pub(super) async fn claimed_owner(&self, run: Uuid) -> Result<LaneOwner, CommitError> {
        if let Some(owner) = self.owner(run) {
            return Ok(owner);
        }
        // An empty transaction returns once the lane is claimed or can't be.
        let probe = Tx { affinity: chimera_core::flow::run::affinity(run), ..Tx::default() };
        self.parts.records.commit(probe).await?;
        self.owner(run).ok_or_else(|| Unavailable::new(Outage::Transient, "no ledger lane is held").into())
    }

    /// A fresh, time-ordered id.
    pub(super) fn id(&self) -> Uuid {
        self.parts.random.row_id(self.parts.clock.steady())
    }

    /// The trace id of a run.
    pub(super) fn trace(head: &RunHead) -> String {
        chimera_core::id::trace_id(head.id)
    }
}
