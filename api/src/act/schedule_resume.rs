//! `POST /schedules/{name}/resume`: lets a paused schedule tick again.

use super::schedule_wire::{ScheduleDocument, schedules};
use crate::caller::Caller;
use crate::edge::Edge;
use crate::error_responses::WriteErrors;
use crate::problem::ApiError;
use axum::Json;
use axum::extract::{Path, State};
use chimera_engine::act::schedule;

/// Resumes a schedule with its next tick. Ticks that passed meanwhile are not caught up.
#[utoipa::path(
    post,
    path = "/schedules/{name}/resume",
    tag = "flow",
    params(("name" = String, Path, description = "Name of the schedule")),
    responses((status = 200, body = ScheduleDocument, description = "The schedule"), WriteErrors)
)]
pub(crate) async fn resume(
    State(edge): State<Edge>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<ScheduleDocument>, ApiError> {
    Ok(Json(schedule::resume(schedules(&edge)?, &caller.permit, &name).await?.into()))
}
