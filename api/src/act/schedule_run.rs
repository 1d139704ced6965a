//! `POST /schedules/{name}/run`: starts a run of a schedule now.

use super::schedule_wire::schedules;
use crate::caller::Caller;
use crate::edge::Edge;
use crate::error_responses::WriteErrors;
use crate::extract::OptionalJson;
use crate::flow::start_response::answer;
use crate::flow::wire::{RunDocument, StartedDocument};
use crate::params;
use crate::problem::ApiError;
use axum::extract::{Path, State};
use axum::response::Response;
use chimera_engine::act::schedule;
use serde::Deserialize;
use utoipa::ToSchema;

/// Options of a run outside of the schedule's times.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunScheduleBody {
    /// How long to wait for the end of the run, in seconds.
    wait: Option<f64>,
    /// A request with a key that was used starts no second run and is refused with `CONFLICT_IDEMPOTENCY`.
    idempotency_key: Option<String>,
}

/// Starts a run of a schedule now, in your name, whether or not the schedule is paused. Its owner wrote the inputs and
/// counts as a requester too.
#[utoipa::path(
    post,
    path = "/schedules/{name}/run",
    tag = "flow",
    params(("name" = String, Path, description = "Name of the schedule")),
    request_body(content = Option<RunScheduleBody>, description = "Optional"),
    responses(
        (status = 200, body = RunDocument, description = "The run ended in time"),
        (status = 202, body = StartedDocument, description = "The run started"),
        WriteErrors
    )
)]
pub(crate) async fn run(
    State(edge): State<Edge>,
    caller: Caller,
    Path(name): Path<String>,
    OptionalJson(body): OptionalJson<RunScheduleBody>,
) -> Result<Response, ApiError> {
    let wait = params::parse_wait(body.wait)?;
    let key = body.idempotency_key.as_deref();
    let started = schedule::run_now(schedules(&edge)?, &caller.permit, &name, key).await?;
    answer(&edge, &caller, started.started, wait).await
}
