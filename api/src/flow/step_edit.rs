//! `POST /runs/{id}/steps/{step}/edit`: a person changes what waits for approval; it waits anew,
//! under a new digest. A step of a drafted plan goes by its node, and the whole plan waits anew.

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
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

/// The new input.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EditBody {
    /// What the tool is to be given.
    #[schema(value_type = Object)]
    input: Value,
}

/// Changes the input of a step.
#[utoipa::path(
    post,
    path = "/runs/{id}/steps/{step}/edit",
    tag = "flow",
    params(
        ("id" = String, Path, description = "The run's id"),
        ("step" = String, Path, description = "The step's id, or its node's"),
    ),
    request_body = EditBody,
    responses((status = 202, body = Accepted, description = "The run was told"), Changing)
)]
pub(crate) async fn edit(
    caller: Caller,
    Path((id, step)): Path<(String, String)>,
    ApiJson(body): ApiJson<EditBody>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let run = place::run(&id)?;
    match place::step(&caller, run, &step).await {
        Ok(step) => caller.flow.edit(&caller.permit, run, step, body.input).await?,
        // What is only planned and was not tried dry has no step yet and goes by its node.
        Err(absent) if absent.code == Code::NotFound && !step.contains(char::is_control) => {
            caller.flow.edit_planned(&caller.permit, run, &step, body.input).await?;
        }
        Err(other) => return Err(other),
    }
    Ok((StatusCode::ACCEPTED, Json(place::told(&caller, run).await?)))
}
