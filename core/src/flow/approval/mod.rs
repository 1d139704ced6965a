//! Approvals: what a request is, and what a person's decision makes of it.
//!
//! | state     | on                                                       | becomes                |
//! |-----------|----------------------------------------------------------|------------------------|
//! | `Pending` | an approval, and the requirement is met                  | `Approved`             |
//! | `Pending` | an approval, and more people must approve                | `Pending`              |
//! | `Pending` | a rejection, or a request for changes                    | `Denied`               |
//! | `Pending` | nobody decides in time                                   | `Expired`              |
//! | `Pending` | what it is about changes                                 | `Superseded`           |
//! | `Pending` | what it is about will not happen                         | `Cancelled`            |
//!
//! All other states are final. `decide` is pure and fails closed: a request that can't be read completely, has expired
//! or is not pending is never approved. The people and the clock are arguments.

mod asked_for;
mod find;
mod request;
mod requirement;
mod stored;

pub use asked_for::Obligation;
pub(crate) use asked_for::{AskedFor, GivenApproval, stored_obligations};
pub use find::{FindRefusal, RequestReference};
pub(crate) use request::{ApprovalRequest, StepApproval, Validity, request_digest};
pub use requirement::{ApprovalRequirement, SamePerson};
pub(crate) use stored::{ASKED_FOR, EDITED_BY, SHOWING, current, newest_approved};
pub use stored::{ActionData, PersonDecision};

pub use crate::flow::status::RequestStatus;

use crate::flow::tables::ApprovalRow;
use crate::json::Digest32;
use crate::record::DamagedRows;
use crate::time::Timestamp;
use crate::words::words;
use uuid::Uuid;

words! {
    /// A person's decision.
    Decision {
        Approve = "approve",
        Reject = "reject",
        /// Rejected until it is changed.
        RequestChanges = "request_changes",
    }
}

/// What a request is about: the value of `approval_requests.action_type`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestedAction {
    /// The whole plan of a run.
    Plan,
    /// A patch of the graph.
    Patch,
    /// The question of a `hitl` node.
    Question,
    ChildRun,
    /// The items of a map.
    Map,
    /// An output that the judge of its step escalated.
    Output,
    /// A call of this tool.
    Call(String),
}

impl RequestedAction {
    /// Everything but the call of a tool.
    const NAMED: [Self; 6] = [Self::Plan, Self::Patch, Self::Question, Self::ChildRun, Self::Map, Self::Output];

    /// The action of a request's row. Every other word is the name of a tool: no tool has one of these
    /// ([`crate::tool::RESERVED_NAMES`]).
    #[must_use]
    pub fn parse(word: &str) -> Self {
        Self::NAMED.into_iter().find(|action| action.as_str() == word).unwrap_or_else(|| Self::Call(word.to_owned()))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Plan => "plan",
            Self::Patch => "graph.patch",
            Self::Question => "hitl",
            Self::ChildRun => "workflow",
            Self::Map => "map",
            Self::Output => "judge.output",
            Self::Call(tool) => tool,
        }
    }
}

/// A stored approval request.
#[derive(Clone, Debug)]
pub struct StoredApproval {
    pub id: Uuid,
    pub action: RequestedAction,
    /// The step that it is about. `None` for a plan or a patch.
    pub step: Option<Uuid>,
    /// The digest of exactly what would run.
    pub digest: Digest32,
    pub requirement: ApprovalRequirement,
    /// The actor of the run, then everyone else who requested or wrote what would run.
    pub requesters: Vec<String>,
    pub created_at: Timestamp,
    pub reviewed_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
    /// The version of its row.
    pub version: i64,
    pub state: RequestState,
    /// What people said so far.
    pub decisions: Vec<PersonDecision>,
    /// The action, as people see it.
    pub data: ActionData,
}

/// See the table at the top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestState {
    Pending,
    Approved { by: Vec<String>, notes: Option<String> },
    Denied,
    Expired,
    Superseded,
    Cancelled,
}

/// What the registry says about people.
pub struct People<'a> {
    pub same: SamePerson<'a>,
    /// Whether the earlier decision of a person still counts.
    pub may_still_decide: &'a dyn Fn(&str) -> bool,
}

/// The effect of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    pub outcome: DecisionOutcome,
    /// All decisions about the request, with this one.
    pub decisions: Vec<PersonDecision>,
    /// The number of approvals that count.
    pub approvals: usize,
    /// The minimum number of people.
    pub needed: i64,
}

/// What became of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecisionOutcome {
    /// More people must approve.
    Pending,
    Approved {
        by: Vec<String>,
    },
    /// `changes`: until it is changed.
    Denied {
        changes: bool,
    },
}

impl DecisionOutcome {
    #[must_use]
    pub const fn status(&self) -> RequestStatus {
        match self {
            Self::Pending => RequestStatus::Pending,
            Self::Approved { .. } => RequestStatus::Approved,
            Self::Denied { .. } => RequestStatus::Denied,
        }
    }
}

/// Why a decision is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecisionRefusal {
    #[error("this request is not pending: it is {}", .0.as_str())]
    NotPending(RequestStatus),
    #[error("you have already decided on this request")]
    AlreadyDecided,
    #[error("somebody with your mail address has already decided, and you count as one person")]
    SamePersonDecided,
}

impl RequestState {
    #[must_use]
    pub const fn status(&self) -> RequestStatus {
        match self {
            Self::Pending => RequestStatus::Pending,
            Self::Approved { .. } => RequestStatus::Approved,
            Self::Denied => RequestStatus::Denied,
            Self::Expired => RequestStatus::Expired,
            Self::Superseded => RequestStatus::Superseded,
            Self::Cancelled => RequestStatus::Cancelled,
        }
    }
}

impl StoredApproval {
    /// Decodes a row of `scoped_approvals`.
    pub fn of_row(row: &ApprovalRow) -> Result<Self, DamagedRows> {
        stored::decode(row)
    }

    /// Decodes the requests of a run.
    pub fn of_rows(rows: &[ApprovalRow]) -> Result<Vec<Self>, DamagedRows> {
        rows.iter().map(Self::of_row).collect()
    }

    /// The order of requests. The run dates them itself; the clock of a decision may differ.
    pub(crate) const fn order(&self) -> (Timestamp, Option<Timestamp>) {
        (self.created_at, self.reviewed_at)
    }

    /// Applies a decision to the request. Nothing is stored yet.
    pub fn decide(
        &self,
        said: PersonDecision,
        now: Timestamp,
        people: &People<'_>,
    ) -> Result<Decided, DecisionRefusal> {
        if self.state != RequestState::Pending {
            return Err(DecisionRefusal::NotPending(self.state.status()));
        }
        if self.expires_at.is_some_and(|end| end <= now) {
            return Err(DecisionRefusal::NotPending(RequestStatus::Expired));
        }
        let (decision, who) = (said.decision, said.by.clone());
        let mut decisions = self.decisions.clone();
        let repeats = match self.decisions.iter().find(|earlier| earlier.by == who) {
            // An approver may count again, for instance after being disabled for a while.
            Some(own) if (own.decision, decision) == (Decision::Approve, Decision::Approve) => true,
            Some(_) => return Err(DecisionRefusal::AlreadyDecided),
            None => {
                decisions.push(said);
                false
            }
        };
        for said in &mut decisions {
            // Stored with the request, so that a node that takes over the run knows it too.
            said.counts = said.by == who || (people.may_still_decide)(&said.by);
        }
        let by = approvers(&decisions);
        let is_met = self.requirement.is_met(&by, &self.requesters, people.same);
        let adds_nobody = || self.requirement.adds_no_approver(&by, &self.requesters, people.same);
        if !repeats && decision == Decision::Approve && adds_nobody() {
            return Err(DecisionRefusal::SamePersonDecided);
        }
        if repeats && !is_met && by == approvers(&self.decisions) {
            return Err(DecisionRefusal::AlreadyDecided);
        }
        let needed = self.requirement.people_needed_after(&by, &self.requesters, people.same);
        let approvals = by.len();
        let outcome = match decision {
            Decision::Approve if is_met => DecisionOutcome::Approved { by },
            Decision::Approve => DecisionOutcome::Pending,
            Decision::Reject => DecisionOutcome::Denied { changes: false },
            Decision::RequestChanges => DecisionOutcome::Denied { changes: true },
        };
        Ok(Decided { outcome, decisions, approvals, needed })
    }

    /// The status with which this request is closed when `decided` gets this outcome; `None` if it stays open. Other
    /// patches were based on a plan without this one, and a stopped run has nothing left to decide.
    #[must_use]
    pub fn superseded_by(&self, decided: &Self, outcome: &DecisionOutcome) -> Option<RequestStatus> {
        if self.id == decided.id || self.state != RequestState::Pending {
            return None;
        }
        match (outcome, &decided.action) {
            (DecisionOutcome::Approved { .. }, RequestedAction::Patch) => {
                (self.action == RequestedAction::Patch).then_some(RequestStatus::Superseded)
            }
            (DecisionOutcome::Denied { .. }, _) if decided.stops_run_if_denied() => Some(RequestStatus::Cancelled),
            _ => None,
        }
    }

    /// Whether a rejection stops the run. At a `hitl` node, or if the judge of the step escalated, the step fails, which
    /// the graph may handle.
    fn stops_run_if_denied(&self) -> bool {
        let only_step =
            matches!(self.action, RequestedAction::Patch | RequestedAction::Question | RequestedAction::Output);
        !only_step && !self.data.asked_for().is_escalated()
    }

    /// The minimum number of people, including those who have approved.
    #[must_use]
    pub fn people_needed(&self, same: SamePerson<'_>) -> i64 {
        self.requirement.people_needed_after(&approvers(&self.decisions), &self.requesters, same)
    }
}

/// Those whose approval counts, in the order in which they approved.
fn approvers(decisions: &[PersonDecision]) -> Vec<String> {
    let approving = decisions.iter().filter(|said| said.decision == Decision::Approve && said.counts);
    approving.map(|said| said.by.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const NOW: Timestamp = Timestamp::from_micros(1_000);

    /// Otherwise a request to call a tool could be shown as something else.
    #[test]
    fn no_tool_can_have_the_name_of_another_action() {
        let words: BTreeSet<&str> = RequestedAction::NAMED.iter().map(RequestedAction::as_str).collect();
        assert_eq!(words, BTreeSet::from(crate::tool::RESERVED_NAMES));
        for word in words {
            assert!(!matches!(RequestedAction::parse(word), RequestedAction::Call(_)));
        }
    }

    fn request(id: u128, needed: u32) -> StoredApproval {
        StoredApproval {
            id: Uuid::from_u128(id),
            action: RequestedAction::Call("s3_upload".to_owned()),
            step: Some(Uuid::from_u128(7)),
            digest: Digest32::of_bytes(b"what would run"),
            requirement: ApprovalRequirement { needed, ..ApprovalRequirement::one_approval("why") },
            requesters: vec!["user_ann".to_owned()],
            created_at: Timestamp::from_micros(0),
            reviewed_at: None,
            expires_at: Some(Timestamp::from_micros(2_000)),
            version: 1,
            state: RequestState::Pending,
            decisions: Vec::new(),
            data: ActionData::default(),
        }
    }

    fn says(by: &str, decision: Decision) -> PersonDecision {
        PersonDecision { at: String::new(), by: by.to_owned(), counts: true, decision, notes: None }
    }

    fn decide(request: &StoredApproval, by: &str, decision: Decision) -> Result<Decided, DecisionRefusal> {
        let people = People { same: &|one, other| one == other, may_still_decide: &|who| who != "user_gone" };
        request.decide(says(by, decision), NOW, &people)
    }

    #[test]
    fn a_request_stays_pending_until_enough_people_approve() {
        let mut two = request(1, 2);
        let first = decide(&two, "user_bob", Decision::Approve).unwrap();
        assert_eq!((first.outcome, first.approvals, first.needed), (DecisionOutcome::Pending, 1, 2));
        two.decisions = first.decisions;
        let second = decide(&two, "user_cid", Decision::Approve).unwrap();
        let by = vec!["user_bob".to_owned(), "user_cid".to_owned()];
        assert_eq!(second.outcome, DecisionOutcome::Approved { by });
    }

    #[test]
    fn the_approval_of_someone_who_may_no_longer_decide_does_not_count() {
        let mut two = request(1, 2);
        two.decisions = vec![says("user_gone", Decision::Approve)];
        let decided = decide(&two, "user_bob", Decision::Approve).unwrap();
        assert_eq!((decided.outcome, decided.approvals), (DecisionOutcome::Pending, 1));
        assert!(!decided.decisions[0].counts && decided.decisions[1].counts);
    }

    #[test]
    fn one_rejection_denies_and_nobody_decides_twice() {
        let mut one = request(1, 2);
        let denied = decide(&one, "user_bob", Decision::RequestChanges).unwrap();
        assert_eq!(denied.outcome, DecisionOutcome::Denied { changes: true });
        one.decisions = vec![says("user_bob", Decision::Approve)];
        for decision in [Decision::Approve, Decision::Reject] {
            assert_eq!(decide(&one, "user_bob", decision), Err(DecisionRefusal::AlreadyDecided));
        }
    }

    #[test]
    fn nothing_but_a_pending_request_in_time_can_be_decided() {
        let closed = |state| StoredApproval { state, ..request(1, 1) };
        for state in [RequestState::Denied, RequestState::Superseded, RequestState::Cancelled] {
            let status = state.status();
            assert_eq!(decide(&closed(state), "user_bob", Decision::Approve), Err(DecisionRefusal::NotPending(status)));
        }
        let late = StoredApproval { expires_at: Some(NOW), ..request(1, 1) };
        let refused = Err(DecisionRefusal::NotPending(RequestStatus::Expired));
        assert_eq!(decide(&late, "user_bob", Decision::Approve), refused);
    }

    #[test]
    fn a_decision_closes_the_requests_that_lose_their_ground() {
        let (call, other) = (request(1, 1), request(2, 1));
        let patch = |id| StoredApproval { action: RequestedAction::Patch, ..request(id, 1) };
        let (approved, denied) =
            (DecisionOutcome::Approved { by: Vec::new() }, DecisionOutcome::Denied { changes: false });
        assert_eq!(other.superseded_by(&call, &approved), None);
        assert_eq!(other.superseded_by(&call, &denied), Some(RequestStatus::Cancelled));
        assert_eq!(call.superseded_by(&call, &denied), None, "it is the one that was decided");
        assert_eq!(patch(4).superseded_by(&patch(3), &approved), Some(RequestStatus::Superseded));
        assert_eq!(call.superseded_by(&patch(3), &approved), None);
        assert_eq!(call.superseded_by(&patch(3), &denied), None, "the run goes on without the patch");
        let question = StoredApproval { action: RequestedAction::Question, ..request(5, 1) };
        assert_eq!(call.superseded_by(&question, &denied), None, "the graph may handle it");
    }
}
