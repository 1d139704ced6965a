//! `POST /runs/{id}/cancel`: cancels a run. Tool calls in flight are signalled and awaited.

use crate::caller::Caller;
use crate::error_responses::WriteErrors;
use crate::extract::OptionalJson;
use crate::flow::wire::Accepted;
use crate::params;
use crate::problem::ApiError;
use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use chimera_engine::flow;
use serde::Deserialize;
use utoipa::ToSchema;

/// Options of a cancellation.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CancelBody {
    /// Reason for the cancellation.
    reason: Option<String>,
}

/// Cancels a run.
#[utoipa::path(
    post,
    path = "/runs/{id}/cancel",
    tag = "flow",
    params(("id" = uuid::Uuid, Path, description = "Run id")),
    request_body(content = Option<CancelBody>, description = "Optional"),
    responses((status = 202, body = Accepted, description = "The signal was sent to the run"), WriteErrors)
)]
pub(crate) async fn cancel(
    caller: Caller,
    Path(id): Path<String>,
    OptionalJson(body): OptionalJson<CancelBody>,
) -> Result<(StatusCode, Json<Accepted>), ApiError> {
    let run = params::run(&id)?;
    flow::cancel(&caller.flow, &caller.permit, run, params::check_note(body.reason)?).await?;
    Ok((StatusCode::ACCEPTED, Json(params::accepted(&caller, run).await?)))
}
