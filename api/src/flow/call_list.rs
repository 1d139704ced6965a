//! `GET /tool-calls`: what was called, the newest first.

use crate::caller::Caller;
use crate::extract::ApiQuery;
use crate::flow::schema::CallDocument;
use crate::place;
use crate::problem::ApiError;
use crate::refusals::Asking;
use axum::response::Response;
use chimera_engine::flow::CallFilter;
use serde::Deserialize;
use utoipa::ToSchema;

/// Which calls.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    actor: Option<String>,
    tool: Option<String>,
    since: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

/// A call and the run that it belongs to.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct ListedCall {
    #[serde(flatten)]
    #[schema(inline)]
    call: CallDocument,
    /// The run.
    run_id: String,
    /// Who asked for it.
    actor: Option<String>,
    /// Where the run stands.
    run_status: Option<String>,
    /// The step.
    step_id: Option<String>,
}

/// A page of calls.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct CallPage {
    /// The newest first.
    items: Vec<ListedCall>,
    /// Where the next page begins.
    next_cursor: Option<String>,
}

/// Lists calls of tools.
#[utoipa::path(
    get,
    path = "/tool-calls",
    tag = "flow",
    params(
        ("actor" = Option<String>, Query, description = "Only of this actor's runs"),
        ("tool" = Option<String>, Query, description = "Only of this tool"),
        ("since" = Option<String>, Query, description = "Only from this time on (RFC 3339)"),
        ("limit" = Option<usize>, Query, description = "Calls of the page"),
        ("cursor" = Option<String>, Query, description = "Where the page before ended"),
    ),
    responses((status = 200, body = CallPage, description = "A page"), Asking)
)]
pub(crate) async fn list(caller: Caller, ApiQuery(which): ApiQuery<Which>) -> Result<Response, ApiError> {
    let filter = CallFilter {
        actor: which.actor,
        tool: which.tool,
        since: place::time("since", which.since.as_deref())?,
        limit: place::page_rows(which.limit)?,
        cursor: which.cursor,
    };
    Ok(place::written(caller.flow.list_calls(&caller.permit, filter).await?))
}
