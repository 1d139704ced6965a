//! `GET /runs/{id}/steps`: the steps of a run with their tool calls, paginated.
//!
//! The default page size is the maximum, because most runs fit in one page.

use crate::caller::Caller;
use crate::error_responses::ReadErrors;
use crate::extract::ApiQuery;
use crate::flow::wire::StepList;
use crate::params;
use crate::problem::ApiError;
use axum::extract::Path;
use axum::response::Response;
use chimera_core::limits::PAGE_ROWS_MAX;
use chimera_engine::flow::{self, StepFilter};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListStepsQuery {
    limit: Option<usize>,
    cursor: Option<String>,
}

/// Lists the steps of a run.
#[utoipa::path(
    get,
    path = "/runs/{id}/steps",
    tag = "flow",
    params(
        ("id" = uuid::Uuid, Path, description = "Run id"),
        ("limit" = Option<usize>, Query, description = "Maximum number of steps"),
        ("cursor" = Option<String>, Query, description = "Cursor from the previous page"),
    ),
    responses((status = 200, body = StepList, description = "A page of steps"), ReadErrors)
)]
pub(crate) async fn steps(
    caller: Caller,
    Path(id): Path<String>,
    ApiQuery(which): ApiQuery<ListStepsQuery>,
) -> Result<Response, ApiError> {
    let limit = params::parse_limit(which.limit.or(Some(PAGE_ROWS_MAX)))?;
    let run = params::run(&id)?;
    let written = |page| params::json(&StepList::from(page));
    let filter = StepFilter { run, limit, cursor: which.cursor.as_deref() };
    let room = caller.page_share().await?;
    flow::list_steps_as(&caller.flow, &caller.permit, filter, room, written).await?
}
