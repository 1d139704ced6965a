//! The flow room's tables. `runs` and `tool_calls` start with the columns that the audit schema prescribes.
//! `approval_requests` may not carry a tenant column: read `scoped_approvals` instead. The table of reservations is in
//! `reservation`.

mod blobs;
mod catalog;
mod events;
mod work;

pub use blobs::*;
pub use catalog::*;
pub use events::*;
pub use work::*;

use super::air::NodeKind;
use super::call::CallEnd;
use super::run::{EffectStatus, ReplayMode, RunStatus, Source, StepStatus};
use super::status::{EffectPurpose, NotificationStatus, PatchStatus, RequestStatus};
use super::work::WorkKind;
use crate::access::Level;
use crate::json::Digest32;
use crate::ledger::ActorType;
use crate::record::{Json, Table, part, table};
use crate::time::Timestamp;
use uuid::Uuid;

table! {
    /// One execution of a plan or workflow.
    RUNS = runs -> RunRow {
        id: Uuid,
        actor: String,
        request_payload: Json,
        status: RunStatus,
        autonomy_level: Option<Level>,
        trace_id: String [fresh],
        idempotency_key: Option<String>,
        created_at: Option<Timestamp> [default],
        completed_at: Option<Timestamp>,
        error_message: Option<String>,
        tenant_id: String,
        state_version: i64 [default],
        source: Source [default],
        workflow_id: Option<String>,
        workflow_version: Option<i64>,
        workflow_digest: Option<Digest32>,
        inputs: Option<Json>,
        plan_digest: Option<Digest32>,
        patches: u32 [default],
        priority: i32 [default],
        dry_run: bool [default],
        correlation_id: Option<String>,
        parent_run_id: Option<Uuid>,
        parent_step_id: Option<Uuid>,
        replay_of: Option<Uuid>,
        replay_mode: Option<ReplayMode>,
        cancel_requested: bool [default],
        pause_requested: bool [default],
        run_seq: i64 [default],
        owner_lane: Option<i64>,
        owner_epoch: Option<i64>,
        next_deadline: Option<Timestamp>,
        notify: Option<Json>,
        risk: Option<Json>,
        result: Option<Json>,
        error_data: Option<Json>,
        depth: u32 [default],
        replay_from: Option<String>,
        timeout_at: Option<Timestamp>,
        plan: Option<Json>,
        rollback: Option<Json>,
        restored_at: Option<Timestamp>,
        in_doubt_since: Option<Timestamp>,
        actor_kind: Option<ActorType>,
        co_requesters: Option<Vec<String>>,
        paused_by: Option<String>,
        paused_by_kind: Option<ActorType>,
    }
    key: [id],
    unique: [trace_id],
    unique: [idempotency_key],
    tenant: tenant_id,
    rank: 301,
}

part! {
    /// A run without its documents.
    RunBrief of RunRow in runs {
        id: Uuid,
        actor: String,
        status: RunStatus,
        autonomy_level: Option<Level>,
        created_at: Option<Timestamp>,
        completed_at: Option<Timestamp>,
        tenant_id: String,
        state_version: i64,
        workflow_id: Option<String>,
        plan_digest: Option<Digest32>,
        dry_run: bool,
        parent_run_id: Option<Uuid>,
        replay_of: Option<Uuid>,
        replay_mode: Option<ReplayMode>,
        run_seq: i64,
        owner_lane: Option<i64>,
        owner_epoch: Option<i64>,
        next_deadline: Option<Timestamp>,
        replay_from: Option<String>,
        rollback: Option<Json>,
        co_requesters: Option<Vec<String>>,
    }
}

part! {
    RunRequest of RunRow in runs {
        id: Uuid,
        workflow_id: Option<String>,
        request_payload: Json,
    }
}

part! {
    /// A run in a list.
    ListedRun of RunRow in runs {
        id: Uuid,
        actor: String,
        status: RunStatus,
        autonomy_level: Option<Level>,
        trace_id: String,
        created_at: Option<Timestamp>,
        completed_at: Option<Timestamp>,
        error_message: Option<String>,
        state_version: i64,
        workflow_id: Option<String>,
        workflow_version: Option<i64>,
        priority: i32,
        dry_run: bool,
        parent_run_id: Option<Uuid>,
        replay_of: Option<Uuid>,
        replay_mode: Option<ReplayMode>,
        cancel_requested: bool,
        pause_requested: bool,
        run_seq: i64,
        in_doubt_since: Option<Timestamp>,
    }
}

part! {
    /// A run with a call whose outcome is unknown.
    DoubtfulRun of RunRow in runs {
        id: Uuid,
        actor: String,
        status: RunStatus,
        workflow_id: Option<String>,
        rollback: Option<Json>,
        request_payload: Json,
    }
}

part! {
    /// How a run ended.
    RunEnd of RunRow in runs {
        actor: String,
        trace_id: String,
        workflow_id: Option<String>,
        result: Option<Json>,
        error_data: Option<Json>,
    }
}

part! {
    /// Whose run it is, and its status.
    RunActor of RunRow in runs {
        actor: String,
        status: RunStatus,
    }
}

part! {
    RunRisk of RunRow in runs {
        risk: Option<Json>,
    }
}

part! {
    /// The drafted plan of a run.
    RunPlan of RunRow in runs {
        plan_digest: Option<Digest32>,
        plan: Option<Json>,
    }
}

part! {
    /// The version of a run.
    RunVersion of RunRow in runs {
        id: Uuid,
        state_version: i64,
    }
}

table! {
    /// The nodes of a run.
    STEPS = steps -> StepRow {
        id: Uuid,
        run_id: Uuid,
        tenant_id: String,
        node_id: String,
        node_type: NodeKind [default],
        position: i32,
        parent_step_id: Option<Uuid>,
        map_index: Option<u32>,
        tool: Option<String>,
        tool_version: Option<String>,
        input: Option<Json>,
        input_digest: Option<Digest32>,
        status: StepStatus,
        attempt: u32 [default],
        output: Option<Json>,
        error: Option<Json>,
        child_run_id: Option<Uuid>,
        retry_at: Option<Timestamp>,
        created_at: Timestamp [default],
        started_at: Option<Timestamp>,
        completed_at: Option<Timestamp>,
        completed_seq: Option<i64>,
        state_version: i64 [default],
        in_doubt_since: Option<Timestamp>,
        judgement: Option<Json>,
        work_kind: Option<WorkKind>,
        work_id: Option<Uuid>,
        work_until: Option<Timestamp>,
    }
    key: [id],
    tenant: tenant_id,
    rank: 302,
}

part! {
    /// A step without its documents.
    StepBrief of StepRow in steps {
        id: Uuid,
        run_id: Uuid,
        node_id: String,
        node_type: NodeKind,
        map_index: Option<u32>,
        tool: Option<String>,
        tool_version: Option<String>,
        status: StepStatus,
        attempt: u32,
        child_run_id: Option<Uuid>,
        retry_at: Option<Timestamp>,
        started_at: Option<Timestamp>,
        state_version: i64,
        in_doubt_since: Option<Timestamp>,
    }
}

part! {
    /// The work elsewhere that executes the call of a step, or executed the last one.
    StepWork of StepRow in steps {
        id: Uuid,
        run_id: Uuid,
        work_kind: Option<WorkKind>,
        work_id: Option<Uuid>,
    }
}

part! {
    /// A step with a call whose outcome is unknown.
    DoubtfulStep of StepRow in steps {
        id: Uuid,
        run_id: Uuid,
        node_id: String,
        map_index: Option<u32>,
        tool: Option<String>,
        status: StepStatus,
        attempt: u32,
        error: Option<Json>,
        in_doubt_since: Option<Timestamp>,
    }
}

part! {
    StepOutput of StepRow in steps {
        output: Option<Json>,
    }
}

table! {
    /// Every attempt of a tool call, with input and outcome.
    TOOL_CALLS = tool_calls -> ToolCallRow {
        id: Uuid,
        step_id: Option<Uuid>,
        tool_name: String,
        tool_input: Json,
        tool_output: Option<Json>,
        error: Option<String>,
        duration_ms: Option<i32>,
        dry_run: Option<bool> [default],
        idempotency_key: Option<String>,
        created_at: Option<Timestamp> [default],
        actor: Option<String>,
        tenant_id: String,
        run_id: Uuid,
        effect_id: Option<Uuid>,
        attempt: u32 [default],
        outcome: Option<CallEnd>,
        error_data: Option<Json>,
        completed_at: Option<Timestamp>,
    }
    key: [id],
    tenant: tenant_id,
    rank: 303,
}

table! {
    /// External effects, written before they are dispatched (write-ahead).
    EFFECTS = effects -> EffectRow {
        id: Uuid,
        tenant_id: String,
        run_id: Uuid,
        step_id: Uuid,
        kind: EffectPurpose [default],
        tool: String,
        status: EffectStatus,
        idempotency_key: String,
        attempt: u32 [default],
        deadline: Option<Timestamp>,
        input_digest: Digest32,
        result_ref: Option<String>,
        created_at: Timestamp [default],
        dispatched_at: Option<Timestamp>,
        settled_at: Option<Timestamp>,
        state_version: i64 [default],
    }
    key: [id],
    unique: [tenant_id, idempotency_key],
    tenant: tenant_id,
    rank: 304,
}

table! {
    /// Signals to the node that owns a run.
    RUN_SIGNALS = run_signals -> SignalRow {
        run_id: Uuid,
        id: Uuid,
        tenant_id: String,
        kind: String,
        payload: Json,
        created_at: Timestamp [default],
    }
    key: [run_id, id],
    tenant: tenant_id,
    rank: 305,
}

part! {
    /// A signal without its payload.
    SignalBrief of SignalRow in run_signals {
        run_id: Uuid,
        id: Uuid,
        kind: String,
    }
}

table! {
    TIMERS = timers -> TimerRow {
        id: Uuid,
        tenant_id: String,
        run_id: Option<Uuid>,
        step_id: Option<Uuid>,
        kind: String,
        due_at: Timestamp,
        payload: Option<Json>,
        created_at: Timestamp [default],
    }
    key: [id],
    tenant: tenant_id,
    rank: 306,
}

table! {
    /// Patches to the graph of a run.
    RUN_PATCHES = run_patches -> PatchRow {
        run_id: Uuid,
        number: u32,
        tenant_id: String,
        patch: Json [exact],
        digest: Digest32,
        status: PatchStatus,
        actor: String,
        justification: Option<String>,
        approval_request_id: Option<Uuid>,
        created_at: Timestamp [default],
        state_version: i64 [default],
        inverse: Option<Json>,
        reason: Option<String>,
        actor_kind: Option<ActorType>,
    }
    key: [run_id, number],
    tenant: tenant_id,
    rank: 307,
}

table! {
    /// Cached tool outputs.
    CACHE_ENTRIES = cache_entries -> CacheEntryRow {
        tenant_id: String,
        workflow_id: String,
        cache_key: String,
        tool_version: String,
        output: Json,
        run_id: Uuid,
        created_at: Timestamp [default],
        expires_at: Option<Timestamp>,
    }
    key: [tenant_id, workflow_id, cache_key],
    tenant: tenant_id,
    rank: 308,
}

table! {
    /// Messages in an actor's inbox, in order of arrival.
    INBOX_MESSAGES = inbox_messages -> InboxMessageRow {
        tenant_id: String,
        actor: String,
        id: Uuid [fresh],
        run_id: Uuid,
        event_type: String,
        data: Option<Json>,
        created_at: Timestamp [default],
    }
    key: [tenant_id, actor, id],
    tenant: tenant_id,
    rank: 313,
}

table! {
    /// Outgoing messages to people and systems.
    NOTIFICATIONS = notifications -> NotificationRow {
        id: Uuid,
        tenant_id: String,
        run_id: Option<Uuid>,
        channel: String,
        target: String,
        payload: Json,
        status: NotificationStatus [default],
        attempt: u32 [default],
        next_attempt_at: Option<Timestamp>,
        sent_at: Option<Timestamp>,
        error: Option<Json>,
        created_at: Timestamp [default],
        state_version: i64 [default],
        approval_id: Option<Uuid>,
        deliveries: Json [default],
    }
    key: [id],
    tenant: tenant_id,
    rank: 309,
}

part! {
    NotificationId of NotificationRow in notifications {
        id: Uuid,
    }
}

table! {
    /// Approval requests. Read them through `SCOPED_APPROVALS`.
    APPROVAL_REQUESTS = approval_requests -> ApprovalRequestRow {
        approval_request_id: Uuid,
        action_type: String [chars(50)],
        action_data: Json,
        requester_agent_id: Uuid,
        workflow_type: String [chars(50)],
        status: RequestStatus [default, chars(20)],
        policy_references: Vec<String>,
        created_at: Timestamp [default],
        reviewed_at: Option<Timestamp>,
        reviewed_by: Option<String> [chars(255)],
        review_decision: Option<String> [chars(20)],
        review_notes: Option<String>,
        expires_at: Option<Timestamp>,
    }
    key: [approval_request_id],
    rank: 310,
}

table! {
    /// What an approval covers, and the decisions so far.
    APPROVAL_DETAILS = approval_details -> ApprovalDetailRow {
        approval_request_id: Uuid,
        tenant_id: String,
        action_digest: Digest32,
        run_id: Option<Uuid>,
        step_id: Option<Uuid>,
        node_id: Option<String>,
        requester_actor: String,
        approvals_needed: u32 [default],
        approvers: Option<Vec<String>>,
        decisions: Json [default],
        risk: Option<Json>,
        state_version: i64 [default],
        co_requesters: Option<Vec<String>>,
    }
    key: [approval_request_id],
    tenant: tenant_id,
    rank: 311,
}

table! {
    /// A view: approval requests with their tenant and details.
    SCOPED_APPROVALS = scoped_approvals -> ApprovalRow {
        approval_request_id: Uuid,
        action_type: String [chars(50)],
        action_data: Json,
        requester_agent_id: Uuid,
        workflow_type: String [chars(50)],
        status: RequestStatus [chars(20)],
        policy_references: Vec<String>,
        created_at: Timestamp,
        reviewed_at: Option<Timestamp>,
        reviewed_by: Option<String> [chars(255)],
        review_decision: Option<String> [chars(20)],
        review_notes: Option<String>,
        expires_at: Option<Timestamp>,
        tenant_id: String,
        campaign_id: Option<String>,
        swarm_task_id: Option<String>,
        trace_id: Option<String>,
        action_digest: Digest32,
        run_id: Option<Uuid>,
        step_id: Option<Uuid>,
        node_id: Option<String>,
        requester_actor: String,
        approvals_needed: u32,
        approvers: Option<Vec<String>>,
        decisions: Json,
        risk: Option<Json>,
        state_version: i64,
        co_requesters: Option<Vec<String>>,
    }
    key: [approval_request_id],
    tenant: tenant_id,
    rank: 950,
}

part! {
    /// An approval request without its data.
    RequestBrief of ApprovalRow in scoped_approvals {
        approval_request_id: Uuid,
        action_type: String,
        status: RequestStatus,
        expires_at: Option<Timestamp>,
    }
}

/// The room's tables and views.
pub static ALL: &[&Table] = &[
    &WORKFLOWS,
    &WORKFLOW_SHARES,
    &TOOL_DEFINITIONS,
    &RUNS,
    &STEPS,
    &TOOL_CALLS,
    &EFFECTS,
    &RUN_SIGNALS,
    &TIMERS,
    &RUN_PATCHES,
    &CACHE_ENTRIES,
    &NOTIFICATIONS,
    &INBOX_MESSAGES,
    &APPROVAL_REQUESTS,
    &APPROVAL_DETAILS,
    &SCOPED_APPROVALS,
    &ARTIFACTS,
    &WORK_ITEMS,
    &EXTERNAL_EVENTS,
    &EVENT_WAITS,
    &EVENT_CHANNELS,
    &super::reservation::RESERVATIONS,
];
