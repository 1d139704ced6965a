//! `POST /runs/{id}/patch`: an overlay on the graph of a run that goes on, or what it would change.

use super::act_post;
use crate::caller::Caller;
use crate::edge::Edge;
use crate::extract::ApiJson;
use crate::place;
use crate::problem::ApiError;
use crate::refusals::Changing;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A patch.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PatchBody {
    /// The patch document.
    #[schema(value_type = Object)]
    patch: Value,
    /// The version of the run that it was made for.
    state_version: Option<i64>,
    /// Only what it would change is wanted.
    #[serde(default)]
    dry_run: bool,
}

/// What a patch changes.
#[derive(Serialize, ToSchema)]
pub(crate) struct ProposedDocument {
    /// The run.
    run_id: String,
    /// The patch's number; none for a dry run.
    number: Option<u32>,
    /// What it changes, and how it is taken out again.
    preview: Value,
}

/// Patches a run.
#[utoipa::path(
    post,
    path = "/runs/{id}/patch",
    tag = "flow",
    params(("id" = String, Path, description = "The run's id")),
    request_body = PatchBody,
    responses(
        (status = 200, body = ProposedDocument, description = "What it would change"),
        (status = 202, body = ProposedDocument, description = "The run was told"),
        Changing
    )
)]
pub(crate) async fn patch(
    State(edge): State<Edge>,
    caller: Caller,
    Path(id): Path<String>,
    ApiJson(body): ApiJson<PatchBody>,
) -> Result<(StatusCode, Json<ProposedDocument>), ApiError> {
    let run = place::run(&id)?;
    let actions = act_post::actions(&edge)?;
    let proposed = actions.patch(&caller.permit, run, body.patch, body.state_version, body.dry_run).await?;
    let status = if body.dry_run { StatusCode::OK } else { StatusCode::ACCEPTED };
    let told = ProposedDocument { run_id: run.to_string(), number: proposed.number, preview: proposed.preview };
    Ok((status, Json(told)))
}
