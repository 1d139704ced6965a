//! `POST /runs/{id}/steps/{step}/resolve`: a person resolves a tool call whose outcome is unknown.

use crate::caller::Caller;
use crate::error_responses::WriteErrors;
use crate::extract::ApiJson;
use crate::flow::wire::Accepted;
use crate::params;
use crate::problem::ApiError;
use crate::wire::AnyJson;
use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use chimera_core::error::Code;
use chimera_engine::flow::{self, OutcomeReport};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

/// Outcome of the call.
#[derive(Clone, Copy, Deserialize, PartialEq, Eq, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OutcomeWord {
    /// The call took effect.
    Happened,
    /// The call had no effect and may be sent again.
    Never,
}

/// Resolution of an unknown outcome.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResolveBody {
    /// Outcome of the call.
    outcome: OutcomeWord,
    /// Outputs of the step; only with `happened`. The former name `output` is accepted too.
    #[serde(alias = "output")]
    #[schema(value_type = AnyJson, required = false)]
    outputs: Option<Value>,
    /// How the outcome was determined.
    notes: Option<String>,
}

/// Resolves an unknown outcome.
#[utoipa::path(
    post,
    path = "/runs/{id}/steps/{step}/resolve",
    tag = "flow",
    params(
        ("id" = uuid::Uuid, Path, description = "Run id"),
        ("step" = String, Path, description = "Step id or node id"),
    ),
    request_body = ResolveBody,
    responses((status = 202, body = Accepted, description = "The signal was sent to the run"), WriteErrors)
)]
pub(crate) async fn resolve(
    caller: Caller,
    Path((id, step)): Path<(String, String)>,
    ApiJson(body): ApiJson<ResolveBody>,
) -> Result<(StatusCode, Json<Accepted>), ApiError> {
    let run = params::run(&id)?;
    let happened = body.outcome == OutcomeWord::Happened;
    if body.outputs.is_some() && !happened {
        let what = "outputs are only allowed with outcome `happened`";
        return Err(ApiError::new(Code::ValidationFailed, what).with("pointer", "/outputs"));
    }
    let step = params::resolve_step(&caller, run, &step).await?;
    let notes = params::check_note(body.notes)?;
    let found = OutcomeReport { step, attempt: None, happened, output: body.outputs, notes };
    flow::report_outcome(&caller.flow, &caller.permit, run, found).await?;
    Ok((StatusCode::ACCEPTED, Json(params::accepted(&caller, run).await?)))
}
