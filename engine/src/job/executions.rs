//! Lists the execution records of a run.

use crate::access::Permit;
use crate::error::EngineError;
use crate::flow::view::ListPage;
use crate::flow::{Flow, readable};
use crate::port::ReadError;
use chimera_core::error::ErrorBody;
use chimera_core::flow::air::AgentType;
use chimera_core::id;
use chimera_core::job::executions::ExecutionStatus;
use chimera_core::job::tables::{ScopedAgentExecutionRow, scoped_agent_executions};
use chimera_core::limits::JSON_INLINE_BYTES_MAX;
use chimera_core::record::{Cursor, DamagedRows, Json, Row, Scope, StoredRow};
use chimera_core::time::Timestamp;
use serde::Serialize;
use uuid::Uuid;

/// Which records of a run to show.
#[derive(Clone, Copy, Debug)]
pub struct ExecutionFilter<'a> {
    pub run: Uuid,
    pub limit: usize,
    pub cursor: Option<&'a str>,
}

/// A record of the execution log.
#[derive(Clone, Debug, Serialize)]
pub struct ExecutionView {
    pub execution_id: Uuid,
    pub agent_id: Uuid,
    pub agent_type: AgentType,
    pub execution_type: String,
    pub status: ExecutionStatus,
    pub input_data: Option<Json>,
    pub output_data: Option<Json>,
    pub error_data: Option<ErrorBody>,
    pub execution_duration_ms: i64,
    pub resource_usage: Option<Json>,
    pub started_at: Timestamp,
    /// `None` while it runs, and after a crash.
    pub completed_at: Option<Timestamp>,
}

/// The records of a run that the caller may read, oldest first, as `render` writes them. A large page is rendered off
/// the request threads.
pub async fn list_executions<T>(
    flow: &Flow,
    permit: &Permit,
    filter: ExecutionFilter<'_>,
    render: impl FnOnce(ListPage<ExecutionView>) -> T,
) -> Result<T, EngineError> {
    readable::check(flow, permit, filter.run).await?;
    let select = ScopedAgentExecutionRow::select(Scope::Tenant(permit.tenant().to_owned()));
    let mut select = select.with(scoped_agent_executions::trace_id, id::trace_id(filter.run)).take(filter.limit);
    if let Some(cursor) = filter.cursor {
        select = select.continue_at(cursor).map_err(ReadError::from)?;
    }
    let page = readable::records(flow).read(select).await?;
    let bytes: usize = page.rows.iter().map(Row::bytes).sum();
    let next_cursor = page.next.as_ref().map(Cursor::encode);
    let written = async {
        let items = page.rows.into_iter().map(ExecutionView::of).collect::<Result<Vec<_>, EngineError>>()?;
        Ok(render(ListPage { items, next_cursor, bytes }))
    };
    flow.offload(&permit.claimant(), bytes > JSON_INLINE_BYTES_MAX, Box::pin(written)).await?
}

impl ExecutionView {
    fn of(row: Row) -> Result<Self, EngineError> {
        let row = ScopedAgentExecutionRow::decode(row)?;
        let unknown = |column: &str| DamagedRows { what: format!("agent_executions.{column} has an unknown word") };
        Ok(Self {
            execution_id: row.execution_id,
            agent_id: row.agent_id,
            agent_type: AgentType::parse(&row.agent_type).ok_or_else(|| unknown("agent_type"))?,
            execution_type: row.execution_type,
            status: ExecutionStatus::parse(&row.status).ok_or_else(|| unknown("status"))?,
            input_data: row.input_data,
            output_data: row.output_data,
            error_data: row.error_data.as_ref().map(Json::decode).transpose()?,
            execution_duration_ms: row.execution_duration_ms.into(),
            resource_usage: row.resource_usage,
            started_at: row.started_at,
            completed_at: row.completed_at,
        })
    }
}
