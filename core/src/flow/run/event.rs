//! What happens to a run, and what it wants done.
//!
//! A run is told events and answers with a turn: rows to commit, notes for the ledger, and effects
//! that may be performed once the rows are durable.

use super::doubt::Doubt;
use super::rows_people::Requested;
use super::status::RunStatus;
use crate::access::Actor;
use crate::error::ErrorBody;
use crate::flow::call::Answer;
use crate::ledger::decision::{Outcome, Source};
use crate::record::Tx;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use uuid::Uuid;

/// A place in a run: a node, or one item of a map node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    /// Position of the node in the graph.
    pub node: usize,
    /// Position of the item in its list.
    pub item: Option<u32>,
}

impl At {
    /// The node itself.
    #[must_use]
    pub const fn node(node: usize) -> Self {
        Self { node, item: None }
    }
}

/// What happens to a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// It was created, or loaded by a process that takes it up.
    Begun {
        /// Nobody else can still be working on it.
        alone: bool,
    },
    /// A call ended.
    Answered {
        /// Where.
        at: At,
        /// Which call.
        call: Uuid,
        /// How.
        answer: Answer,
        /// How long it took.
        took_ms: i64,
    },
    /// A recorded output was looked for.
    Recalled {
        /// Where.
        at: At,
        /// What was found.
        hit: Option<Value>,
    },
    /// Somebody told it something.
    Signalled(Signal),
    /// A deadline may have passed, or a slot may be free.
    Tick,
    /// The turn before could not be written, and the run was read again.
    Unwritten {
        /// What its calls gave meanwhile.
        answers: Vec<Kept>,
        /// It is given another chance; otherwise the run fails, or its rollback ends.
        again: bool,
    },
}

/// The answer of a call that a turn took in which could not be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// Where.
    pub at: At,
    /// Which call.
    pub call: Uuid,
    /// How it ended.
    pub answer: Answer,
    /// How long it took.
    pub took_ms: i64,
    /// An earlier send of it may have happened.
    pub in_doubt: bool,
}

/// Something that was told from outside, as `run_signals` keeps it.
#[derive(Clone, Debug, PartialEq)]
pub struct Signal {
    /// Its row; consuming it deletes the row.
    pub id: Uuid,
    /// What was told.
    pub told: Told,
    /// Requests for a decision that were taken back in the same transaction.
    pub taken_back: Vec<Uuid>,
}

/// What others may tell a run. The word is the row's `kind`, the rest its payload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Told {
    /// Something that this version can't read. It is never stored.
    #[serde(skip)]
    Unreadable {
        /// The word of its row.
        kind: String,
    },
    /// Enough people approved.
    Approved {
        /// The request.
        approval: Uuid,
        /// Who.
        by: Vec<String>,
        /// When the last of them did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<String>,
        /// What they said.
        notes: Option<String>,
    },
    /// A person said no.
    Denied {
        /// The request.
        approval: Uuid,
        /// Who.
        by: Actor,
        /// What they said.
        notes: Option<String>,
        /// They want it changed rather than dropped.
        changes: bool,
    },
    /// A person changed the input of a step that waits for approval.
    Edited {
        /// The step.
        step: Uuid,
        /// Its new input.
        input: Value,
        /// Who.
        by: Actor,
        /// The request that was taken back together with this message.
        #[serde(default)]
        approval: Option<Uuid>,
    },
    /// A person changed the input of a step of a plan that waits for approval.
    PlanEdited {
        /// The node.
        node: String,
        /// Its new input.
        input: Value,
        /// Who.
        by: Actor,
        /// The request that was taken back together with this message.
        approval: Uuid,
    },
    /// A child run ended.
    ChildEnded {
        /// The step that started it.
        step: Uuid,
        /// How.
        status: String,
        /// What it gave.
        result: Option<Value>,
        /// Why it failed.
        error: Option<ErrorBody>,
        /// Who had a part in what it gave.
        #[serde(default)]
        changed_by: Vec<String>,
    },
    /// Somebody wants it stopped.
    Cancel {
        /// Who.
        by: Actor,
        /// Why.
        reason: Option<String>,
    },
    /// Somebody wants it held.
    Pause {
        /// Who.
        by: Actor,
    },
    /// Somebody wants it to go on.
    Resume {
        /// Who.
        by: Actor,
    },
    /// A person found out what became of an effect.
    Resolve {
        /// The step.
        step: Uuid,
        /// The try that they looked at: what was true of it says nothing about a later one.
        attempt: u32,
        /// Whether it happened.
        happened: bool,
        /// What it gave.
        output: Option<Value>,
        /// Who.
        by: Actor,
        /// How they know.
        notes: Option<String>,
    },
    /// Somebody wants it undone.
    Rollback {
        /// Only these steps; all when absent.
        steps: Option<Vec<Uuid>>,
        /// Who.
        by: Actor,
        /// Why.
        reason: Option<String>,
        /// The run that started it is rolled back and waits for this.
        #[serde(default)]
        for_parent: bool,
    },
    /// A child run was rolled back as far as that could be.
    ChildUndone {
        /// The step that started it.
        step: Uuid,
        /// Nothing is left of it.
        whole: bool,
    },
    /// A person has undone by hand what a run did.
    MarkRolledBack {
        /// Who.
        by: Actor,
        /// How, or why.
        #[serde(default)]
        reason: Option<String>,
    },
    /// A patch was proposed.
    Patch {
        /// Its number within the run.
        number: u32,
        /// What it adds.
        patch: Value,
        /// Who.
        by: Actor,
        /// How risky that looked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        risk: Option<Value>,
    },
    /// Somebody wants a patch taken back.
    Unpatch {
        /// Its number within the run.
        number: u32,
        /// Who.
        by: Actor,
    },
}

impl Told {
    /// The kinds that have a run undone.
    pub const UNDOING: [&'static str; 2] = ["rollback", "mark_rolled_back"];

    /// The word in `run_signals.kind`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "unreadable",
            Self::Approved { .. } => "approved",
            Self::Denied { .. } => "denied",
            Self::Edited { .. } => "edited",
            Self::PlanEdited { .. } => "plan_edited",
            Self::ChildEnded { .. } => "child_ended",
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

    /// Who told it, if it is about what was sent and what is to be: whoever spoke before a backup could
    /// not know what came after it, so their word does not count once that state was put back.
    #[must_use]
    pub const fn lapses_with_restore(&self) -> Option<&Actor> {
        match self {
            Self::Resolve { by, .. } | Self::Rollback { by, .. } | Self::MarkRolledBack { by, .. } => Some(by),
            // What these lead to is in doubt by itself.
            Self::Unreadable { .. }
            | Self::Approved { .. }
            | Self::Denied { .. }
            | Self::Edited { .. }
            | Self::PlanEdited { .. }
            | Self::ChildEnded { .. }
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
pub enum Mode {
    /// For real.
    Execute,
    /// Only to say what it would do.
    Dry,
    /// To find out whether it happened.
    Check,
    /// To undo what gave this.
    Undo {
        /// What the call gave.
        output: Arc<Value>,
    },
}

/// A call that is to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Where.
    pub at: At,
    /// Which call.
    pub id: Uuid,
    /// The step.
    pub step: Uuid,
    /// The effect, the same for every attempt.
    pub effect: Uuid,
    /// What makes repeated sends one effect.
    pub key: String,
    /// Which try, from one.
    pub attempt: u32,
    /// The tool.
    pub tool: String,
    /// How.
    pub mode: Mode,
    /// With what.
    pub input: Arc<Value>,
    /// When the answer must be there.
    pub deadline: Timestamp,
}

/// What a run wants done. Nothing of it happens before the turn's rows are durable.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Call a tool; answer with `Answered`.
    Call(Call),
    /// Tell the call at this place to stop.
    Cancel(At),
    /// Look for a recorded output; answer with `Recalled`.
    Recall {
        /// Where.
        at: At,
        /// Under which key.
        key: String,
    },
    /// Another run has something to do: a child was created, or a parent was told.
    Wake(Uuid),
    /// Somebody is to be told: a row in `notifications` is new.
    Notify,
    /// The slot of this place is free again.
    Release(At),
}

/// A line for the ledger.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// What happened.
    pub event_type: &'static str,
    /// The step it is about; the run when absent.
    pub step: Option<Uuid>,
    /// Who caused it; the system when absent.
    pub by: Option<Actor>,
    /// Its number within the run.
    pub run_seq: i64,
    /// Digests, references, codes.
    pub data: Value,
    /// The governance decision it is, if it is one.
    pub verdict: Option<Verdict>,
}

/// A governance decision that a run made or met.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Where it was decided.
    pub source: Source,
    /// How.
    pub outcome: Outcome,
    /// Why.
    pub rationale: String,
    /// The rules that were looked at.
    pub policies: Vec<String>,
}

/// What became of the events that a run was told.
#[derive(Debug, Default)]
pub struct Turn {
    /// Rows to commit; none when nothing durable changed.
    pub tx: Option<Tx>,
    /// Lines for the ledger, in their order.
    pub notes: Vec<Note>,
    /// Who is asked for a decision, to be told with the rows.
    pub asked: Vec<Requested>,
    /// Calls whose outcome is unknown since this turn; people are told with the rows.
    pub doubted: Vec<Doubt>,
    /// What may be done once the rows are durable.
    pub effects: Vec<Effect>,
    /// There is more to decide: tell it a `Tick` after the commit.
    pub more: bool,
    /// The status that is new with this turn.
    pub status: Option<RunStatus>,
    /// The run gives its owner up with this turn and need not stay in memory.
    pub parked: bool,
    /// It is parked until there is a slot for it, and goes on by itself then.
    pub waits_for_slot: bool,
}
