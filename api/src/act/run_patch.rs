//! `POST /runs/{id}/patch`: patches the graph of an active run, or previews the patch.

use super::act_post;
use crate::caller::Caller;
use crate::edge::Edge;
use crate::error_responses::WriteErrors;
use crate::extract::ApiJson;
use crate::params;
use crate::problem::ApiError;
use crate::wire::{JsonObject, wire};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use chimera_engine::act;
use chimera_engine::flow::{PatchRequest, view};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

/// A patch of a run.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PatchBody {
    /// The patch document.
    #[schema(value_type = JsonObject)]
    patch: Value,
    /// `state_version` of the run that the patch was made for.
    state_version: Option<i64>,
    /// Only preview the patch.
    #[serde(default)]
    dry_run: bool,
}

/// A proposed patch.
#[derive(Serialize, ToSchema)]
pub(crate) struct ProposedDocument {
    /// Id of the run.
    run_id: Uuid,
    /// Number of the patch; null for a dry run.
    #[schema(required)]
    number: Option<u32>,
    /// What the patch changes, and how to remove it.
    preview: PreviewDocument,
}

wire! {
    /// What a patch changes, and how to remove it.
    pub(crate) PreviewDocument from view::PatchChanges {
        /// Difference between the graphs.
        diff: GraphDiffDocument,
        /// What removes the patch.
        inverse: InverseDocument,
    }

    /// Difference between two graphs.
    pub(crate) GraphDiffDocument from view::GraphDiff {
        /// Digests of the documents.
        digest: DigestChangeDocument,
        /// Nodes, as in a workflow document.
        nodes: MemberDiffDocument,
        /// Edges, as in a workflow document.
        edges: MemberDiffDocument,
    }

    /// Digests before and after a change.
    pub(crate) DigestChangeDocument from view::DigestChange {
        /// Before the change.
        before: String,
        /// After the change.
        after: String,
    }

    /// What was added and removed.
    pub(crate) MemberDiffDocument from view::MemberDiff {
        /// Added.
        added: Vec<JsonObject>,
        /// Removed.
        removed: Vec<JsonObject>,
    }

    /// What removes a patch.
    pub(crate) InverseDocument from view::PatchInverse {
        /// Ids of the nodes to remove.
        remove_nodes: Vec<String>,
        /// Edges to remove, as in a workflow document.
        remove_edges: Vec<JsonObject>,
    }
}

/// Patches a run.
#[utoipa::path(
    post,
    path = "/runs/{id}/patch",
    tag = "flow",
    params(("id" = uuid::Uuid, Path, description = "Run id")),
    request_body = PatchBody,
    responses(
        (status = 200, body = ProposedDocument, description = "Preview of a dry run"),
        (status = 202, body = ProposedDocument, description = "The patch was sent to the run"),
        WriteErrors
    )
)]
pub(crate) async fn patch(
    State(edge): State<Edge>,
    caller: Caller,
    Path(id): Path<String>,
    ApiJson(body): ApiJson<PatchBody>,
) -> Result<(StatusCode, Json<ProposedDocument>), ApiError> {
    let run = params::run(&id)?;
    let actions = act_post::actions(&edge)?;
    let _room = caller.page_share().await?;
    let PatchBody { patch, state_version, dry_run } = body;
    let request = PatchRequest { version: state_version, dry_run, ..PatchRequest::new(run, patch) };
    let proposed = act::patch(actions, &caller.permit, request).await?;
    let status = if dry_run { StatusCode::OK } else { StatusCode::ACCEPTED };
    let document = ProposedDocument { run_id: run, number: proposed.number, preview: proposed.preview.into() };
    Ok((status, Json(document)))
}
