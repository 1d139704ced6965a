//! `GET /doubts`: lists tool calls whose outcome is unknown.

use crate::caller::Caller;
use crate::error_responses::ReadErrors;
use crate::extract::ApiQuery;
use crate::flow::wire::DoubtPage;
use crate::params;
use crate::problem::ApiError;
use axum::response::Response;
use chimera_engine::flow::{self, DoubtFilter};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListDoubtsQuery {
    actor: Option<String>,
    tool: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

/// Lists tool calls whose outcome is unknown and not resolved yet.
#[utoipa::path(
    get,
    path = "/doubts",
    tag = "flow",
    params(
        ("actor" = Option<String>, Query, description = "Only calls of this actor's runs"),
        ("tool" = Option<String>, Query, description = "Only calls of this tool"),
        ("limit" = Option<usize>, Query, description = "Maximum number of calls"),
        ("cursor" = Option<String>, Query, description = "Cursor from the previous page"),
    ),
    responses((status = 200, body = DoubtPage, description = "A page of tool calls"), ReadErrors)
)]
pub(crate) async fn list(caller: Caller, ApiQuery(query): ApiQuery<ListDoubtsQuery>) -> Result<Response, ApiError> {
    let filter = DoubtFilter {
        actor: query.actor,
        tool: query.tool,
        limit: params::parse_limit(query.limit)?,
        cursor: query.cursor,
    };
    let doubts = flow::list_doubts(&caller.flow, &caller.permit, filter).await?;
    params::page::<_, DoubtPage>(&caller, doubts).await
}
