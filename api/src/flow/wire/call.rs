//! Tool calls.

use super::{RunStatus, pages};
use crate::wire::{AnyJson, DateTime, wire, words};
use chimera_core::flow::call::CallEnd;
use chimera_engine::flow::view;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

words! {
    /// How a tool call ended. `recorded` and `cached` calls were not made; the tool (`checked`) or a person (`resolved`)
    /// found that the call had taken effect.
    pub(crate) CallOutcome from CallEnd {
        Succeeded = "succeeded",
        Failed = "failed",
        Unknown = "unknown",
        DryRun = "dry_run",
        Recorded = "recorded",
        Cached = "cached",
        Checked = "checked",
        Resolved = "resolved",
    }
}

wire! {
    /// A tool call.
    pub(crate) CallDocument from view::CallView {
        /// Name of the tool.
        tool_name: String,
        /// Input of the tool.
        tool_input: AnyJson,
        /// Output of the tool.
        tool_output: AnyJson,
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
        /// Outcome of the call; null while it is in flight.
        outcome: Option<CallOutcome>,
        /// When it started.
        created_at: Option<DateTime>,
        /// When it ended.
        completed_at: Option<DateTime>,
    }
}

/// A tool call and its run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ListedCall {
    #[serde(flatten)]
    #[schema(inline)]
    call: CallDocument,
    /// Id of the run.
    run_id: Uuid,
    /// Actor who requested the run.
    #[schema(required)]
    actor: Option<String>,
    /// Status of the run.
    #[schema(required)]
    run_status: Option<RunStatus>,
    /// Id of the step.
    #[schema(required)]
    step_id: Option<Uuid>,
}

impl From<view::ListedCall> for ListedCall {
    fn from(listed: view::ListedCall) -> Self {
        let view::ListedCall { call, run_id, actor, run_status, step_id } = listed;
        Self { call: call.into(), run_id, actor, run_status: run_status.map(Into::into), step_id }
    }
}

pages! {
    /// A page of tool calls.
    pub(crate) CallPage of ListedCall from view::ListedCall: "Newest first.";
}
