//! `POST /runs/{id}/reject`: a person rejects an approval request.

use super::run_approve::{DecidedDocument, RejectBody, decide};
use crate::caller::Caller;
use crate::error_responses::WriteErrors;
use crate::extract::OptionalJson;
use crate::problem::ApiError;
use axum::Json;
use axum::extract::Path;
use chimera_engine::flow::Decision;

/// Rejects an approval request.
#[utoipa::path(
    post,
    path = "/runs/{id}/reject",
    tag = "flow",
    params(("id" = uuid::Uuid, Path, description = "Run id")),
    request_body(content = Option<RejectBody>, description = "Optional"),
    responses((status = 200, body = DecidedDocument, description = "The decision was recorded"), WriteErrors)
)]
pub(crate) async fn reject(
    caller: Caller,
    Path(id): Path<String>,
    OptionalJson(request): OptionalJson<RejectBody>,
) -> Result<Json<DecidedDocument>, ApiError> {
    decide(&caller, &id, Decision::Reject, request).await.map(Json)
}
