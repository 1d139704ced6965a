//! `GET /runs/{id}`: one run, with everything needed to decide its approvals.

use crate::caller::Caller;
use crate::error_responses::ReadErrors;
use crate::flow::schema::RunDocument;
use crate::params;
use crate::problem::ApiError;
use axum::extract::Path;
use axum::response::Response;

/// Retrieves a run.
#[utoipa::path(
    get,
    path = "/runs/{id}",
    tag = "flow",
    params(("id" = String, Path, description = "Run id")),
    responses((status = 200, body = RunDocument, description = "The run"), ReadErrors)
)]
pub(crate) async fn get(caller: Caller, Path(id): Path<String>) -> Result<Response, ApiError> {
    Ok(params::serialized_response(caller.flow.show_document(&caller.permit, params::run(&id)?).await?))
}
