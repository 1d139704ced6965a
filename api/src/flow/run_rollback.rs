//! `POST /runs/{id}/rollback`: rolls back an ended run, all of it or some steps.

use crate::caller::Caller;
use crate::error_responses::WriteErrors;
use crate::extract::OptionalJson;
use crate::flow::wire::Accepted;
use crate::params;
use crate::problem::ApiError;
use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use chimera_core::error::Code;
use chimera_core::limits::PAGE_ROWS_MAX;
use chimera_engine::flow;
use serde::Deserialize;
use utoipa::ToSchema;

/// Options of a rollback.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RollbackBody {
    /// Step ids or node ids; all steps if omitted.
    step_ids: Option<Vec<String>>,
    /// Reason for the rollback.
    reason: Option<String>,
}

/// Rolls back a run.
#[utoipa::path(
    post,
    path = "/runs/{id}/rollback",
    tag = "flow",
    params(("id" = uuid::Uuid, Path, description = "Run id")),
    request_body(content = Option<RollbackBody>, description = "Optional"),
    responses((status = 202, body = Accepted, description = "The signal was sent to the run"), WriteErrors)
)]
pub(crate) async fn rollback(
    caller: Caller,
    Path(id): Path<String>,
    OptionalJson(body): OptionalJson<RollbackBody>,
) -> Result<(StatusCode, Json<Accepted>), ApiError> {
    let run = params::run(&id)?;
    let mut steps = None;
    if let Some(named) = body.step_ids {
        if !(1..=PAGE_ROWS_MAX).contains(&named.len()) {
            let what = format!("step_ids must name 1 to {PAGE_ROWS_MAX} steps; omit it to roll back all");
            return Err(ApiError::new(Code::ValidationFailed, what).with("pointer", "/step_ids"));
        }
        let mut found = Vec::with_capacity(named.len());
        for step in &named {
            found.push(params::resolve_step(&caller, run, step).await?);
        }
        steps = Some(found);
    }
    flow::rollback(&caller.flow, &caller.permit, run, steps, params::check_note(body.reason)?).await?;
    Ok((StatusCode::ACCEPTED, Json(params::accepted(&caller, run).await?)))
}
