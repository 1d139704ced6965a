//! The inputs and outputs of the run state machine.
//!
//! A run takes events and returns a turn: rows to commit, ledger entries, and effects that may be
//! performed once the rows are durable.

use super::approval_rows::ApprovalRequested;
use super::doubts::UnknownOutcome;
use super::status::RunStatus;
use crate::access::Actor;
use crate::error::ErrorBody;
use crate::flow::call::CallOutcome;
use crate::flow::event::{EventLookup, ReceivedEvent};
use crate::flow::reservation::{Facts, Limit, Reservation, Window};
use crate::flow::tables::{RUN_SIGNALS, SignalRow, run_signals};
use crate::flow::work::{Elsewhere, WorkStatus};
use crate::ledger::decision::{DecisionSource, Outcome};
use crate::record::{Insert, Json, JsonError, Tx, Unstorable};
use crate::time::Timestamp;
use crate::tool::Spec;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use uuid::Uuid;

/// A place in a run: a node, or one item of a map node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunPlace {
    /// The position of the node in the graph.
    pub node: usize,
    /// The position of the item in its list.
    pub item: Option<u32>,
}

impl RunPlace {
    /// The node itself.
    #[must_use]
    pub const fn node(node: usize) -> Self {
        Self { node, item: None }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// It was created, or claimed and loaded by this process.
    Claimed {
        /// No other process can still be working on it.
        owns_all_calls: bool,
    },
    /// A call ended.
    CallAnswered {
        at: RunPlace,
        call: Uuid,
        answer: CallOutcome,
        took_ms: i64,
    },
    /// A cache lookup ended.
    CacheLookedUp {
        at: RunPlace,
        hit: Option<Value>,
    },
    /// A lookup of an event ended.
    EventLookedUp {
        at: RunPlace,
        /// Whether it began after the timeout of the wait.
        last: bool,
        found: EventLookup,
    },
    /// What the limits on a call have counted was read.
    Consulted {
        at: RunPlace,
        facts: Facts,
    },
    Signalled(Signal),
    /// A deadline may have passed, or a slot may be free.
    Tick,
    /// The previous turn could not be stored, and the run was loaded again.
    TurnRefused {
        /// The answers of its calls meanwhile.
        answers: Vec<ReceivedAnswer>,
        then: AfterRefusal,
    },
}

/// What a run does after a turn that the store refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterRefusal {
    /// It tries again.
    Retry,
    /// It fails, or its rollback ends.
    End,
    /// The same. Signals are consumed without being applied: one of them may be what the store refuses.
    EndWithoutSignals,
}

/// The answer of a call, applied by a turn that could not be stored.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceivedAnswer {
    pub at: RunPlace,
    pub call: Uuid,
    pub answer: CallOutcome,
    pub took_ms: i64,
    /// An earlier send of it may have taken effect.
    pub in_doubt: bool,
}

/// A signal from outside the run, as stored in `run_signals`.
#[derive(Clone, Debug, PartialEq)]
pub struct Signal {
    /// The id of its row. Applying the signal deletes the row.
    pub id: Uuid,
    pub kind: SignalKind,
    /// Approval requests that were withdrawn in the same transaction.
    pub withdrawn: Vec<Uuid>,
}

/// The kinds of signals. The tag is the row's `kind`, the rest its payload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum SignalKind {
    /// A signal that this version can't read. It is never stored.
    #[serde(skip)]
    Unreadable {
        /// The `kind` of its row.
        kind: String,
    },
    /// Enough people approved.
    Approved {
        approval: Uuid,
        by: Vec<String>,
        /// What they said.
        notes: Option<String>,
    },
    /// A person rejected it.
    Denied {
        approval: Uuid,
        by: Actor,
        notes: Option<String>,
        /// The person requested changes.
        changes: bool,
    },
    /// A person changed the input of a step that waits for approval.
    Edited {
        step: Uuid,
        input: Value,
        by: Actor,
        /// The request that was withdrawn with this signal.
        #[serde(default)]
        approval: Option<Uuid>,
    },
    /// A person changed the input of a step of a plan that waits for approval.
    PlanEdited {
        node: String,
        input: Value,
        by: Actor,
        /// The request that was withdrawn with this signal.
        approval: Uuid,
    },
    /// Work elsewhere ended. Stores written before there was other work than child runs have the kind `child_ended`.
    #[serde(alias = "child_ended")]
    WorkEnded {
        /// The step that waits for it.
        step: Uuid,
        /// `None` in signals of that time: the child run of the step.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        work: Option<Elsewhere>,
        status: WorkStatus,
        result: Option<Value>,
        error: Option<ErrorBody>,
        /// It failed, and may have taken effect all the same.
        #[serde(default)]
        may_have_happened: bool,
        #[serde(default)]
        took_ms: i64,
        /// Everyone who contributed to its result.
        #[serde(default)]
        changed_by: Vec<String>,
    },
    /// An event was published that the run waited for.
    EventReceived {
        event: ReceivedEvent,
    },
    Cancel {
        by: Actor,
        reason: Option<String>,
    },
    Pause {
        by: Actor,
    },
    Resume {
        by: Actor,
    },
    /// A person resolved an unknown outcome.
    Resolve {
        step: Uuid,
        /// The attempt that they checked. It says nothing about a later one.
        attempt: u32,
        /// Whether the call took effect.
        happened: bool,
        output: Option<Value>,
        by: Actor,
        notes: Option<String>,
    },
    Rollback {
        /// Only these steps. `None`: all.
        steps: Option<Vec<Uuid>>,
        by: Actor,
        reason: Option<String>,
        /// The parent run is being rolled back and waits for this run.
        #[serde(default)]
        for_parent: bool,
    },
    /// A child run was rolled back as far as possible.
    ChildUndone {
        /// The step that started it.
        step: Uuid,
        /// It was rolled back completely.
        whole: bool,
    },
    /// A person undid the run by hand.
    MarkRolledBack {
        by: Actor,
        #[serde(default)]
        reason: Option<String>,
    },
    /// A patch was proposed.
    Patch {
        /// Its number within the run.
        number: u32,
        patch: Value,
        by: Actor,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        risk: Option<Value>,
    },
    /// Remove a patch.
    Unpatch {
        /// Its number within the run.
        number: u32,
        by: Actor,
    },
}

impl SignalKind {
    /// The kinds that undo a run.
    pub const UNDO_KINDS: [&'static str; 2] = ["rollback", "mark_rolled_back"];

    /// The value of `run_signals.kind`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "unreadable",
            Self::Approved { .. } => "approved",
            Self::Denied { .. } => "denied",
            Self::Edited { .. } => "edited",
            Self::PlanEdited { .. } => "plan_edited",
            Self::WorkEnded { .. } => "work_ended",
            Self::EventReceived { .. } => "event_received",
            Self::Cancel { .. } => "cancel",
            Self::Pause { .. } => "pause",
            Self::Resume { .. } => "resume",
            Self::Resolve { .. } => "resolve",
            Self::Rollback { .. } => "rollback",
            Self::ChildUndone { .. } => "child_undone",
            Self::MarkRolledBack { .. } => "mark_rolled_back",
            Self::Patch { .. } => "patch",
            Self::Unpatch { .. } => "unpatch",
        }
    }

    /// The sender, if the signal lapses when the store is restored from a backup. Such a signal depends on
    /// which calls took effect, and its sender could not know what happened after the backup.
    #[must_use]
    pub const fn sender_if_lapsed_by_restore(&self) -> Option<&Actor> {
        match self {
            Self::Resolve { by, .. } | Self::Rollback { by, .. } | Self::MarkRolledBack { by, .. } => Some(by),
            // The calls that these lead to are checked on their own after a restore.
            Self::Unreadable { .. }
            | Self::Approved { .. }
            | Self::Denied { .. }
            | Self::Edited { .. }
            | Self::PlanEdited { .. }
            | Self::WorkEnded { .. }
            | Self::EventReceived { .. }
            | Self::Cancel { .. }
            | Self::Pause { .. }
            | Self::Resume { .. }
            | Self::ChildUndone { .. }
            | Self::Patch { .. }
            | Self::Unpatch { .. } => None,
        }
    }
}

/// How a tool is called.
#[derive(Clone, Debug, PartialEq)]
pub enum CallMode {
    Execute,
    /// A dry run: the tool only reports what it would do.
    DryRun,
    /// Finds out whether an earlier call took effect.
    Check,
    /// Undoes the call with this output.
    Undo {
        output: Arc<Value>,
    },
}

/// A call to make.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub at: RunPlace,
    pub id: Uuid,
    pub step: Uuid,
    /// The same for every attempt.
    pub effect: Uuid,
    /// The idempotency key, the same for every attempt.
    pub key: String,
    /// Counts from one.
    pub attempt: u32,
    /// The definition of the tool that is to be called, and no other.
    pub tool: Arc<Spec>,
    pub mode: CallMode,
    pub input: Arc<Value>,
    /// When the call times out.
    pub deadline: Timestamp,
}

/// An effect that a run requests. Performed only after the turn's rows are durable (pure calls of a first turn run
/// before it is committed).
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Call a tool. Reply with `CallAnswered`.
    Call(Call),
    /// Cancel the call at this place.
    Cancel(RunPlace),
    /// Look up a cached output. Reply with `CacheLookedUp`.
    LookUpCache { at: RunPlace, key: String },
    /// Look for the oldest event that the run has not received. Reply with `EventLookedUp`.
    LookUpEvent(EventQuery),
    /// Read what the limits on a call have counted. Reply with `Consulted`.
    Consult { at: RunPlace, limits: Vec<Limit> },
    /// Another run has something to do: a child run was created, or a run was sent a signal.
    Wake(Uuid),
    /// There is a new row in `notifications`.
    Notify,
    /// There is a new work item in this queue.
    WorkQueued(String),
    /// Release the slot of this place.
    Release(RunPlace),
}

/// What a waiting place looks for in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventQuery {
    pub at: RunPlace,
    pub name: String,
    pub key: String,
    /// The ids of the events that the run has received.
    pub received: Vec<String>,
    /// The timeout of the wait has passed.
    pub last: bool,
}

/// A ledger entry of the run.
#[derive(Clone, Debug, PartialEq)]
pub struct LedgerNote {
    pub event_type: &'static str,
    /// `None`: the entry is about the run.
    pub step: Option<Uuid>,
    /// `None`: the system.
    pub by: Option<Actor>,
    /// The sequence number within the run.
    pub run_seq: i64,
    /// Digests, references, codes.
    pub data: Value,
    /// Set if the entry is a governance decision.
    pub verdict: Option<GovernanceDecision>,
}

/// A governance decision about a run.
#[derive(Clone, Debug, PartialEq)]
pub struct GovernanceDecision {
    pub source: DecisionSource,
    pub outcome: Outcome,
    pub rationale: String,
    /// The rules that were evaluated.
    pub policies: Vec<String>,
}

/// The result of applying events to a run.
#[derive(Debug, Default)]
pub struct Turn {
    /// The rows to commit. `None` if nothing durable changed.
    pub tx: Option<Tx>,
    /// Ledger entries, in order.
    pub notes: Vec<LedgerNote>,
    /// New approval requests. The notifications are committed with the rows.
    pub asked: Vec<ApprovalRequested>,
    /// Calls whose outcome became unknown. The notifications are committed with the rows.
    pub unknown_outcomes: Vec<UnknownOutcome>,
    /// Performed once the rows are durable.
    pub effects: Vec<Effect>,
    /// Places within limits that its calls take. Whoever commits the rows adds those of the windows.
    pub reserved: Vec<Reservation>,
    /// The windows of these places, as far as they were read for this turn.
    pub windows_read: Vec<Window>,
    /// There is more to do: send a `Tick` after the commit.
    pub more: bool,
    /// The new status, if this turn changed it.
    pub status: Option<RunStatus>,
    /// No owner after this turn: the run is parked or has ended.
    pub parked: bool,
    /// It is parked until a slot is free, and resumes by itself then.
    pub waits_for_slot: bool,
    /// Nothing is under way until a person decides or a timer is due.
    pub waits_for_person: bool,
}

impl Turn {
    /// Whether nothing more happens without outside action or a timer. A run whose approval expires soon rests, too,
    /// although it stays in memory.
    #[must_use]
    pub const fn is_resting(&self) -> bool {
        (self.parked && !self.waits_for_slot) || self.waits_for_person
    }
}

/// The member of a signal's payload that names the approval requests withdrawn with it.
const TAKEN_BACK: &str = "taken_back";

impl Signal {
    /// A signal that withdraws no requests.
    #[must_use]
    pub const fn new(id: Uuid, kind: SignalKind) -> Self {
        Self { id, kind, withdrawn: Vec::new() }
    }

    pub fn row(&self, tenant: &str, run: Uuid, now: Timestamp) -> Result<Insert, Unstorable> {
        Ok(Insert::new(
            &RUN_SIGNALS,
            vec![
                (run_signals::run_id, run.into()),
                (run_signals::id, self.id.into()),
                (run_signals::tenant_id, tenant.into()),
                (run_signals::kind, self.kind.name().into()),
                (run_signals::payload, self.payload()?.into()),
                (run_signals::created_at, now.into()),
            ],
        )?)
    }

    fn payload(&self) -> Result<Json, Unstorable> {
        if self.withdrawn.is_empty() {
            return Ok(Json::encode(&self.kind)?);
        }
        let mut payload = serde_json::to_value(&self.kind).map_err(JsonError::Serialise)?;
        payload[TAKEN_BACK] = self.withdrawn.iter().map(Uuid::to_string).collect();
        Ok(Json::encode(&payload)?)
    }

    /// Reads the signal of a row. An unreadable one becomes `Unreadable`, which the run records in the ledger.
    #[must_use]
    pub fn of_row(row: SignalRow) -> Self {
        let SignalRow { id, kind, payload, .. } = row;
        let Ok(payload) = payload.value() else { return Self::new(id, SignalKind::Unreadable { kind }) };
        let requests = payload.get(TAKEN_BACK).and_then(Value::as_array).into_iter().flatten();
        let withdrawn = requests.filter_map(|id| Uuid::parse_str(id.as_str()?).ok()).collect();
        let kind = serde_json::from_value(payload).unwrap_or(SignalKind::Unreadable { kind });
        Self { id, kind, withdrawn }
    }
}
