//! `POST /runs/{id}/cancel`: stops a run; a call under way is told, and waited for.

use crate::caller::Caller;
use crate::extract::OptionalJson;
use crate::flow::schema::Accepted;
use crate::place;
use crate::problem::ApiError;
use crate::refusals::Changing;
use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

/// Why.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CancelBody {
    /// In words.
    reason: Option<String>,
}

/// Stops a run.
#[utoipa::path(
    post,
    path = "/runs/{id}/cancel",
    tag = "flow",
    params(("id" = String, Path, description = "The run's id")),
    request_body(content = Option<CancelBody>, description = "May be left out"),
    responses((status = 202, body = Accepted, description = "The run was told"), Changing)
)]
pub(crate) async fn cancel(
    caller: Caller,
    Path(id): Path<String>,
    OptionalJson(body): OptionalJson<CancelBody>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let run = place::run(&id)?;
    caller.flow.cancel(&caller.permit, run, place::note(body.reason)?).await?;
    Ok((StatusCode::ACCEPTED, Json(place::told(&caller, run).await?)))
}
