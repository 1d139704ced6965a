//! `POST /schedules`: creates a schedule.

use super::schedule_wire::{NewScheduleBody, ScheduleDocument, schedules};
use crate::caller::Caller;
use crate::edge::Edge;
use crate::error_responses::WriteErrors;
use crate::extract::ApiJson;
use crate::problem::ApiError;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use chimera_engine::act::schedule;

/// Creates a schedule.
///
/// Its runs are started in your name, with the rights that you have at each tick and never more than your token has
/// now. You need the rights to start the workflow already.
#[utoipa::path(
    post,
    path = "/schedules",
    tag = "flow",
    request_body = NewScheduleBody,
    responses((status = 201, body = ScheduleDocument, description = "The schedule"), WriteErrors)
)]
pub(crate) async fn add(
    State(edge): State<Edge>,
    caller: Caller,
    ApiJson(mut body): ApiJson<NewScheduleBody>,
) -> Result<(StatusCode, Json<ScheduleDocument>), ApiError> {
    let name = std::mem::take(&mut body.name);
    let made = schedule::create(schedules(&edge)?, &caller.permit, &name, body.definition()?).await?;
    Ok((StatusCode::CREATED, Json(made.into())))
}
