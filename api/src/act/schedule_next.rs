//! `GET /schedules/{name}/next`: shows the next ticks of a schedule.

use super::schedule_wire::{parse_count, schedules};
use crate::caller::Caller;
use crate::edge::Edge;
use crate::error_responses::ReadErrors;
use crate::extract::ApiQuery;
use crate::problem::ApiError;
use crate::wire::{DateTime, IntoWire};
use axum::Json;
use axum::extract::{Path, State};
use chimera_engine::act::schedule;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NextTicksQuery {
    count: Option<usize>,
}

/// The next ticks of a schedule.
#[derive(Serialize, ToSchema)]
pub(crate) struct NextTicks {
    /// Earliest first.
    ticks: Vec<DateTime>,
}

/// Returns the next ticks of a schedule, as if it were not paused.
#[utoipa::path(
    get,
    path = "/schedules/{name}/next",
    tag = "flow",
    params(
        ("name" = String, Path, description = "Name of the schedule"),
        ("count" = Option<usize>, Query, description = "Number of ticks, 1 to 100; 5 if omitted"),
    ),
    responses((status = 200, body = NextTicks, description = "The ticks"), ReadErrors)
)]
pub(crate) async fn next(
    State(edge): State<Edge>,
    caller: Caller,
    Path(name): Path<String>,
    ApiQuery(which): ApiQuery<NextTicksQuery>,
) -> Result<Json<NextTicks>, ApiError> {
    let ticks = schedule::next_ticks(schedules(&edge)?, &caller.permit, &name, parse_count(which.count)?).await?;
    Ok(Json(NextTicks { ticks: ticks.into_wire() }))
}
