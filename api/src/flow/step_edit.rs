//! `POST /runs/{id}/steps/{step}/edit`: a person edits the input of a step that awaits approval. The
//! approval request is superseded by one with a new digest. In a drafted plan, where a step is named by
//! its node, the whole plan awaits approval again.

use crate::caller::Caller;
use crate::error_responses::WriteErrors;
use crate::extract::ApiJson;
use crate::flow::wire::Accepted;
use crate::params;
use crate::problem::ApiError;
use crate::wire::JsonObject;
use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use chimera_core::error::Code;
use chimera_engine::flow;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

/// New input of a step.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EditBody {
    /// Input of the tool.
    #[schema(value_type = JsonObject)]
    input: Value,
}

/// Edits the input of a step.
#[utoipa::path(
    post,
    path = "/runs/{id}/steps/{step}/edit",
    tag = "flow",
    params(
        ("id" = uuid::Uuid, Path, description = "Run id"),
        ("step" = String, Path, description = "Step id or node id"),
    ),
    request_body = EditBody,
    responses((status = 202, body = Accepted, description = "The signal was sent to the run"), WriteErrors)
)]
pub(crate) async fn edit(
    caller: Caller,
    Path((id, step)): Path<(String, String)>,
    ApiJson(body): ApiJson<EditBody>,
) -> Result<(StatusCode, Json<Accepted>), ApiError> {
    let run = params::run(&id)?;
    match params::resolve_step(&caller, run, &step).await {
        Ok(step) => flow::edit_step(&caller.flow, &caller.permit, run, step, body.input).await?,
        // A planned node without a dry run has no step yet, so it is edited by node id.
        Err(absent) if absent.code == Code::NotFound && !step.contains(char::is_control) => {
            flow::edit_planned(&caller.flow, &caller.permit, run, &step, body.input).await?;
        }
        Err(other) => return Err(other),
    }
    Ok((StatusCode::ACCEPTED, Json(params::accepted(&caller, run).await?)))
}
