//! `GET /runs/{id}/executions`: the execution records of a run, oldest first.

use crate::caller::Caller;
use crate::error_responses::ReadErrors;
use crate::extract::ApiQuery;
use crate::flow::wire::pages;
use crate::ops::schema::ErrorDocument;
use crate::params;
use crate::problem::ApiError;
use crate::wire::{AnyJson, DateTime, wire, words};
use axum::extract::Path;
use axum::response::Response;
use chimera_core::flow::air;
use chimera_core::job::executions;
use chimera_engine::job::executions::{ExecutionFilter, ExecutionView, list_executions};
use serde::Deserialize;
use uuid::Uuid;

words! {
    /// Kind of agent that a run works as.
    pub(crate) AgentType from air::AgentType {
        Planner = "planner",
        Worker = "worker",
        Governor = "governor",
    }

    /// Status of an execution. `timeout` without `completed_at`: it has not ended.
    pub(crate) ExecutionStatus from executions::ExecutionStatus {
        Success = "success",
        Failed = "failed",
        Timeout = "timeout",
    }
}

wire! {
    /// A record of the execution log.
    pub(crate) ExecutionDocument from ExecutionView {
        /// Id of the record; that of the tool call if it tells of one.
        execution_id: Uuid,
        /// Id of the agent: the actor of the run.
        agent_id: Uuid,
        /// Kind of agent.
        agent_type: AgentType,
        /// What was executed.
        execution_type: String,
        /// Current status.
        status: ExecutionStatus,
        /// Input of the call, with credentials masked.
        input_data: AnyJson,
        /// Output of the call, with credentials masked.
        output_data: AnyJson,
        /// Why it failed.
        error_data: Option<ErrorDocument>,
        /// Duration of the call.
        execution_duration_ms: i64,
        /// What the call used.
        resource_usage: AnyJson,
        /// When it started.
        started_at: DateTime,
        /// When it ended; null while it runs, and after a crash.
        completed_at: Option<DateTime>,
    }
}

pages! {
    /// A page of the execution log.
    pub ExecutionPage of ExecutionDocument from ExecutionView: "Oldest first.";
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListExecutionsQuery {
    limit: Option<usize>,
    cursor: Option<String>,
}

/// Lists the execution records of a run whose workflow asks for them.
#[utoipa::path(
    get,
    path = "/runs/{id}/executions",
    tag = "job",
    params(
        ("id" = uuid::Uuid, Path, description = "Run id"),
        ("limit" = Option<usize>, Query, description = "Maximum number of records"),
        ("cursor" = Option<String>, Query, description = "Cursor from the previous page"),
    ),
    responses((status = 200, body = ExecutionPage, description = "A page of records"), ReadErrors)
)]
pub(crate) async fn list(
    caller: Caller,
    Path(id): Path<String>,
    ApiQuery(which): ApiQuery<ListExecutionsQuery>,
) -> Result<Response, ApiError> {
    let (run, limit) = (params::run(&id)?, params::parse_limit(which.limit)?);
    let filter = ExecutionFilter { run, limit, cursor: which.cursor.as_deref() };
    let written = |page| params::json(&ExecutionPage::from(page));
    list_executions(&caller.flow, &caller.permit, filter, written).await?
}
