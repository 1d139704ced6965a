//! `POST /runs/{id}/retry`: runs a run again for real, from a given node, with new effects.

use super::act_post;
use super::idempotency::{DuplicateWord, plain_key};
use crate::caller::Caller;
use crate::edge::Edge;
use crate::error_responses::WriteErrors;
use crate::extract::OptionalJson;
use crate::flow::wire::{RunDocument, StartedDocument};
use crate::params;
use crate::problem::ApiError;
use axum::extract::{Path, State};
use axum::response::Response;
use chimera_core::flow::run::{Replay, ReplayMode};
use serde::Deserialize;
use utoipa::ToSchema;

/// Options of a retry.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetryBody {
    /// Node to start from; the beginning if omitted.
    from: Option<String>,
    /// How long to wait for the end of the run, in seconds.
    wait: Option<f64>,
    /// A request with a key that was used starts no second run.
    idempotency_key: Option<String>,
    /// What to return for a used idempotency key.
    #[serde(default)]
    on_duplicate: DuplicateWord,
}

/// Retries a run.
#[utoipa::path(
    post,
    path = "/runs/{id}/retry",
    tag = "flow",
    params(("id" = uuid::Uuid, Path, description = "Id of the run to retry")),
    request_body(content = Option<RetryBody>, description = "Optional"),
    responses(
        (status = 200, body = RunDocument, description = "The run ended in time"),
        (status = 202, body = StartedDocument, description = "The run started"),
        WriteErrors
    )
)]
pub(crate) async fn retry(
    State(edge): State<Edge>,
    caller: Caller,
    Path(id): Path<String>,
    OptionalJson(body): OptionalJson<RetryBody>,
) -> Result<Response, ApiError> {
    let replay = Replay { of: params::run(&id)?, mode: ReplayMode::Retry, from: body.from };
    let wait = params::parse_wait(body.wait)?;
    let room = caller.page_share().await?;
    let key = body.idempotency_key.map(|key| plain_key(key, body.on_duplicate));
    let repeated = act_post::repeat(&edge, &caller, replay, key).await?;
    drop(room);
    act_post::repeat_response(&edge, &caller, repeated, wait).await
}
