//! `POST /schedules/{name}/pause`: stops the ticks of a schedule.

use super::schedule_wire::{ScheduleDocument, schedules};
use crate::caller::Caller;
use crate::edge::Edge;
use crate::error_responses::WriteErrors;
use crate::extract::OptionalJson;
use crate::params;
use crate::problem::ApiError;
use axum::Json;
use axum::extract::{Path, State};
use chimera_engine::act::schedule;
use serde::Deserialize;
use utoipa::ToSchema;

/// Options of a pause.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PauseScheduleBody {
    /// Reason for the pause.
    reason: Option<String>,
}

/// Pauses a schedule. Runs that it has started go on; queued ticks are dropped, and the ledger names them.
#[utoipa::path(
    post,
    path = "/schedules/{name}/pause",
    tag = "flow",
    params(("name" = String, Path, description = "Name of the schedule")),
    request_body(content = Option<PauseScheduleBody>, description = "Optional"),
    responses((status = 200, body = ScheduleDocument, description = "The schedule"), WriteErrors)
)]
pub(crate) async fn pause(
    State(edge): State<Edge>,
    caller: Caller,
    Path(name): Path<String>,
    OptionalJson(body): OptionalJson<PauseScheduleBody>,
) -> Result<Json<ScheduleDocument>, ApiError> {
    let reason = params::check_note(body.reason)?;
    Ok(Json(schedule::pause(schedules(&edge)?, &caller.permit, &name, reason).await?.into()))
}
