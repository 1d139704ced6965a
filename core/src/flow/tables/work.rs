//! The table of calls that workers outside execute.

use crate::flow::work::WorkState;
use crate::json::Digest32;
use crate::record::{Json, part, table};
use crate::time::Timestamp;
use uuid::Uuid;

table! {
    /// Calls that workers outside execute. The id is that of the call.
    WORK_ITEMS = work_items -> WorkItemRow {
        id: Uuid,
        tenant_id: String,
        queue: String,
        run_id: Uuid,
        step_id: Uuid,
        actor: String,
        tool: String,
        idempotency_key: String,
        attempt: u32,
        priority: i32,
        repeatable: bool,
        in_doubt: bool,
        lease_seconds: u32,
        input: Option<Json>,
        deadline: Timestamp,
        state: WorkState,
        claims: u32 [default],
        cancel_requested: bool [default],
        claimed_by: Option<String>,
        worker: Option<String>,
        claimed_at: Option<Timestamp>,
        lease_until: Option<Timestamp>,
        lease_digest: Option<Digest32>,
        claim_digest: Option<Digest32>,
        result_digest: Option<Digest32>,
        created_at: Timestamp [default],
        settled_at: Option<Timestamp>,
    }
    key: [id],
    tenant: tenant_id,
    rank: 314,
}

part! {
    /// What a run knows of its work item.
    WorkItemState of WorkItemRow in work_items {
        id: Uuid,
        in_doubt: bool,
        state: WorkState,
        claims: u32,
        cancel_requested: bool,
    }
}

part! {
    /// A work item without its documents and its lease token.
    WorkItemBrief of WorkItemRow in work_items {
        id: Uuid,
        tenant_id: String,
        queue: String,
        run_id: Uuid,
        step_id: Uuid,
        tool: String,
        attempt: u32,
        priority: i32,
        repeatable: bool,
        deadline: Timestamp,
        state: WorkState,
        claims: u32,
        cancel_requested: bool,
        claimed_by: Option<String>,
        worker: Option<String>,
        claimed_at: Option<Timestamp>,
        lease_until: Option<Timestamp>,
        created_at: Timestamp,
        settled_at: Option<Timestamp>,
    }
}
