//! One place of a run: a node, or an item of a map node.
//!
//! | state                                | on                                     | becomes |
//! |--------------------------------------|----------------------------------------|---|
//! | `Pending`                            | its last edge is decided; the run ends | `Delayed`, `Ready`, `Skipped`; `Skipped`, `Cancelled` |
//! | `Delayed`                            | its time has come                      | `Ready` |
//! | `Ready`                              | it is started                          | `AwaitingApproval`, `Judging`, `LookingUpCache`, `Consulting`, `Running`, `Elsewhere`, `Mapping`, `Waiting`, `Completed` (a recording), `Failed` |
//! | `AwaitingApproval`                   | approved, edited                       | `Ready` or, at a `hitl` node, `Completed`; `AwaitingApproval` |
//! | `AwaitingApproval`                   | rejected, expired                      | `Cancelled`, and the run stops; a rejected `hitl` node: `Failed` |
//! | `LookingUpCache`                     | found, not found                       | `Completed`, `Judging`, `Ready` |
//! | `Judging`                            | its judge decides                      | `Ready` (sent, or tried again), `Completed`, `AwaitingApproval`, `Failed` |
//! | `Consulting`                         | what its limits counted was read       | `Ready` |
//! | `Running`                            | output, error, check                   | `Completed`, `Judging`, `RetryWait`, `Running` (a check), `Ready` (sent again), `Lost` (checked later), `Failed`, `OutcomeUnknown` |
//! | `Lost`                               | no process can still be making it      | `Running` (a check), `Ready` (sent again), `OutcomeUnknown` |
//! | `RetryWait`                          | its time has come                      | `Ready` |
//! | `Elsewhere`                          | the work ended                         | `Completed`, `Judging`, `Failed`, `RetryWait`, `OutcomeUnknown` |
//! | `Elsewhere`                          | its deadline passed                    | `Failed`, `OutcomeUnknown`; `Elsewhere` (a child run, which is cancelled) |
//! | `Mapping`                            | the last item ended                    | `Completed`, `Failed` |
//! | `Waiting`                            | its time has come, its event, timeout  | `Completed`; `Completed`; `Completed`, `Failed` |
//! | `OutcomeUnknown`                     | a person resolves the outcome          | `Completed`, `Ready`, `AwaitingApproval` |
//! | `OutcomeUnknown`                     | a worker reports the outcome late      | `Completed`, `RetryWait`, `Failed` |
//! | `Completed`                          | undone                                 | `RolledBack` |
//! | `Failed`                             | undone                                 | `RolledBack` |
//! | `Skipped`, `Cancelled`, `RolledBack` |                                        | final |
//!
//! When the run stops, every other state becomes `Cancelled`, or `OutcomeUnknown` if a write may have taken effect.

use super::work::{CallWork, StoredItem, TaskWork};
use crate::error::ErrorBody;
use crate::flow::approval::{ApprovalRequest, StepApproval};
use crate::flow::judgement::{JudgedPart, Judgement};
use crate::flow::run::event::CallMode;
use crate::flow::run::requesters::merge_names;
use crate::flow::run::status::{EffectStatus, StepStatus};
use crate::flow::run::waits::WaitState;
use crate::flow::work::Elsewhere;
use crate::json::Digest32;
use crate::limits;
use crate::time::Timestamp;
use serde_json::Value;
use std::sync::Arc;
use uuid::Uuid;

/// The state of one place.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(super) state: TaskState,
    /// Its row in `steps`, once it has one.
    pub(super) step: Option<StoredStep>,
    /// Its row in `effects`, once it has one.
    pub(super) effect: Option<StoredEffect>,
    /// The exact input, once it is rendered.
    pub(super) input: Option<Arc<Value>>,
    pub(super) digest: Option<Digest32>,
    /// Attempts so far.
    pub(super) attempt: u32,
    pub(super) recovery: Recovery,
    /// The error that made the outcome unknown, while the tool is checked. `None` after a crash.
    pub(super) doubt: Option<Box<ErrorBody>>,
    /// One of its sends may have taken effect.
    pub(super) in_doubt: bool,
    /// The cache lookup missed. It is not repeated while the place waits for a slot.
    pub(super) cache_missed: bool,
    /// The approval of exactly this input.
    pub(super) approved: Option<StepApproval>,
    /// Everyone who edited the input.
    pub(super) changed_by: Vec<String>,
    pub(super) elsewhere: TaskWork,
    pub(super) judging: JudgeState,
    pub(super) started_at: Option<Timestamp>,
}

/// The row in `steps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredStep {
    pub(crate) id: Uuid,
    /// Zero until it is first written.
    pub(crate) version: i64,
}

/// The row in `effects`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredEffect {
    pub(crate) id: Uuid,
    pub(crate) version: i64,
    pub(crate) status: EffectStatus,
    /// It was written after the last restore, or there was no restore.
    pub(crate) since_restore: bool,
}

/// How often a call whose answer never came was pursued.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recovery {
    /// Resends after a crash. They don't count as retries.
    pub(super) resends: u32,
    /// How often the tool was asked for the outcome.
    pub(super) checks: u32,
}

/// What the judge of a place has done.
#[derive(Clone, Debug)]
pub(crate) struct JudgeState {
    /// What it decided last.
    pub(super) judgement: Option<Box<Judgement>>,
    /// An output that it has not released.
    pub(super) held: Option<HeldOutput>,
}

/// An output that nothing else sees until the judge or a person releases it.
#[derive(Clone, Debug)]
pub(crate) struct HeldOutput {
    pub(crate) output: Arc<Value>,
    /// How it came about, as in the ledger.
    pub(crate) how: &'static str,
}

/// A running map node.
#[derive(Clone, Debug, Default)]
pub(crate) struct MapProgress {
    pub(crate) over: Arc<Vec<Value>>,
    /// The items that were started or loaded so far.
    pub(crate) items: Vec<Task>,
    /// The number of items that have not ended.
    pub(crate) open: usize,
    /// The number of items that were started and have not ended.
    pub(crate) busy: usize,
    /// The first item that failed.
    pub(crate) failed: Option<u32>,
}

/// See the table at the top.
#[derive(Clone, Debug)]
pub(crate) enum TaskState {
    Pending {
        undecided: u32,
        taken: bool,
    },
    Delayed {
        until: Timestamp,
    },
    Ready,
    AwaitingApproval(ApprovalRequest),
    LookingUpCache,
    /// Its judge decides in the next turn: on the held output or, if there is none, on the input.
    Judging,
    /// What its limits have counted is being read.
    Consulting,
    Running {
        call: Uuid,
        mode: CallMode,
    },
    Lost {
        deadline: Timestamp,
    },
    RetryWait {
        until: Timestamp,
        error: Box<ErrorBody>,
    },
    /// The work is done elsewhere, until then at most. The run holds no slot and no memory for it.
    Elsewhere {
        work: Elsewhere,
        until: Timestamp,
    },
    Mapping(MapProgress),
    Waiting(WaitState),
    OutcomeUnknown {
        error: Box<ErrorBody>,
    },
    Completed {
        output: Arc<Value>,
        seq: i64,
        items: Vec<Task>,
    },
    Failed {
        error: Box<ErrorBody>,
        output: Arc<Value>,
        seq: i64,
        items: Vec<Task>,
    },
    Skipped,
    Cancelled {
        items: Vec<Task>,
    },
    RolledBack {
        output: Arc<Value>,
    },
}

impl MapProgress {
    /// Counts the items of a loaded map.
    pub(crate) fn count_items(&mut self) {
        let ended = self.items.iter().filter(|item| item.is_settled()).count();
        self.open = self.over.len() - ended;
        self.busy = self.items.len() - ended;
        let failed = self.items.iter().enumerate().filter(|(_, item)| matches!(item.state, TaskState::Failed { .. }));
        let first = failed.min_by_key(|(_, item)| item.seq()).map(|(item, _)| item);
        self.failed = first.and_then(|item| u32::try_from(item).ok());
    }
}

impl Task {
    /// A node that waits for this number of incoming edges.
    pub(crate) fn waiting_for(incoming: usize) -> Self {
        Self::pending(u32::try_from(incoming).unwrap_or(u32::MAX))
    }

    pub(crate) const fn pending(undecided: u32) -> Self {
        Self {
            state: TaskState::Pending { undecided, taken: false },
            step: None,
            effect: None,
            input: None,
            digest: None,
            attempt: 0,
            recovery: Recovery { resends: 0, checks: 0 },
            doubt: None,
            in_doubt: false,
            cache_missed: false,
            approved: None,
            changed_by: Vec::new(),
            elsewhere: TaskWork { child: None, call: None, is_stored: false },
            judging: JudgeState { judgement: None, held: None },
            started_at: None,
        }
    }

    pub(crate) const fn state(&self) -> &TaskState {
        &self.state
    }

    /// The state, if it is a running map.
    pub(crate) const fn mapping_mut(&mut self) -> Option<&mut MapProgress> {
        match &mut self.state {
            TaskState::Mapping(mapping) => Some(mapping),
            _ => None,
        }
    }

    /// Its row in `steps`, once it has one.
    pub(crate) const fn step(&self) -> Option<StoredStep> {
        self.step
    }

    /// The next version of its row was written.
    pub(crate) const fn step_written(&mut self) {
        self.elsewhere.is_stored = self.elsewhere.call.is_some();
        if let Some(step) = &mut self.step {
            step.version += 1;
        }
    }

    /// Its row in `effects`, once it has one.
    pub(crate) const fn effect(&self) -> Option<StoredEffect> {
        self.effect
    }

    /// The next version of its effect's row was written.
    pub(crate) fn effect_written(&mut self, id: Uuid, status: EffectStatus) {
        let version = self.effect.map_or(1, |effect| effect.version + 1);
        self.effect = Some(StoredEffect { id, version, status, since_restore: true });
    }

    /// The exact input, once it is rendered.
    pub(crate) fn input(&self) -> Option<&Value> {
        self.input.as_deref()
    }

    /// The exact input, `null` until it is rendered.
    pub(crate) fn shared_input(&self) -> Arc<Value> {
        self.input.clone().unwrap_or_default()
    }

    /// The digest of the input or, for a map, of its list.
    pub(crate) const fn digest(&self) -> Option<Digest32> {
        self.digest
    }

    /// Fixes the input. Its digest may be that of a part of it.
    pub(crate) fn fix_input(&mut self, input: Arc<Value>, digest: Digest32) {
        (self.input, self.digest) = (Some(input), Some(digest));
    }

    /// Attempts so far.
    pub(crate) const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Attempts so far, without resends after a crash.
    pub(crate) const fn tries(&self) -> u32 {
        self.attempt.saturating_sub(self.recovery.resends)
    }

    /// A call begins. Returns the number of its attempt: a check belongs to the last one.
    pub(crate) fn begin_call(&mut self, mode: &CallMode, now: Timestamp) -> u32 {
        self.attempt += u32::from(*mode == CallMode::Execute);
        self.started_at.get_or_insert(now);
        self.attempt.max(1)
    }

    /// What it starts is started again.
    pub(crate) const fn begin_again(&mut self, now: Timestamp) {
        self.attempt += 1;
        self.begin(now);
    }

    pub(crate) const fn begin(&mut self, now: Timestamp) {
        self.started_at = Some(now);
    }

    pub(crate) const fn begin_child(&mut self, child: Uuid, now: Timestamp) {
        self.elsewhere.child = Some(child);
        self.begin(now);
    }

    /// The child run that it started.
    pub(crate) const fn child(&self) -> Option<Uuid> {
        self.elsewhere.child
    }

    /// The work elsewhere that executes its call, or executed the last one.
    pub(crate) const fn work(&self) -> Option<&CallWork> {
        self.elsewhere.call.as_ref()
    }

    /// Its call is executed by this work, or in this process.
    pub(crate) const fn set_work(&mut self, work: Option<CallWork>) {
        self.elsewhere.call = work;
    }

    /// Its work item has this state now.
    pub(crate) const fn item_written(&mut self, item: StoredItem) {
        if let Some(work) = &mut self.elsewhere.call {
            work.item = Some(item);
        }
    }

    /// Whether its row must be told what its work elsewhere is, or that there is none.
    pub(crate) const fn needs_work_row(&self) -> bool {
        self.elsewhere.call.is_some() || self.elsewhere.is_stored
    }

    pub(crate) const fn started_at(&self) -> Option<Timestamp> {
        self.started_at
    }

    /// It is sent once more after a crash. This is not a retry.
    pub(crate) const fn count_resend(&mut self) {
        self.recovery.resends += 1;
    }

    /// The tool is asked for the outcome.
    pub(crate) const fn count_check(&mut self) {
        self.recovery.checks += 1;
    }

    pub(crate) const fn has_checks_left(&self) -> bool {
        self.recovery.checks + self.recovery.resends < limits::RESENDS_MAX
    }

    /// Keeps the error that made the outcome unknown while the tool is checked.
    pub(crate) fn keep_doubt(&mut self, error: Box<ErrorBody>) {
        self.doubt = Some(error);
    }

    /// The error that made the outcome unknown. `None` after a crash.
    pub(crate) const fn take_doubt(&mut self) -> Option<Box<ErrorBody>> {
        self.doubt.take()
    }

    /// Whether one of its sends may have taken effect.
    pub(crate) const fn is_in_doubt(&self) -> bool {
        self.in_doubt
    }

    pub(crate) const fn set_in_doubt(&mut self, in_doubt: bool) {
        self.in_doubt = in_doubt;
    }

    /// None of its sends took effect: checks and resends count anew.
    pub(crate) const fn reset_doubt(&mut self) {
        (self.in_doubt, self.recovery) = (false, Recovery { resends: 0, checks: 0 });
    }

    /// Whether the cache may hold its output: it was not sent, and not looked up in vain.
    pub(crate) const fn may_be_cached(&self) -> bool {
        self.attempt == 0 && !self.cache_missed
    }

    /// The cache lookup missed. It is not repeated while the place waits for a slot.
    pub(crate) const fn miss_cache(&mut self) {
        self.cache_missed = true;
    }

    /// The approval of exactly this input.
    pub(crate) const fn approval(&self) -> Option<&StepApproval> {
        self.approved.as_ref()
    }

    pub(crate) fn approve(&mut self, approval: StepApproval) {
        self.approved = Some(approval);
    }

    /// What its judge decided last.
    pub(crate) fn judgement(&self) -> Option<&Judgement> {
        self.judging.judgement.as_deref()
    }

    /// The judgement of exactly this input, if it was judged.
    pub(crate) fn input_judgement(&self) -> Option<&Judgement> {
        self.judgement().filter(|made| made.of == JudgedPart::Input && Some(made.digest) == self.digest)
    }

    pub(crate) fn judged(&mut self, judgement: Judgement) {
        self.judging.judgement = Some(Box::new(judgement));
    }

    /// How often it was tried again because its judge rejected its output.
    pub(crate) fn round(&self) -> u32 {
        self.judgement().map_or(0, |made| made.round)
    }

    /// Attempts of this round, without resends after a crash.
    pub(crate) fn tries_in_round(&self) -> u32 {
        self.tries().saturating_sub(self.judgement().map_or(0, |made| made.attempts_before))
    }

    /// The output that its judge has not released.
    pub(crate) const fn held(&self) -> Option<&HeldOutput> {
        self.judging.held.as_ref()
    }

    pub(crate) fn hold(&mut self, output: Arc<Value>, how: &'static str) {
        self.judging.held = Some(HeldOutput { output, how });
    }

    pub(crate) const fn take_held(&mut self) -> Option<HeldOutput> {
        self.judging.held.take()
    }

    /// Its judge rejected it, and it is tried again. Its input is rendered again if it depends on the judgement.
    pub(crate) fn try_again(&mut self, reads_judgement: bool) {
        // The next call is another effect.
        (self.cache_missed, self.effect) = (true, None);
        if reads_judgement && self.changed_by.is_empty() {
            (self.input, self.digest) = (None, None);
        }
    }

    /// Everyone who edited the input.
    pub(crate) fn editors(&self) -> &[String] {
        &self.changed_by
    }

    /// A person edited the input, which nobody has approved yet. Earlier editors stay: parts of their input may remain.
    pub(crate) fn edited_by(&mut self, editor: &str) {
        self.approved = None;
        self.changed_by = merge_names(std::mem::take(&mut self.changed_by), [editor]);
    }

    pub(crate) fn input_digest(&self) -> Digest32 {
        self.digest.unwrap_or_else(|| Digest32::of(self.input.as_deref().unwrap_or(&Value::Null)))
    }

    /// Whether it has ended. Only a rollback can still change it.
    pub(crate) const fn is_settled(&self) -> bool {
        use TaskState::{Cancelled, Completed, Failed, RolledBack, Skipped};
        matches!(self.state, Completed { .. } | Failed { .. } | Skipped | Cancelled { .. } | RolledBack { .. })
    }

    /// Its output, as expressions see it.
    pub(crate) const fn output(&self) -> Option<&Arc<Value>> {
        match &self.state {
            TaskState::Completed { output, .. }
            | TaskState::Failed { output, .. }
            | TaskState::RolledBack { output } => Some(output),
            _ => None,
        }
    }

    /// The sequence number, within the run, of the ledger entry about its end.
    pub(crate) const fn seq(&self) -> Option<i64> {
        match &self.state {
            TaskState::Completed { seq, .. } | TaskState::Failed { seq, .. } => Some(*seq),
            _ => None,
        }
    }

    pub(crate) fn items(&self) -> &[Self] {
        match &self.state {
            TaskState::Mapping(mapping) => &mapping.items,
            TaskState::Completed { items, .. } | TaskState::Failed { items, .. } | TaskState::Cancelled { items } => {
                items
            }
            _ => &[],
        }
    }

    pub(crate) fn items_mut(&mut self) -> Option<&mut Vec<Self>> {
        match &mut self.state {
            TaskState::Mapping(mapping) => Some(&mut mapping.items),
            TaskState::Completed { items, .. } | TaskState::Failed { items, .. } | TaskState::Cancelled { items } => {
                Some(items)
            }
            _ => None,
        }
    }

    /// The value of `steps.status`.
    pub(crate) const fn status(&self) -> StepStatus {
        match self.state {
            TaskState::Pending { .. } | TaskState::Delayed { .. } => StepStatus::Pending,
            TaskState::Ready | TaskState::LookingUpCache | TaskState::Consulting => StepStatus::Ready,
            TaskState::AwaitingApproval(_) => StepStatus::AwaitingApproval,
            TaskState::Judging => StepStatus::Judging,
            TaskState::Running { .. }
            | TaskState::Lost { .. }
            | TaskState::Elsewhere { .. }
            | TaskState::Mapping(_) => StepStatus::Running,
            TaskState::RetryWait { .. } => StepStatus::RetryWait,
            TaskState::Waiting(_) => StepStatus::Waiting,
            TaskState::OutcomeUnknown { .. } => StepStatus::OutcomeUnknown,
            TaskState::Completed { .. } => StepStatus::Completed,
            TaskState::Failed { .. } => StepStatus::Failed,
            TaskState::Skipped => StepStatus::Skipped,
            TaskState::Cancelled { .. } => StepStatus::Cancelled,
            TaskState::RolledBack { .. } => StepStatus::RolledBack,
        }
    }

    /// When its timer is due.
    pub(crate) const fn deadline(&self) -> Option<Timestamp> {
        match &self.state {
            TaskState::Delayed { until } | TaskState::RetryWait { until, .. } => Some(*until),
            TaskState::Lost { deadline } => Some(*deadline),
            TaskState::Elsewhere { until, .. } => Some(*until),
            TaskState::AwaitingApproval(asked) => asked.deadline(),
            TaskState::Waiting(wait) => wait.timer(),
            _ => None,
        }
    }

    /// The value of `steps.retry_at`.
    pub(crate) const fn wait_until(&self) -> Option<Timestamp> {
        match &self.state {
            TaskState::Delayed { until } | TaskState::RetryWait { until, .. } => Some(*until),
            TaskState::Lost { deadline } => Some(*deadline),
            TaskState::Waiting(wait) => wait.until,
            _ => None,
        }
    }

    /// Whether the step's row must hold the input: as long as it has no result. The input of a finished
    /// call is in `tool_calls`.
    pub(crate) const fn needs_input_row(&self) -> bool {
        match self.state {
            TaskState::Completed { .. }
            | TaskState::Failed { .. }
            | TaskState::Skipped
            | TaskState::Cancelled { .. } => false,
            _ => self.input.is_some(),
        }
    }
}
