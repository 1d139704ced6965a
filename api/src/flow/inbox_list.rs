//! `GET /inbox`: the caller's notifications that no other channel delivers.

use crate::caller::Caller;
use crate::error_responses::ReadErrors;
use crate::extract::ApiQuery;
use crate::params;
use crate::problem::ApiError;
use axum::response::Response;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListInboxQuery {
    limit: Option<usize>,
    cursor: Option<String>,
}

/// An inbox message.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct InboxMessage {
    /// Message id.
    message_id: String,
    /// Event type.
    #[schema(example = "run.completed")]
    r#type: String,
    /// When the message was created.
    at: String,
    /// Id of the run that the message is about.
    run_id: Option<String>,
    /// Same payload as a webhook of this type.
    #[schema(value_type = Object)]
    data: Value,
}

/// A page of inbox messages.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct InboxPage {
    /// Newest first.
    items: Vec<InboxMessage>,
    /// Cursor of the next page; null on the last one.
    next_cursor: Option<String>,
}

/// Lists the caller's inbox messages.
#[utoipa::path(
    get,
    path = "/inbox",
    tag = "flow",
    params(
        ("limit" = Option<usize>, Query, description = "Maximum number of messages"),
        ("cursor" = Option<String>, Query, description = "Cursor from the previous page"),
    ),
    responses((status = 200, body = InboxPage, description = "A page of messages"), ReadErrors)
)]
pub(crate) async fn list(caller: Caller, ApiQuery(query): ApiQuery<ListInboxQuery>) -> Result<Response, ApiError> {
    let limit = params::parse_limit(query.limit)?;
    let shown = caller.flow.inbox(&caller.permit, limit, query.cursor.as_deref()).await?;
    params::document(&caller, shown).await
}
