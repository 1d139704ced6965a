//! `GET /tool-calls`: lists tool calls, newest first.

use crate::caller::Caller;
use crate::error_responses::ReadErrors;
use crate::extract::ApiQuery;
use crate::flow::schema::CallDocument;
use crate::params;
use crate::problem::ApiError;
use axum::response::Response;
use chimera_engine::flow::CallFilter;
use serde::Deserialize;
use utoipa::ToSchema;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListCallsQuery {
    actor: Option<String>,
    tool: Option<String>,
    since: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

/// A tool call and its run.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct ListedCall {
    #[serde(flatten)]
    #[schema(inline)]
    call: CallDocument,
    /// Id of the run.
    run_id: String,
    /// Actor who requested the run.
    actor: Option<String>,
    /// Status of the run.
    run_status: Option<String>,
    /// Id of the step.
    step_id: Option<String>,
}

/// A page of tool calls.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct CallPage {
    /// Newest first.
    items: Vec<ListedCall>,
    /// Cursor of the next page; null on the last one.
    next_cursor: Option<String>,
}

/// Lists tool calls.
#[utoipa::path(
    get,
    path = "/tool-calls",
    tag = "flow",
    params(
        ("actor" = Option<String>, Query, description = "Only calls of this actor's runs"),
        ("tool" = Option<String>, Query, description = "Only calls of this tool"),
        ("since" = Option<String>, Query, description = "Only calls at or after this time (RFC 3339)"),
        ("limit" = Option<usize>, Query, description = "Maximum number of calls"),
        ("cursor" = Option<String>, Query, description = "Cursor from the previous page"),
    ),
    responses((status = 200, body = CallPage, description = "A page of tool calls"), ReadErrors)
)]
pub(crate) async fn list(caller: Caller, ApiQuery(which): ApiQuery<ListCallsQuery>) -> Result<Response, ApiError> {
    let filter = CallFilter {
        actor: which.actor,
        tool: which.tool,
        since: params::time("since", which.since.as_deref())?,
        limit: params::parse_limit(which.limit)?,
        cursor: which.cursor,
    };
    Ok(params::serialized_response(caller.flow.list_calls(&caller.permit, filter).await?))
}
