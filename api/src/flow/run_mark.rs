//! `PATCH /runs/{id}`: marks a run as rolled back, after a person has undone by hand what a failed run
//! did or what a rollback left. No tool is called, and nothing else of a run can be set.

use crate::caller::Caller;
use crate::error_responses::WriteErrors;
use crate::extract::ApiJson;
use crate::flow::wire::Accepted;
use crate::params;
use crate::problem::ApiError;
use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use chimera_core::error::Code;
use chimera_core::flow::run::RunStatus;
use chimera_core::limits;
use chimera_engine::flow;
use serde::Deserialize;
use tokio::time::{Instant, sleep};
use utoipa::ToSchema;

/// A status change.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MarkBody {
    /// Must be `rolled_back`.
    #[schema(example = "rolled_back")]
    status: String,
    /// How or why it was undone.
    reason: Option<String>,
}

/// Marks a failed or partly rolled back run as rolled back.
#[utoipa::path(
    patch,
    path = "/runs/{id}",
    tag = "flow",
    params(("id" = uuid::Uuid, Path, description = "Run id")),
    request_body = MarkBody,
    responses(
        (status = 200, body = Accepted, description = "The run is marked"),
        (status = 202, body = Accepted, description = "The signal was sent, and the run has not processed it yet"),
        WriteErrors
    )
)]
pub(crate) async fn mark(
    caller: Caller,
    Path(id): Path<String>,
    ApiJson(body): ApiJson<MarkBody>,
) -> Result<(StatusCode, Json<Accepted>), ApiError> {
    let run = params::run(&id)?;
    flow::run_status(&caller.flow, &caller.permit, run).await?;
    if body.status != RunStatus::RolledBack.as_str() {
        return Err(
            ApiError::new(Code::ValidationFailed, "status can only be set to rolled_back").with("pointer", "/status")
        );
    }
    flow::mark_rolled_back(&caller.flow, &caller.permit, run, params::check_note(body.reason)?).await?;
    let until = Instant::now() + limits::MARK_WAIT;
    let mut marked = false;
    while !marked && Instant::now() < until {
        marked = flow::run_status(&caller.flow, &caller.permit, run).await? == RunStatus::RolledBack;
        if !marked {
            sleep(limits::MARK_POLL_INTERVAL).await;
        }
    }
    let code = if marked { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((code, Json(params::accepted(&caller, run).await?)))
}
