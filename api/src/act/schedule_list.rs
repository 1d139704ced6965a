//! `GET /schedules`: lists schedules.

use super::schedule_wire::{SchedulePage, schedules};
use crate::caller::Caller;
use crate::edge::Edge;
use crate::error_responses::ReadErrors;
use crate::extract::ApiQuery;
use crate::params;
use crate::problem::ApiError;
use axum::extract::State;
use axum::response::Response;
use chimera_engine::act::schedule;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListSchedulesQuery {
    limit: Option<usize>,
    cursor: Option<String>,
}

/// Lists schedules: your own, or all of the tenant with one of the scopes `runs.read`, `runs.manage` and
/// `approvals.decide`.
#[utoipa::path(
    get,
    path = "/schedules",
    tag = "flow",
    params(
        ("limit" = Option<usize>, Query, description = "Maximum number of schedules"),
        ("cursor" = Option<String>, Query, description = "Cursor from the previous page"),
    ),
    responses((status = 200, body = SchedulePage, description = "A page of schedules"), ReadErrors)
)]
pub(crate) async fn list(
    State(edge): State<Edge>,
    caller: Caller,
    ApiQuery(which): ApiQuery<ListSchedulesQuery>,
) -> Result<Response, ApiError> {
    let limit = params::parse_limit(which.limit)?;
    let found = schedule::list(schedules(&edge)?, &caller.permit, limit, which.cursor.as_deref()).await?;
    params::page::<_, SchedulePage>(&caller, found).await
}
