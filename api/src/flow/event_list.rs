//! `GET /events`: lists the events that are kept.

use crate::caller::Caller;
use crate::error_responses::ReadErrors;
use crate::extract::ApiQuery;
use crate::flow::wire::PublishedEventPage;
use crate::params;
use crate::problem::ApiError;
use axum::response::Response;
use chimera_engine::flow::{EventFilter, list_events};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListEventsQuery {
    name: Option<String>,
    key: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

/// Lists events, newest first: those that you published, or all of the tenant with the scope `runs.read`.
#[utoipa::path(
    get,
    path = "/events",
    tag = "flow",
    params(
        ("name" = Option<String>, Query, description = "Only events with this name"),
        ("key" = Option<String>, Query, description = "Only events with this key"),
        ("limit" = Option<usize>, Query, description = "Maximum number of events"),
        ("cursor" = Option<String>, Query, description = "Cursor from the previous page"),
    ),
    responses((status = 200, body = PublishedEventPage, description = "A page of events"), ReadErrors)
)]
pub(crate) async fn list(caller: Caller, ApiQuery(query): ApiQuery<ListEventsQuery>) -> Result<Response, ApiError> {
    let ListEventsQuery { name, key, limit, cursor } = &query;
    let limit = params::parse_limit(*limit)?;
    let filter = EventFilter { name: name.as_deref(), key: key.as_deref(), limit, cursor: cursor.as_deref() };
    let found = list_events(&caller.flow, &caller.permit, filter).await?;
    params::page::<_, PublishedEventPage>(&caller, found).await
}
