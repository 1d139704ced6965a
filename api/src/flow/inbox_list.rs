//! `GET /inbox`: what the caller was told and has no other channel for.

use crate::caller::Caller;
use crate::extract::ApiQuery;
use crate::place;
use crate::problem::ApiError;
use crate::refusals::Asking;
use axum::response::Response;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

/// Which page.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListInboxQuery {
    limit: Option<usize>,
    cursor: Option<String>,
}

/// A message of an inbox.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct InboxMessage {
    /// Its id.
    message_id: String,
    /// What happened.
    #[schema(example = "run.completed")]
    r#type: String,
    /// When it was written.
    at: String,
    /// The run that it is about.
    run_id: Option<String>,
    /// The same as a webhook of this type has.
    #[schema(value_type = Object)]
    data: Value,
}

/// A page of an inbox.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct InboxPage {
    /// The newest message first.
    items: Vec<InboxMessage>,
    /// Where the next page begins.
    next_cursor: Option<String>,
}

/// Lists the caller's own messages.
#[utoipa::path(
    get,
    path = "/inbox",
    tag = "flow",
    params(
        ("limit" = Option<usize>, Query, description = "Messages of the page"),
        ("cursor" = Option<String>, Query, description = "Where the page before ended"),
    ),
    responses((status = 200, body = InboxPage, description = "A page"), Asking)
)]
pub(crate) async fn list(caller: Caller, ApiQuery(query): ApiQuery<ListInboxQuery>) -> Result<Response, ApiError> {
    let limit = place::page_rows(query.limit)?;
    let shown = caller.flow.inbox(&caller.permit, limit, query.cursor.as_deref()).await?;
    place::document(&caller, shown).await
}
