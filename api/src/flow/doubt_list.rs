//! `GET /doubts`: calls of which nobody knows whether they happened.

use crate::caller::Caller;
use crate::extract::ApiQuery;
use crate::flow::schema::DoubtDocument;
use crate::place;
use crate::problem::ApiError;
use crate::refusals::Asking;
use axum::response::Response;
use chimera_engine::flow::DoubtFilter;
use serde::Deserialize;
use utoipa::ToSchema;

/// Which calls.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListDoubtsQuery {
    actor: Option<String>,
    tool: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

/// A page of calls in doubt.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct DoubtPage {
    /// Those of the oldest steps first.
    items: Vec<DoubtDocument>,
    /// Where the next page begins.
    next_cursor: Option<String>,
}

/// Lists calls whose outcome is unknown, until somebody settles them.
#[utoipa::path(
    get,
    path = "/doubts",
    tag = "flow",
    params(
        ("actor" = Option<String>, Query, description = "Only of this actor's runs"),
        ("tool" = Option<String>, Query, description = "Only of this tool"),
        ("limit" = Option<usize>, Query, description = "Calls of the page"),
        ("cursor" = Option<String>, Query, description = "Where the page before ended"),
    ),
    responses((status = 200, body = DoubtPage, description = "A page"), Asking)
)]
pub(crate) async fn list(caller: Caller, ApiQuery(query): ApiQuery<ListDoubtsQuery>) -> Result<Response, ApiError> {
    let filter = DoubtFilter {
        actor: query.actor,
        tool: query.tool,
        limit: place::page_rows(query.limit)?,
        cursor: query.cursor,
    };
    let shown = caller.flow.list_doubts(&caller.permit, filter).await?;
    place::document(&caller, shown).await
}
