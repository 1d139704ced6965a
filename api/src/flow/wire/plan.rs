//! Plans, their dry runs and their risk.

use super::step::{FailedCheckDocument, JudgeVerdict, JudgedPart};
use crate::ops::schema::ErrorDocument;
use crate::wire::{AnyJson, IntoWire, wire, words};
use chimera_core::flow::{policy, risk};
use chimera_engine::flow::view;
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

words! {
    /// `skipped`: the graph takes another path. `recorded`: done by the run that is retried, and not repeated.
    pub(crate) PlanLineStatus from view::LineStatus {
        Skipped = "skipped",
        Recorded = "recorded",
    }

    /// What happens at a node that calls no tool itself.
    pub(crate) PlanLineKind from view::LineKind {
        Hitl = "hitl",
        Workflow = "workflow",
        Map = "map",
        Wait = "wait",
    }

    /// A factor that makes a plan risky.
    pub(crate) RiskFactor from risk::Factor {
        ExternalRead = "external_read",
        ExternalWrite = "external_write",
        ExternalApi = "external_api",
        MediumTool = "medium_risk_tool",
        HighTool = "high_risk_tool",
        UnknownTool = "unknown_tool",
        DestructiveOperation = "destructive_operation",
        DestructiveWord = "destructive_word",
        Email = "pii_email",
        Phone = "pii_phone",
        Card = "pii_card",
        Iban = "pii_iban",
        NationalId = "pii_national_id",
        Unread = "unreadable_input",
        LargeInput = "large_input",
        HugeInput = "huge_input",
        Steps = "steps",
        ManySteps = "many_steps",
        DataFlow = "data_flow",
        Join = "join",
        DataLeaves = "data_leaves",
    }

    /// Why the autonomy level is not higher.
    pub(crate) LevelReason from policy::Because {
        Override = "override",
        AskedForLess = "asked_for_less",
        ToolRequiresApproval = "tool_requires_approval",
        ActorDefault = "actor_default",
        RiskScore = "risk_score",
        HighRiskTool = "high_risk_tool",
        Deletes = "deletes",
        MessageToOutsiders = "message_to_outsiders",
        ManySteps = "many_steps",
        UntrustedActor = "untrusted_actor",
        FirstTime = "first_time",
        Schedule = "schedule",
        UnconfirmedWorkflow = "unconfirmed_workflow",
    }
}

wire! {
    /// The plan of a run.
    pub(crate) PlanDocument from view::PlanView {
        /// Calls in order, and what happens at nodes that make none.
        steps: Vec<PlanStepDocument>,
        /// Whether there are more calls than `steps` lists.
        more: bool,
        /// What an approval of the whole plan covers.
        digest: Option<String>,
    }

    /// A call of a plan, or what happens at a node that makes none.
    pub(crate) PlanStepDocument from view::PlanLine {
        /// Step id: the name by which the step is decided and edited.
        step_id: String,
    } + maybe {
        /// Name of the tool.
        tool: String,
        /// Input of the tool, as far as it is known.
        input: AnyJson,
        /// Id of the node.
        node: String,
        /// Set if the node is not executed.
        status: PlanLineStatus,
        /// Type of the node if it calls no tool itself.
        r#type: PlanLineKind,
        /// What would happen.
        would_execute: String,
        /// What the input waits for.
        deferred: Deferral,
        /// Remark.
        warning: String,
        /// The node's judge.
        judge: PlannedJudgeDocument,
    } + maybe of call {
        /// Version of the tool.
        tool_version: String,
        /// Digest of the input.
        input_digest: String,
        /// Risk score of the call.
        risk: u32,
    } + maybe of covers {
        /// Index of the map item.
        item: u64,
        /// Further items with the identical call, as ranges of first and last.
        alike: Vec<[u64; 2]>,
    } + maybe of child {
        /// Id of the workflow of a child run.
        workflow_id: String,
        /// Version of that workflow.
        version: i64,
    } + maybe of map {
        /// Number of items of a map.
        items: u64,
        /// Number of items that the plan lists; each of the others needs its own approval.
        items_listed: u64,
        /// Maximum number of items of a map whose list is not known.
        items_max: u64,
        /// Maximum number of items at the same time.
        max_parallel: u64,
    }

    /// The judge of a planned call.
    pub(crate) PlannedJudgeDocument from view::PlannedJudge {
        /// What it decides on.
        of: JudgedPart,
        /// What it says about the input; null if that is not known yet.
        verdict: Option<JudgeVerdict>,
        /// Checks that fail.
        failed: Vec<FailedCheckDocument>,
    }

    /// Risk of a plan.
    pub(crate) RiskDocument from view::RiskView {
        /// Sum of the points of the reasons.
        score: u32,
        /// Reasons in plan order.
        reasons: Vec<RiskReasonDocument>,
    } + maybe {
        /// Why the autonomy level is not higher.
        level_because: LevelReason,
        /// Number of calls of the plan.
        calls: u64,
        /// Digest of the child workflows.
        within_digest: String,
    }

    /// One occurrence of a risk factor.
    pub(crate) RiskReasonDocument from risk::Reason {
        /// The factor.
        factor: RiskFactor,
        /// JSON pointer into the plan.
        pointer: String,
        /// Points that it adds.
        points: u32,
    }
}

/// What an input waits for: the list of a map (`true`), or the outputs of these nodes.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Deferral {
    List(bool),
    Nodes(Vec<String>),
}

impl IntoWire<Deferral> for view::Deferral {
    fn into_wire(self) -> Deferral {
        match self {
            Self::List(is_list) => Deferral::List(is_list),
            Self::Nodes(nodes) => Deferral::Nodes(nodes),
        }
    }
}

/// Dry-run result of a step. A tool may add members of its own.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DryRunDocument {
    /// Step id.
    step_id: String,
    /// Name of the tool; null if the node calls none.
    #[schema(required)]
    tool: Option<String>,
    /// `dry_run`, unless the tool says otherwise.
    #[schema(example = "dry_run")]
    status: String,
    /// What would happen.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false)]
    would_execute: Option<String>,
    /// Remark.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false)]
    warning: Option<String>,
    /// Why the dry run failed or was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = ErrorDocument, required = false)]
    error: Option<ErrorDocument>,
    /// Output that the call would have.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = AnyJson, required = false)]
    simulated_output: Option<AnyJson>,
    /// False if only the first items of the map were tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = bool, required = false)]
    tried: Option<bool>,
    /// Whether the input depends on results that a dry run can't know.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = bool, required = false)]
    deferred: Option<bool>,
    #[serde(flatten)]
    more: BTreeMap<String, AnyJson>,
}

impl IntoWire<DryRunDocument> for view::DryRunResult {
    fn into_wire(self) -> DryRunDocument {
        DryRunDocument {
            step_id: self.step_id,
            tool: self.tool,
            status: self.status,
            would_execute: self.would_execute,
            warning: self.warning,
            error: self.error.into_wire(),
            simulated_output: self.simulated_output.into_wire(),
            tried: self.tried,
            deferred: self.deferred,
            more: self.more.into_iter().map(|(name, value)| (name, value.into_wire())).collect(),
        }
    }
}
