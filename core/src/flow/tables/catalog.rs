//! What runs are made of: workflows and the definitions of declared tools.

use crate::flow::status::DefinitionStatus;
use crate::json::Digest32;
use crate::record::{Json, part, table};
use crate::time::Timestamp;

table! {
    /// Workflow documents by version.
    WORKFLOWS = workflows -> WorkflowRow {
        tenant_id: String,
        workflow_id: String,
        version: i64,
        digest: Digest32,
        document: Json [exact],
        created_by: String,
        created_at: Timestamp [default],
        shared_from: Option<String>,
    }
    key: [tenant_id, workflow_id, version],
    tenant: tenant_id,
    rank: 300,
}

part! {
    WorkflowId of WorkflowRow in workflows {
        workflow_id: String,
    }
}

table! {
    /// Workflows that every tenant may start.
    WORKFLOW_SHARES = workflow_shares -> WorkflowShareRow {
        workflow_id: String,
        tenant_id: String,
        shared_by: String,
        created_at: Timestamp [default],
    }
    key: [workflow_id],
    tenant: tenant_id,
    rank: 301,
}

table! {
    /// The definitions of declared tools, by version.
    TOOL_DEFINITIONS = tool_definitions -> ToolDefinitionRow {
        tenant_id: String,
        name: String,
        version: String,
        document: Json [exact],
        status: DefinitionStatus,
        created_at: Timestamp [default],
        updated_at: Timestamp [default],
        state_version: i64 [default],
    }
    key: [tenant_id, name, version],
    tenant: tenant_id,
    rank: 302,
}

part! {
    ToolDefinitionBrief of ToolDefinitionRow in tool_definitions {
        name: String,
        version: String,
        status: DefinitionStatus,
        state_version: i64,
    }
}
