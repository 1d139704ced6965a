//! `POST /runs/{id}/replay`: runs a run over again, frozen or as a shadow.

use super::act_post;
use crate::caller::Caller;
use crate::edge::Edge;
use crate::extract::ApiJson;
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

/// How to repeat it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplayBody {
    /// How.
    mode: ReplayWord,
    /// From which node on; from the beginning when absent.
    from: Option<String>,
    /// Seconds to wait for its end.
    wait: Option<f64>,
}

/// A way to repeat a run.
#[derive(Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ReplayWord {
    /// With recorded outputs only: nothing outside is called.
    Freeze,
    /// Without effects; the differences are told.
    Shadow,
    /// For real.
    Retry,
}

/// Repeats a run.
#[utoipa::path(
    post,
    path = "/runs/{id}/replay",
    tag = "flow",
    params(("id" = String, Path, description = "The id of the run to repeat")),
    request_body = ReplayBody,
    responses(
        (status = 200, body = RunDocument, description = "It ended in time"),
        (status = 202, body = StartedDocument, description = "It was started"),
        Changing
    )
)]
pub(crate) async fn replay(
    State(edge): State<Edge>,
    caller: Caller,
    Path(id): Path<String>,
    ApiJson(body): ApiJson<ReplayBody>,
) -> Result<Response, ApiError> {
    let mode = match body.mode {
        ReplayWord::Freeze => ReplayMode::Freeze,
        ReplayWord::Shadow => ReplayMode::Shadow,
        ReplayWord::Retry => ReplayMode::Retry,
    };
    let replay = Replay { of: place::run(&id)?, mode, from: body.from };
    let wait = place::patience(body.wait)?;
    let started = act_post::actions(&edge)?.replay(&caller.permit, replay).await?;
    answer(&edge, &caller, started, wait).await
}
