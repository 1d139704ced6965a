//! Runs, steps, events and workflows in the words of OpenAPI.
//!
//! The engine makes these documents, and knows no OpenAPI; these types only describe them. A test
//! compares the two.

use serde_json::Value;
use utoipa::ToSchema;

/// A run in a listing.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct RunSummary {
    /// Its id.
    run_id: String,
    /// `pending`, `running`, `awaiting_approval`, `completed`, `failed`, `cancelled` or `rolled_back`.
    #[schema(example = "completed")]
    status: String,
    /// The workflow.
    workflow_id: Option<String>,
    /// Its version.
    workflow_version: Option<i64>,
    /// Who asked for it.
    actor: String,
    /// How freely it may act.
    #[schema(example = "L2_ExecuteNotify")]
    autonomy_level: Option<String>,
    /// W3C trace id.
    trace_id: String,
    /// When it was asked for.
    created_at: Option<String>,
    /// When it ended.
    completed_at: Option<String>,
    /// One is most urgent, ten least.
    priority: i64,
    /// Only what it would do was asked for.
    dry_run: bool,
    /// Nothing new starts until it is resumed.
    paused: bool,
    /// Somebody wants it stopped.
    cancel_requested: bool,
    /// Grows with every change.
    state_version: i64,
    /// Number of its last event.
    run_seq: i64,
    /// The run that started it.
    parent_run_id: Option<String>,
    /// The run that it repeats.
    replay_of: Option<String>,
    /// How: `freeze`, `shadow` or `retry`.
    replay_mode: Option<String>,
    /// Why it failed, in words.
    error_message: Option<String>,
    /// Since when the outcome of one of its calls is unknown.
    in_doubt_since: Option<String>,
}

/// A run with all that is needed to decide about it.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct RunDocument {
    #[serde(flatten)]
    #[schema(inline)]
    summary: RunSummary,
    /// What it works on.
    inputs: Option<Value>,
    /// What it would do: `steps` and the digest that an approval of all of it covers.
    plan: Value,
    /// The same steps, as the dry run showed them.
    dry_run_results: Option<Value>,
    /// How risky the plan is, and why.
    risk: Option<Value>,
    /// What waits for a decision.
    approvals: Vec<ApprovalDocument>,
    /// What was decided about, superseded or expired: by whom and when.
    decided_approvals: Vec<DecidedApprovalDocument>,
    /// Where to decide.
    approve_url: Option<String>,
    /// Calls whose outcome is unknown, until somebody settles them.
    doubts: Vec<DoubtDocument>,
    /// What it gave.
    result: Option<Value>,
    /// Why it failed.
    error: Option<Value>,
    /// What was undone, and what is left.
    rollback: Option<Value>,
    /// Who is told when it ends.
    notify: Option<Value>,
    /// What became of the messages about it.
    messages: Vec<Value>,
    /// What became of its patches.
    patches: Vec<PatchState>,
}

/// A call of which nobody knows whether it happened.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct DoubtDocument {
    /// The run.
    run_id: String,
    /// Its workflow.
    workflow_id: Option<String>,
    /// Who asked for it.
    actor: String,
    /// Where it stands.
    run_status: String,
    /// The step.
    step_id: String,
    /// Its node.
    node_id: String,
    /// Position of the item in its list.
    map_index: Option<i64>,
    /// The tool that was called.
    tool: Option<String>,
    /// `execute`: the step waits until somebody settles it; `undo`: a rollback could not finish.
    #[schema(example = "execute")]
    call: String,
    /// Tries of the step so far.
    attempt: i64,
    /// When it became unknown.
    since: Option<String>,
    /// Why.
    reason: Option<String>,
    /// Where to say what became of a call; null for an undo.
    resolve_url: Option<String>,
    /// Where to settle it: the run's `…/resolve`, or its `…/rollback`.
    settle_url: String,
    /// The commands of which one settles it.
    settle_with: Vec<String>,
}

/// A patch of a run.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct PatchState {
    /// Its number within the run.
    number: i64,
    /// `proposed`, `applied`, `refused` or `reverted`.
    status: String,
    /// Who proposed it.
    actor: String,
    /// Why.
    justification: Option<String>,
    /// Why it was refused.
    reason: Option<String>,
    /// The request that people decide about.
    approval_id: Option<String>,
    /// When it was proposed.
    created_at: Option<String>,
}

/// A request that nobody can decide about any more.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct DecidedApprovalDocument {
    /// Its id.
    approval_id: String,
    /// The node that it was about; none for a plan.
    node_id: Option<String>,
    /// What would have been done.
    action_type: String,
    /// What it covered.
    digest: String,
    /// `status` (`approved`, `denied`, `superseded`, `expired` or `cancelled`), `by`, `at` and `notes`.
    #[schema(value_type = Object)]
    standing: Value,
}

/// Something that waits for a decision.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct ApprovalDocument {
    /// Its id.
    approval_id: String,
    /// The step that waits; none when it is about the whole plan.
    step_id: Option<String>,
    /// The node of that step.
    node_id: Option<String>,
    /// What would be done.
    action_type: String,
    /// With what.
    action: Option<Value>,
    /// What a decision is about, in the form that people are shown: who asks, every call with its input and what the
    /// dry run says of it, the risk with its reasons in words, what changed since it was last shown, and where it stands.
    #[schema(value_type = Object)]
    review: Value,
    /// What a decision covers, exactly.
    digest: Option<String>,
    /// How many people must approve in all, at the least: who counts for one demand may not for another.
    approvals_needed: i64,
    /// What people have said.
    decisions: Option<Value>,
    /// Who asked for the run.
    requested_by: String,
    /// Who else counts as having asked: whoever last changed what would run, or asked for the run that is repeated.
    /// Where somebody other than the requester must decide, none of these does.
    changed_by: Vec<String>,
    /// Since when it waits.
    created_at: Option<String>,
    /// Until when.
    expires_at: Option<String>,
}

/// A page of runs.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct RunPage {
    /// The newest first.
    items: Vec<RunSummary>,
    /// Where the next page begins.
    next_cursor: Option<String>,
}

/// The steps of a run.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct StepList {
    /// In the order of the workflow's nodes; those that have not begun stand last.
    steps: Vec<StepDocument>,
    /// Where the next page begins.
    next_cursor: Option<String>,
}

/// A step.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct StepDocument {
    /// Its id; none before it begins.
    step_id: Option<String>,
    /// The node.
    node_id: String,
    /// What kind of node.
    node_type: String,
    /// Which item of a map.
    map_index: Option<i64>,
    /// The tool.
    tool: Option<String>,
    /// Where it stands.
    status: String,
    /// Which try.
    attempt: i64,
    /// What the tool was given.
    input: Option<Value>,
    /// Digest of that.
    input_digest: Option<String>,
    /// What it gave.
    output: Option<Value>,
    /// Why it failed.
    error: Option<Value>,
    /// The run that it started.
    child_run_id: Option<String>,
    /// When it is tried again.
    retry_at: Option<String>,
    /// When it began.
    started_at: Option<String>,
    /// When it ended.
    completed_at: Option<String>,
    /// Every call of the tool.
    tool_calls: Vec<CallDocument>,
}

/// A call of a tool.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct CallDocument {
    /// The tool.
    tool_name: String,
    /// What it was given.
    tool_input: Option<Value>,
    /// What it gave.
    tool_output: Option<Value>,
    /// Why it failed.
    error: Option<String>,
    /// How long it took.
    duration_ms: Option<i64>,
    /// Nothing outside was changed.
    dry_run: bool,
    /// What makes repeated sends one effect.
    idempotency_key: Option<String>,
    /// Which try.
    attempt: i64,
    /// What became of it.
    outcome: Option<String>,
    /// When it began.
    created_at: Option<String>,
    /// When it ended.
    completed_at: Option<String>,
}

/// What is answered when a run was told something. It takes it in with its next turn.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct Accepted {
    /// The run.
    run_id: String,
    /// Where it stands now.
    status: String,
    /// Always true.
    accepted: bool,
}

/// A run that was started.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct StartedDocument {
    /// Its id.
    run_id: String,
    /// Where it stands now.
    status: String,
    /// How freely it may act.
    autonomy_level: String,
    /// W3C trace id.
    trace_id: String,
}

/// A run that was asked for.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct ActedDocument {
    /// Its id.
    run_id: String,
    /// Where it stands now.
    status: String,
    /// How freely it may act.
    autonomy_level: String,
    /// W3C trace id.
    trace_id: String,
    /// What it does: `steps` with `step_id`, `tool` and `input`.
    #[schema(value_type = Object)]
    plan: Value,
    /// How risky that looked, and why: `score`, and `reasons` with `factor`, `pointer` and `points`.
    #[schema(value_type = Object)]
    risk: Value,
    /// Only what it would do was wanted.
    dry_run: bool,
    /// What a dry run of each step gave.
    dry_run_results: Option<Vec<Value>>,
    /// Where to decide.
    approve_url: Option<String>,
    /// What waits for a decision.
    approvals: Vec<ApprovalDocument>,
    /// What it gave.
    result: Option<Value>,
    /// Why it failed.
    error: Option<Value>,
}

/// A version of a workflow.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct WorkflowDocument {
    /// Its id.
    workflow_id: String,
    /// Its version.
    version: i64,
    /// SHA-256 of its canonical JSON.
    digest: String,
    /// Who applied it; null for one that another tenant shares.
    created_by: Option<String>,
    /// When.
    created_at: Option<String>,
    /// Every tenant may start it.
    shared: bool,
    /// The AIR document.
    document: Value,
}
