//! Approval requests and what people are shown to decide them.

use super::{RiskLevel, ScheduleCause};
use crate::flow::run_approve::DecisionWord;
use crate::wire::{AnyJson, DateTime, IntoWire, JsonObject, wire, words};
use chimera_core::flow::review;
use chimera_engine::flow::view;
use uuid::Uuid;

words! {
    /// Status of an approval request.
    pub(crate) ApprovalWord from review::ApprovalStatus {
        Open = "open",
        Expired = "expired",
        Superseded = "superseded",
        Cancelled = "cancelled",
        Approved = "approved",
        Denied = "denied",
    }

    /// What an approval request is about.
    pub(crate) ReviewSubject from review::Subject {
        Plan = "plan",
        Patch = "patch",
        Question = "question",
        ChildRun = "child_run",
        Map = "map",
        Output = "output",
        Call = "call",
    }
}

wire! {
    /// A pending approval request.
    pub(crate) ApprovalDocument from view::PendingApproval {
        /// Id of the approval request.
        approval_id: Uuid,
        /// Id of the step; null if the request is about the whole plan.
        step_id: Option<Uuid>,
        /// Id of the step's node.
        node_id: Option<String>,
        /// Type of the action: a tool, `hitl`, `workflow`, `map`, `plan` or `graph.patch`.
        action_type: String,
        /// The action with its input, as stored; its members depend on `action_type`.
        action: Option<JsonObject>,
        /// The review that people are shown: the requester, every tool call with its input and dry-run result, the risk
        /// with its reasons, what changed since it was last shown, and the current status.
        review: ReviewDocument,
        /// Digest that a decision covers.
        digest: Option<String>,
        /// Minimum number of approvals; more may be needed if one person does not satisfy every requirement.
        approvals_needed: i64,
        /// Decisions so far.
        decisions: Vec<DecisionDocument>,
        /// Actor who requested the run.
        requested_by: String,
        /// Actors who count as requesters too: those who last changed what would run, or requested the run that is
        /// replayed. Where somebody other than the requester must decide, they cannot.
        changed_by: Vec<String>,
        /// When the approval was requested.
        created_at: Option<DateTime>,
        /// When the request expires.
        expires_at: Option<DateTime>,
    }

    /// A closed approval request.
    pub(crate) DecidedApprovalDocument from view::ClosedApproval {
        /// Id of the approval request.
        approval_id: Uuid,
        /// Id of the node; null if the request was about the whole plan.
        node_id: Option<String>,
        /// Type of the action.
        action_type: String,
        /// Digest that the request covered.
        digest: Option<String>,
        /// How it was closed.
        standing: ApprovalStanding,
    }

    /// Whether an approval request is open, and if not, why.
    pub(crate) ApprovalStanding from review::ApprovalState {
        /// Current status.
        status: ApprovalWord,
        /// Who decided or changed it.
        by: Vec<String>,
        /// When it was closed.
        #[schema(format = DateTime)]
        at: Option<String>,
        /// Their notes.
        notes: Option<String>,
    }

    /// One person's decision.
    pub(crate) DecisionDocument from view::ApprovalDecision {
        /// Who decided.
        by: String,
        /// The decision.
        #[schema(value_type = DecisionWord)]
        decision: String,
        /// When.
        #[schema(format = DateTime)]
        at: String,
        /// Their notes.
        notes: Option<String>,
    } + maybe {
        /// False if the person may no longer decide, so that the decision does not count.
        counts: bool,
    }

    /// Everything a person needs to decide about an approval request.
    pub(crate) ReviewDocument from review::Review {
        /// Id of the approval request.
        approval_id: Uuid,
        /// Id of the run.
        run_id: Uuid,
        /// Id of the workflow.
        workflow_id: String,
        /// Actor who requested the run.
        requested_by: String,
        /// The schedule that started the run; null if none did.
        schedule: Option<ScheduleCause>,
        /// Actors who count as requesters too.
        changed_by: Vec<String>,
        /// Autonomy level of the run.
        autonomy_level: String,
        /// What the request is about.
        subject: ReviewSubject,
        /// Id of the node; null if it is about the whole plan.
        node_id: Option<String>,
        /// Why approval is required.
        reason: String,
        /// The question of a `hitl` node.
        question: Option<QuestionDocument>,
        /// Calls that would be made, in order.
        calls: Vec<PlannedCallDocument>,
        /// Number of calls in `calls`, identical ones included.
        calls_listed: u64,
        /// Known calls that are not in `calls`; each needs its own approval.
        calls_unlisted: u64,
        /// Maps whose list is not known yet; they need approval once it is.
        maps_unknown: Vec<String>,
        /// The patch document, if the request is about one.
        patch: AnyJson,
        /// The risk, with its reasons in words.
        risk: Option<RiskSummaryDocument>,
        /// Where the result of the run is sent.
        notifies: Vec<String>,
        /// Differences from the previous request.
        changes: Vec<ChangeDocument>,
        /// Why it cannot be approved.
        refusals: Vec<String>,
        /// Digest that a decision covers.
        digest: Option<String>,
        /// When the approval was requested.
        #[schema(format = DateTime)]
        created_at: Option<String>,
        /// When the request expires.
        #[schema(format = DateTime)]
        expires_at: Option<String>,
        /// Minimum number of approvals.
        approvals_needed: i64,
        /// Decisions so far.
        decisions: Vec<DecisionDocument>,
        /// Current status.
        standing: ApprovalStanding,
    }

    /// The question of a `hitl` node.
    pub(crate) QuestionDocument from review::Question {
        /// The prompt; null if there is only data.
        prompt: Option<String>,
        /// Data that the person is shown.
        shown: AnyJson,
    }

    /// One call, or several identical ones.
    pub(crate) PlannedCallDocument from review::PlannedCall {
        /// Node, and item of a map: `upload[3]`.
        place: String,
        /// What happens there, as a phrase.
        what: String,
        /// Input of the call; null if it makes none.
        input: AnyJson,
        /// Further items with the identical call, as ranges.
        alike: Vec<String>,
        /// Number of those items.
        alike_count: u64,
        /// What the call would do, according to the dry run.
        would: Option<String>,
        /// Remarks.
        notes: Vec<String>,
        /// Why the rules refuse it.
        refused: Option<String>,
        /// Why the dry run failed.
        failed: Option<String>,
    }

    /// The risk, with its reasons in words.
    pub(crate) RiskSummaryDocument from review::RiskSummary {
        /// The score.
        score: u32,
        /// Class of the score.
        #[schema(value_type = RiskLevel)]
        band: String,
        /// Reasons in words.
        reasons: Vec<RiskSummaryReason>,
    }

    /// One reason, with every place where it occurs.
    pub(crate) RiskSummaryReason from review::RiskReason {
        /// What it means.
        meaning: String,
        /// Points of all its occurrences.
        points: u32,
        /// JSON pointers into the plan.
        places: Vec<String>,
    }

    /// One difference. An added call has no `before`, a removed one no `after`.
    pub(crate) ChangeDocument from review::Change {
        /// The call and the member of its input: `upload[3]/key`.
        place: String,
        /// What was shown before.
        before: AnyJson,
        /// What is shown now.
        after: AnyJson,
    }
}

impl IntoWire<DecisionDocument> for review::RecordedDecision {
    fn into_wire(self) -> DecisionDocument {
        let Self { by, decision, at, notes } = self;
        DecisionDocument { by, decision, at, notes, counts: None }
    }
}
