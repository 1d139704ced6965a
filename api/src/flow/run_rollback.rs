//! `POST /runs/{id}/rollback`: undoes a run that has ended, all of it or some steps.

use crate::caller::Caller;
use crate::extract::OptionalJson;
use crate::flow::schema::Accepted;
use crate::place;
use crate::problem::ApiError;
use crate::refusals::Changing;
use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use chimera_core::error::Code;
use chimera_core::limits::PAGE_ROWS_MAX;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

/// What to undo, and why.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RollbackBody {
    /// Steps, by their ids or their nodes'; all of them when absent.
    step_ids: Option<Vec<String>>,
    /// Why.
    reason: Option<String>,
}

/// Undoes a run.
#[utoipa::path(
    post,
    path = "/runs/{id}/rollback",
    tag = "flow",
    params(("id" = String, Path, description = "The run's id")),
    request_body(content = Option<RollbackBody>, description = "May be left out"),
    responses((status = 202, body = Accepted, description = "The run was told"), Changing)
)]
pub(crate) async fn rollback(
    caller: Caller,
    Path(id): Path<String>,
    OptionalJson(body): OptionalJson<RollbackBody>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let run = place::run(&id)?;
    let mut steps = None;
    if let Some(named) = body.step_ids {
        if !(1..=PAGE_ROWS_MAX).contains(&named.len()) {
            let what = format!("name 1 to {PAGE_ROWS_MAX} steps, or leave them out to undo all");
            return Err(ApiError::new(Code::ValidationFailed, what).with("pointer", "/step_ids"));
        }
        let mut found = Vec::with_capacity(named.len());
        for step in &named {
            found.push(place::step(&caller, run, step).await?);
        }
        steps = Some(found);
    }
    caller.flow.rollback(&caller.permit, run, steps, place::note(body.reason)?).await?;
    Ok((StatusCode::ACCEPTED, Json(place::told(&caller, run).await?)))
}
