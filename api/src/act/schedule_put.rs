//! `PUT /schedules/{name}`: replaces what a schedule starts and when.

use super::schedule_wire::{ScheduleBody, ScheduleDocument, schedules};
use crate::caller::Caller;
use crate::edge::Edge;
use crate::error_responses::WriteErrors;
use crate::extract::ApiJson;
use crate::problem::ApiError;
use axum::Json;
use axum::extract::{Path, State};
use chimera_engine::act::schedule;

/// Replaces the definition of a schedule.
///
/// Only its owner may, and confirms with it what the workflow is now. Queued ticks are dropped, and the ledger names
/// them; a paused schedule stays paused.
#[utoipa::path(
    put,
    path = "/schedules/{name}",
    tag = "flow",
    params(("name" = String, Path, description = "Name of the schedule")),
    request_body = ScheduleBody,
    responses((status = 200, body = ScheduleDocument, description = "The schedule"), WriteErrors)
)]
pub(crate) async fn put(
    State(edge): State<Edge>,
    caller: Caller,
    Path(name): Path<String>,
    ApiJson(body): ApiJson<ScheduleBody>,
) -> Result<Json<ScheduleDocument>, ApiError> {
    Ok(Json(schedule::replace(schedules(&edge)?, &caller.permit, &name, body.definition()?).await?.into()))
}
