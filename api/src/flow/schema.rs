//! OpenAPI schemas of runs, steps, approvals and workflows.
//!
//! The engine builds these documents and does not depend on OpenAPI; these types only describe them.
//! A test compares the two.

use serde_json::Value;
use utoipa::ToSchema;

/// A run in a list.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct RunSummary {
    /// Run id.
    run_id: String,
    /// `pending`, `running`, `awaiting_approval`, `completed`, `failed`, `cancelled` or `rolled_back`.
    #[schema(example = "completed")]
    status: String,
    /// Id of the workflow.
    workflow_id: Option<String>,
    /// Version number.
    workflow_version: Option<i64>,
    /// Actor who requested the run.
    actor: String,
    /// Autonomy level.
    #[schema(example = "L2_ExecuteNotify")]
    autonomy_level: Option<String>,
    /// W3C trace id.
    trace_id: String,
    /// When the run was created.
    created_at: Option<String>,
    /// When it ended.
    completed_at: Option<String>,
    /// Priority from 1 (highest) to 10 (lowest).
    priority: i64,
    /// Whether the run is a dry run.
    dry_run: bool,
    /// Whether the run is paused: no new step starts until it is resumed.
    paused: bool,
    /// Whether cancellation was requested.
    cancel_requested: bool,
    /// Increases with every change of the run.
    state_version: i64,
    /// Number of the last event.
    run_seq: i64,
    /// Id of the run that started this one.
    parent_run_id: Option<String>,
    /// Id of the run that this one replays.
    replay_of: Option<String>,
    /// Replay mode: `freeze`, `shadow` or `retry`.
    replay_mode: Option<String>,
    /// Why the run failed.
    error_message: Option<String>,
    /// Since when the outcome of a tool call is unknown.
    in_doubt_since: Option<String>,
}

/// A run with everything needed to decide its approvals.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct RunDocument {
    #[serde(flatten)]
    #[schema(inline)]
    summary: RunSummary,
    /// Inputs of the run.
    inputs: Option<Value>,
    /// The plan: `steps`, and the digest that an approval of the whole plan covers.
    plan: Value,
    /// Dry-run results of the same steps.
    dry_run_results: Option<Value>,
    /// Risk score of the plan, with reasons.
    risk: Option<Value>,
    /// Pending approval requests.
    approvals: Vec<ApprovalDocument>,
    /// Closed approval requests: decided, superseded, expired or cancelled.
    decided_approvals: Vec<DecidedApprovalDocument>,
    /// URL of the decision endpoint.
    approve_url: Option<String>,
    /// Tool calls whose outcome is unknown and not resolved yet.
    doubts: Vec<DoubtDocument>,
    /// Result of the run.
    result: Option<Value>,
    /// Why it failed.
    error: Option<Value>,
    /// State of the rollback: what was undone, and what is left.
    rollback: Option<Value>,
    /// Where notifications are sent.
    notify: Option<Value>,
    /// Delivery status of the notifications.
    messages: Vec<Value>,
    /// Patches of the run.
    patches: Vec<PatchState>,
}

/// A tool call whose outcome is unknown.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct DoubtDocument {
    /// Id of the run.
    run_id: String,
    /// Id of the workflow.
    workflow_id: Option<String>,
    /// Actor who requested the run.
    actor: String,
    /// Current status.
    run_status: String,
    /// Id of the step.
    step_id: String,
    /// Id of the node.
    node_id: String,
    /// Index of the map item.
    map_index: Option<i64>,
    /// Name of the tool.
    tool: Option<String>,
    /// `execute`: the step waits until the call is resolved; `undo`: a rollback could not finish.
    #[schema(example = "execute")]
    call: String,
    /// Attempts of the step so far.
    attempt: i64,
    /// When the outcome became unknown.
    since: Option<String>,
    /// Reason.
    reason: Option<String>,
    /// URL of the resolve endpoint; null for an undo.
    resolve_url: Option<String>,
    /// URL of the endpoint that resolves it: `…/resolve` or `…/rollback`.
    settle_url: String,
    /// CLI commands, any of which resolves it.
    settle_with: Vec<String>,
}

/// A patch of a run.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct PatchState {
    /// Patch number within the run.
    number: i64,
    /// `proposed`, `applied`, `refused` or `reverted`.
    status: String,
    /// Actor who proposed the patch.
    actor: String,
    /// Reason.
    justification: Option<String>,
    /// Why the patch was refused.
    reason: Option<String>,
    /// Id of the approval request for the patch.
    approval_id: Option<String>,
    /// When the patch was proposed.
    created_at: Option<String>,
}

/// A closed approval request.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct DecidedApprovalDocument {
    /// Id of the approval request.
    approval_id: String,
    /// Id of the node; null if the request was about the whole plan.
    node_id: Option<String>,
    /// Type of the action.
    action_type: String,
    /// Digest that the request covered.
    digest: String,
    /// `status` (`approved`, `denied`, `superseded`, `expired` or `cancelled`), `by`, `at` and `notes`.
    #[schema(value_type = Object)]
    standing: Value,
}

/// A pending approval request.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct ApprovalDocument {
    /// Id of the approval request.
    approval_id: String,
    /// Id of the step; null if the request is about the whole plan.
    step_id: Option<String>,
    /// Id of the step's node.
    node_id: Option<String>,
    /// Type of the action.
    action_type: String,
    /// The action with its input.
    action: Option<Value>,
    /// The review that people are shown: the requester, every tool call with its input and dry-run result, the risk with
    /// its reasons, what changed since it was last shown, and the current status.
    #[schema(value_type = Object)]
    review: Value,
    /// Digest that a decision covers.
    digest: Option<String>,
    /// Minimum number of approvals; more may be needed if one person does not satisfy every requirement.
    approvals_needed: i64,
    /// Decisions so far.
    decisions: Option<Value>,
    /// Actor who requested the run.
    requested_by: String,
    /// Actors who count as requesters too: those who last changed what would run, or requested the run that is replayed.
    /// Where somebody other than the requester must decide, they cannot.
    changed_by: Vec<String>,
    /// When the approval was requested.
    created_at: Option<String>,
    /// When the request expires.
    expires_at: Option<String>,
}

/// A page of runs.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct RunPage {
    /// Newest first.
    items: Vec<RunSummary>,
    /// Cursor of the next page; null on the last one.
    next_cursor: Option<String>,
}

/// The steps of a run.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct StepList {
    /// In the order of the workflow's nodes; steps that have not started come last.
    steps: Vec<StepDocument>,
    /// Cursor of the next page; null on the last one.
    next_cursor: Option<String>,
}

/// A step.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct StepDocument {
    /// Step id; null before the step starts.
    step_id: Option<String>,
    /// Id of the node.
    node_id: String,
    /// Type of the node.
    node_type: String,
    /// Index of the map item.
    map_index: Option<i64>,
    /// Name of the tool.
    tool: Option<String>,
    /// Current status.
    status: String,
    /// Attempt number.
    attempt: i64,
    /// Input of the tool.
    input: Option<Value>,
    /// Digest of the input.
    input_digest: Option<String>,
    /// Output of the tool.
    output: Option<Value>,
    /// Why it failed.
    error: Option<Value>,
    /// Id of the child run that the step started.
    child_run_id: Option<String>,
    /// When the next attempt is due.
    retry_at: Option<String>,
    /// When it started.
    started_at: Option<String>,
    /// When it ended.
    completed_at: Option<String>,
    /// Tool calls of the step.
    tool_calls: Vec<CallDocument>,
}

/// A tool call.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct CallDocument {
    /// Name of the tool.
    tool_name: String,
    /// Input of the tool.
    tool_input: Option<Value>,
    /// Output of the tool.
    tool_output: Option<Value>,
    /// Why it failed.
    error: Option<String>,
    /// Duration of the call.
    duration_ms: Option<i64>,
    /// Whether the call was a dry run without effects.
    dry_run: bool,
    /// Idempotency key that was sent to the tool.
    idempotency_key: Option<String>,
    /// Attempt number.
    attempt: i64,
    /// Outcome of the call.
    outcome: Option<String>,
    /// When it started.
    created_at: Option<String>,
    /// When it ended.
    completed_at: Option<String>,
}

/// A signal was sent to a run, which processes it in its next turn.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct Accepted {
    /// Id of the run.
    run_id: String,
    /// Current status.
    status: String,
    /// Always true.
    accepted: bool,
}

/// A run that was started.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct StartedDocument {
    /// Run id.
    run_id: String,
    /// Current status.
    status: String,
    /// Autonomy level.
    autonomy_level: String,
    /// W3C trace id.
    trace_id: String,
}

/// A run that `/act` started.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct ActedDocument {
    /// Run id.
    run_id: String,
    /// Current status.
    status: String,
    /// Autonomy level.
    autonomy_level: String,
    /// W3C trace id.
    trace_id: String,
    /// The plan: `steps` with `step_id`, `tool` and `input`.
    #[schema(value_type = Object)]
    plan: Value,
    /// Risk of the plan: `score`, and `reasons` with `factor`, `pointer` and `points`.
    #[schema(value_type = Object)]
    risk: Value,
    /// Whether the run is a dry run.
    dry_run: bool,
    /// Dry-run result of each step.
    dry_run_results: Option<Vec<Value>>,
    /// URL of the decision endpoint.
    approve_url: Option<String>,
    /// Pending approval requests.
    approvals: Vec<ApprovalDocument>,
    /// Result of the run.
    result: Option<Value>,
    /// Why it failed.
    error: Option<Value>,
}

/// A version of a workflow.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct WorkflowDocument {
    /// Workflow id.
    workflow_id: String,
    /// Version number.
    version: i64,
    /// SHA-256 of its canonical JSON.
    digest: String,
    /// Actor who applied it; null if another tenant shares it.
    created_by: Option<String>,
    /// When it was applied.
    created_at: Option<String>,
    /// Whether every tenant may start it.
    shared: bool,
    /// The AIR document.
    document: Value,
}
