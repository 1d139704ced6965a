//! `PATCH /runs/{id}`: a person has undone by hand what a failed run did, or what a rollback left, and says so. Nothing is called, and
//! nothing else of a run can be set.

use crate::caller::Caller;
use crate::extract::ApiJson;
use crate::flow::schema::Accepted;
use crate::place;
use crate::problem::ApiError;
use crate::refusals::Changing;
use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use chimera_core::error::Code;
use chimera_core::flow::run::RunStatus;
use chimera_core::limits;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use utoipa::ToSchema;

/// The status that is wanted.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MarkBody {
    /// `rolled_back`.
    #[schema(example = "rolled_back")]
    status: String,
    /// How it was undone, or why.
    reason: Option<String>,
}

/// Marks a run that has failed, or of which a rollback left something, as rolled back.
#[utoipa::path(
    patch,
    path = "/runs/{id}",
    tag = "flow",
    params(("id" = String, Path, description = "The run's id")),
    request_body = MarkBody,
    responses(
        (status = 200, body = Accepted, description = "It is marked"),
        (status = 202, body = Accepted, description = "The run was told, and has not taken it in yet"),
        Changing
    )
)]
pub(crate) async fn mark(
    caller: Caller,
    Path(id): Path<String>,
    ApiJson(body): ApiJson<MarkBody>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let run = place::run(&id)?;
    caller.flow.status(&caller.permit, run).await?;
    if body.status != RunStatus::RolledBack.as_str() {
        return Err(
            ApiError::new(Code::ValidationFailed, "a run can only be set to rolled_back").with("pointer", "/status")
        );
    }
    caller.flow.mark_rolled_back(&caller.permit, run, place::note(body.reason)?).await?;
    let until = Instant::now() + limits::MARK_WAIT;
    let mut marked = false;
    while !marked && Instant::now() < until {
        marked = caller.flow.status(&caller.permit, run).await? == RunStatus::RolledBack;
        if !marked {
            sleep(limits::MARK_POLL_INTERVAL).await;
        }
    }
    let code = if marked { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((code, Json(place::told(&caller, run).await?)))
}
