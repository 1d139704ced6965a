//! One place of a run: a node, or an item of a map node.
//!
//! | state       | on                                    | becomes                                        |
//! |-------------|---------------------------------------|------------------------------------------------|
//! | `Pending`   | its last edge is decided              | `Delayed`, `Ready` or `Skipped`                |
//! | `Delayed`   | its time has come                     | `Ready`                                        |
//! | `Ready`     | a slot is free                        | `Asking`, `Recalling`, `Running`, `Child`, `Mapping`, `Completed` (a recording) |
//! | `Asking`    | approved, denied, edited, expired     | `Ready`, `Failed`, `Asking`, run is cancelled  |
//! | `Recalling` | found, not found                      | `Completed`, `Running`                         |
//! | `Running`   | output, error, check                  | `Completed`, `RetryWait`, `Running`, `Failed`, `Unknown` |
//! | `Lost`      | nobody can be working on it any more  | `Running`, `Unknown`                           |
//! | `RetryWait` | its time has come                     | `Ready`                                        |
//! | `Child`     | the child ended                       | `Completed`, `Failed`                          |
//! | `Mapping`   | the last item ended                   | `Completed`, `Failed`                          |
//! | `Unknown`   | a person says what became of it       | `Completed`, `Ready`                           |
//! | `Completed` | undone                                | `RolledBack`                                   |

use super::event::Mode;
use super::load::approving;
use super::status::{EffectStatus, StepStatus};
use crate::error::ErrorBody;
use crate::json::Digest32;
use crate::record::{Json, Row};
use crate::time::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

/// One place and all that is known of it.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) state: State,
    /// Its row, once it has one.
    pub(crate) step: Option<Stored>,
    /// Its effect's row, once it has one.
    pub(crate) effect: Option<StoredEffect>,
    /// The exact input, once it is resolved.
    pub(crate) input: Option<Arc<Value>>,
    /// Digest of the input.
    pub(crate) digest: Option<Digest32>,
    /// Tries so far.
    pub(crate) attempt: u32,
    /// Times it was sent anew after a crash; they don't count as retries.
    pub(crate) resends: u32,
    /// Times that it was asked what became of it.
    pub(crate) checks: u32,
    /// What raised the question whether it happened, while the tool is asked; none after a crash.
    pub(crate) doubt: Option<Box<ErrorBody>>,
    /// One of its sends may have happened without anybody knowing.
    pub(crate) in_doubt: bool,
    /// A recorded output was looked for in vain: it is not looked for again while it waits for a slot.
    pub(crate) not_recorded: bool,
    /// Who has approved exactly this input.
    pub(crate) approved: Option<Approved>,
    /// Who edited what would run here.
    pub(crate) changed_by: Vec<String>,
    /// The run that it started.
    pub(crate) child: Option<Uuid>,
    pub(crate) started_at: Option<Timestamp>,
}

/// A row of ours in `steps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) id: Uuid,
    /// Zero until it was written first.
    pub(crate) version: i64,
}

/// A row of ours in `effects`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredEffect {
    pub(crate) id: Uuid,
    pub(crate) version: i64,
    pub(crate) status: EffectStatus,
    /// It was written after the store was restored, or the store never was.
    pub(crate) since_restore: bool,
}

/// An approval that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Approved {
    pub(crate) digest: Digest32,
    /// How many requests of the run there were before the one that was approved.
    pub(crate) showing: u32,
    pub(crate) by: Approvers,
    pub(crate) notes: Option<String>,
}

/// Who approved something, and when the last of them did. A name may be somebody else's by now, for whom nothing of this
/// counts; those who approved earlier were looked at again when the last one did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Approvers {
    pub(crate) names: Vec<String>,
    /// None: it was not kept, and anybody who has got their name may have got it since.
    pub(crate) at: Option<Timestamp>,
}

impl Approvers {
    /// Those who approved a request, as its row has them.
    pub(crate) fn of_row(row: &Row) -> Self {
        let decisions = row.get("decisions").as_json().map(Json::to_value).unwrap_or_default();
        let said = decisions.as_array().into_iter().flatten().filter(|said| said["decision"] == "approve");
        let at = said.filter_map(|said| said["at"].as_str()?.parse().ok()).max();
        Self { names: approving(&decisions), at }
    }
}

impl Approved {
    /// Whether it is about this.
    pub(crate) fn is_about(&self, content: Digest32) -> bool {
        self.digest == shown(content, self.showing)
    }
}

/// The digest under which something is shown for the first time, or again: what was changed and changed back is another
/// question than it was, and a decision about the older one is not about this one.
pub(crate) fn shown(content: Digest32, showing: u32) -> Digest32 {
    match showing {
        0 => content,
        _ => Digest32::of(&json!({"content": content, "showing": showing})),
    }
}

/// A request that waits for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) id: Uuid,
    pub(crate) digest: Digest32,
    /// How many requests of the run there were before it.
    pub(crate) showing: u32,
    pub(crate) expires_at: Timestamp,
    /// Nobody has decided yet.
    pub(crate) open: bool,
    /// It was taken back before anybody decided: whoever did so says why, and then people are asked anew.
    pub(crate) taken_back: bool,
}

impl Asked {
    /// Whether it is about this.
    pub(crate) fn is_about(&self, content: Digest32) -> bool {
        self.digest == shown(content, self.showing)
    }

    pub(crate) const fn take_back(&mut self) {
        (self.open, self.taken_back) = (false, true);
    }
}

/// A map node at work.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mapping {
    /// What it goes over.
    pub(crate) over: Arc<Vec<Value>>,
    /// Its items, as far as they were started or loaded.
    pub(crate) items: Vec<Task>,
    /// Items that have not ended.
    pub(crate) open: usize,
    /// Items that were started and have not ended.
    pub(crate) busy: usize,
    /// The first item that failed.
    pub(crate) failed: Option<u32>,
}

/// Where a task stands.
#[derive(Clone, Debug)]
pub(crate) enum State {
    Pending { undecided: u32, taken: bool },
    Delayed { until: Timestamp },
    Ready,
    Asking(Asked),
    Recalling,
    Running { call: Uuid, mode: Mode },
    Lost { deadline: Timestamp },
    RetryWait { until: Timestamp, error: Box<ErrorBody> },
    Child { run: Uuid },
    Mapping(Mapping),
    Unknown { error: Box<ErrorBody> },
    Completed { output: Arc<Value>, seq: i64, items: Vec<Task> },
    Failed { error: Box<ErrorBody>, output: Arc<Value>, seq: i64, items: Vec<Task> },
    Skipped,
    Cancelled { items: Vec<Task> },
    RolledBack { output: Arc<Value> },
}

impl Task {
    pub(crate) const fn pending(undecided: u32) -> Self {
        Self {
            state: State::Pending { undecided, taken: false },
            step: None,
            effect: None,
            input: None,
            digest: None,
            attempt: 0,
            resends: 0,
            checks: 0,
            doubt: None,
            in_doubt: false,
            not_recorded: false,
            approved: None,
            changed_by: Vec::new(),
            child: None,
            started_at: None,
        }
    }

    /// Digest of what it is given.
    pub(crate) fn input_digest(&self) -> Digest32 {
        self.digest.unwrap_or_else(|| Digest32::of(self.input.as_deref().unwrap_or(&Value::Null)))
    }

    /// Whether nothing more happens to it by itself.
    pub(crate) const fn is_settled(&self) -> bool {
        use State::{Cancelled, Completed, Failed, RolledBack, Skipped};
        matches!(self.state, Completed { .. } | Failed { .. } | Skipped | Cancelled { .. } | RolledBack { .. })
    }

    /// What it gave, as expressions see it.
    pub(crate) const fn output(&self) -> Option<&Arc<Value>> {
        match &self.state {
            State::Completed { output, .. } | State::Failed { output, .. } | State::RolledBack { output } => {
                Some(output)
            }
            _ => None,
        }
    }

    /// The entry of the run that says how it ended.
    pub(crate) const fn seq(&self) -> Option<i64> {
        match &self.state {
            State::Completed { seq, .. } | State::Failed { seq, .. } => Some(*seq),
            _ => None,
        }
    }

    /// The items of a map node.
    pub(crate) fn items(&self) -> &[Self] {
        match &self.state {
            State::Mapping(mapping) => &mapping.items,
            State::Completed { items, .. } | State::Failed { items, .. } | State::Cancelled { items } => items,
            _ => &[],
        }
    }

    /// The items of a map node.
    pub(crate) fn items_mut(&mut self) -> Option<&mut Vec<Self>> {
        match &mut self.state {
            State::Mapping(mapping) => Some(&mut mapping.items),
            State::Completed { items, .. } | State::Failed { items, .. } | State::Cancelled { items } => Some(items),
            _ => None,
        }
    }

    /// The word in `steps.status`.
    pub(crate) const fn status(&self) -> StepStatus {
        match self.state {
            State::Pending { .. } | State::Delayed { .. } => StepStatus::Pending,
            State::Ready | State::Recalling => StepStatus::Ready,
            State::Asking(_) => StepStatus::AwaitingApproval,
            State::Running { .. } | State::Lost { .. } | State::Child { .. } | State::Mapping(_) => StepStatus::Running,
            State::RetryWait { .. } => StepStatus::RetryWait,
            State::Unknown { .. } => StepStatus::OutcomeUnknown,
            State::Completed { .. } => StepStatus::Completed,
            State::Failed { .. } => StepStatus::Failed,
            State::Skipped => StepStatus::Skipped,
            State::Cancelled { .. } => StepStatus::Cancelled,
            State::RolledBack { .. } => StepStatus::RolledBack,
        }
    }

    /// When it wants to be looked at again.
    pub(crate) const fn deadline(&self) -> Option<Timestamp> {
        match &self.state {
            State::Delayed { until } | State::RetryWait { until, .. } => Some(*until),
            State::Lost { deadline } => Some(*deadline),
            State::Asking(asked) if asked.open => Some(asked.expires_at),
            _ => None,
        }
    }
}
