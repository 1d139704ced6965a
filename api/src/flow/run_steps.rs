//! `GET /runs/{id}/steps`: the steps of a run and every call they made, page by page.
//!
//! Whoever doesn't say how many gets as many as a page may have, because most runs fit in one.

use crate::caller::Caller;
use crate::extract::ApiQuery;
use crate::flow::schema::StepList;
use crate::place;
use crate::problem::ApiError;
use crate::refusals::Asking;
use axum::extract::Path;
use axum::response::Response;
use chimera_core::limits::PAGE_ROWS_MAX;
use serde::Deserialize;

/// Which page.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    limit: Option<usize>,
    cursor: Option<String>,
}

/// Lists the steps of a run.
#[utoipa::path(
    get,
    path = "/runs/{id}/steps",
    tag = "flow",
    params(
        ("id" = String, Path, description = "The run's id"),
        ("limit" = Option<usize>, Query, description = "Steps of the page"),
        ("cursor" = Option<String>, Query, description = "Where the page before ended"),
    ),
    responses((status = 200, body = StepList, description = "A page"), Asking)
)]
pub(crate) async fn steps(
    caller: Caller,
    Path(id): Path<String>,
    ApiQuery(which): ApiQuery<Which>,
) -> Result<Response, ApiError> {
    let limit = place::page_rows(which.limit.or(Some(PAGE_ROWS_MAX)))?;
    let run = place::run(&id)?;
    Ok(place::written(caller.flow.step_page(&caller.permit, run, limit, which.cursor.as_deref()).await?))
}
