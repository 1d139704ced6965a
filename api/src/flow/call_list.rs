//! `GET /tool-calls`: lists tool calls, newest first.

use crate::caller::Caller;
use crate::error_responses::ReadErrors;
use crate::extract::ApiQuery;
use crate::flow::wire::CallPage;
use crate::params;
use crate::problem::ApiError;
use axum::response::Response;
use chimera_engine::flow::{self, CallFilter};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListCallsQuery {
    actor: Option<String>,
    tool: Option<String>,
    since: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

/// Lists tool calls.
#[utoipa::path(
    get,
    path = "/tool-calls",
    tag = "flow",
    params(
        ("actor" = Option<String>, Query, description = "Only calls of this actor's runs"),
        ("tool" = Option<String>, Query, description = "Only calls of this tool"),
        ("since" = Option<DateTime>, Query, description = "Only calls at or after this time (RFC 3339)"),
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
    flow::list_calls(&caller.flow, &caller.permit, filter, |page| params::json(&CallPage::from(page))).await?
}
