//! `GET /schedules/{name}`: shows a schedule.

use super::schedule_wire::{ScheduleDocument, schedules};
use crate::caller::Caller;
use crate::edge::Edge;
use crate::error_responses::ReadErrors;
use crate::problem::ApiError;
use axum::Json;
use axum::extract::{Path, State};
use chimera_engine::act::schedule;

/// Returns a schedule, with what became of its last tick.
#[utoipa::path(
    get,
    path = "/schedules/{name}",
    tag = "flow",
    params(("name" = String, Path, description = "Name of the schedule")),
    responses((status = 200, body = ScheduleDocument, description = "The schedule"), ReadErrors)
)]
pub(crate) async fn get(
    State(edge): State<Edge>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<ScheduleDocument>, ApiError> {
    Ok(Json(schedule::show(schedules(&edge)?, &caller.permit, &name).await?.into()))
}
