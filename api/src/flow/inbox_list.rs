//! `GET /inbox`: the caller's notifications that no other channel delivers.

use crate::caller::Caller;
use crate::error_responses::ReadErrors;
use crate::extract::ApiQuery;
use crate::flow::wire::InboxPage;
use crate::params;
use crate::problem::ApiError;
use axum::response::Response;
use chimera_engine::flow;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListInboxQuery {
    limit: Option<usize>,
    cursor: Option<String>,
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
    let messages = flow::inbox(&caller.flow, &caller.permit, limit, query.cursor.as_deref()).await?;
    params::page::<_, InboxPage>(&caller, messages).await
}
