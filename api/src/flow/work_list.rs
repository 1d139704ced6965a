//! `GET /work`: lists calls that workers execute.

use crate::caller::Caller;
use crate::error_responses::ReadErrors;
use crate::extract::ApiQuery;
use crate::flow::wire::{WorkItemPage, WorkStateWord};
use crate::params;
use crate::problem::ApiError;
use axum::response::Response;
use chimera_core::flow::work::WorkState;
use chimera_engine::flow::work::{self, WorkFilter};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListWorkQuery {
    state: Option<WorkStateWord>,
    queue: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

/// Lists calls that workers execute.
#[utoipa::path(
    get,
    path = "/work",
    tag = "flow",
    params(
        ("state" = Option<WorkStateWord>, Query, description = "Only calls in this state; `queued` if absent"),
        ("queue" = Option<String>, Query, description = "Only calls of this queue"),
        ("limit" = Option<usize>, Query, description = "Maximum number of calls"),
        ("cursor" = Option<String>, Query, description = "Cursor from the previous page"),
    ),
    responses((status = 200, body = WorkItemPage, description = "A page of calls"), ReadErrors)
)]
pub(crate) async fn list(caller: Caller, ApiQuery(query): ApiQuery<ListWorkQuery>) -> Result<Response, ApiError> {
    let filter = WorkFilter {
        state: query.state.map_or(WorkState::Queued, WorkState::from),
        queue: query.queue,
        limit: params::parse_limit(query.limit)?,
        cursor: query.cursor,
    };
    let items = work::list(&caller.flow, &caller.permit, filter).await?;
    params::page::<_, WorkItemPage>(&caller, items).await
}
