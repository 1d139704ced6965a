//! `DELETE /schedules/{name}`: removes a schedule.

use super::schedule_wire::schedules;
use crate::caller::Caller;
use crate::edge::Edge;
use crate::error_responses::WriteErrors;
use crate::problem::ApiError;
use axum::Json;
use axum::extract::{Path, State};
use chimera_engine::act::schedule;
use serde::Serialize;
use utoipa::ToSchema;

/// A schedule that was removed.
#[derive(Serialize, ToSchema)]
pub(crate) struct RemovedSchedule {
    /// Name of the schedule.
    name: String,
    /// Always true.
    removed: bool,
}

/// Removes a schedule. Runs that it has started go on.
#[utoipa::path(
    delete,
    path = "/schedules/{name}",
    tag = "flow",
    params(("name" = String, Path, description = "Name of the schedule")),
    responses((status = 200, body = RemovedSchedule, description = "The schedule was removed"), WriteErrors)
)]
pub(crate) async fn remove(
    State(edge): State<Edge>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<RemovedSchedule>, ApiError> {
    schedule::remove(schedules(&edge)?, &caller.permit, &name).await?;
    Ok(Json(RemovedSchedule { name, removed: true }))
}
