//! `POST /runs/{id}/steps/{step}/resolve`: a person says what became of an effect that nobody can
//! tell of.

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

/// What became of it.
#[derive(Clone, Copy, Deserialize, PartialEq, Eq, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OutcomeWord {
    /// It happened.
    Happened,
    /// It never did, and may be sent.
    Never,
}

/// What a person found out.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResolveBody {
    /// What became of it.
    outcome: OutcomeWord,
    /// What it gave, if it happened.
    output: Option<Value>,
    /// How they know.
    notes: Option<String>,
}

/// Settles an unknown outcome.
#[utoipa::path(
    post,
    path = "/runs/{id}/steps/{step}/resolve",
    tag = "flow",
    params(
        ("id" = String, Path, description = "The run's id"),
        ("step" = String, Path, description = "The step's id, or its node's"),
    ),
    request_body = ResolveBody,
    responses((status = 202, body = Accepted, description = "The run was told"), Changing)
)]
pub(crate) async fn resolve(
    caller: Caller,
    Path((id, step)): Path<(String, String)>,
    ApiJson(body): ApiJson<ResolveBody>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let run = place::run(&id)?;
    let happened = body.outcome == OutcomeWord::Happened;
    if body.output.is_some() && !happened {
        let what = "what never happened gave no output";
        return Err(ApiError::new(Code::ValidationFailed, what).with("pointer", "/output"));
    }
    let step = place::step(&caller, run, &step).await?;
    let notes = place::note(body.notes)?;
    caller.flow.resolve(&caller.permit, run, step, happened, body.output, notes).await?;
    Ok((StatusCode::ACCEPTED, Json(place::told(&caller, run).await?)))
}
