//! `POST /runs/{id}/retry`: runs a run again for real, from a node on, with effects of its own.

use super::act_post;
use crate::caller::Caller;
use crate::edge::Edge;
use crate::extract::OptionalJson;
use crate::flow::answer::answer;
use crate::flow::schema::{RunDocument, StartedDocument};
use crate::place;
use crate::problem::ApiError;
use crate::refusals::Changing;
use axum::extract::{Path, State};
use axum::response::Response;
use chimera_core::flow::run::{Replay, ReplayMode};
use serde::Deserialize;
use utoipa::ToSchema;

/// From where.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetryBody {
    /// From which node on; from the beginning when absent.
    from: Option<String>,
    /// Seconds to wait for its end.
    wait: Option<f64>,
}

/// Runs a run again.
#[utoipa::path(
    post,
    path = "/runs/{id}/retry",
    tag = "flow",
    params(("id" = String, Path, description = "The id of the run to run again")),
    request_body(content = Option<RetryBody>, description = "May be left out"),
    responses(
        (status = 200, body = RunDocument, description = "It ended in time"),
        (status = 202, body = StartedDocument, description = "It was started"),
        Changing
    )
)]
pub(crate) async fn retry(
    State(edge): State<Edge>,
    caller: Caller,
    Path(id): Path<String>,
    OptionalJson(body): OptionalJson<RetryBody>,
) -> Result<Response, ApiError> {
    let replay = Replay { of: place::run(&id)?, mode: ReplayMode::Retry, from: body.from };
    let wait = place::patience(body.wait)?;
    let started = act_post::actions(&edge)?.replay(&caller.permit, replay).await?;
    answer(&edge, &caller, started, wait).await
}
