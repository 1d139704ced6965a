//! `GET /runs/{id}`: one run, with everything needed to decide its approvals.

use crate::caller::Caller;
use crate::error_responses::ReadErrors;
use crate::flow::wire::RunDocument;
use crate::params;
use crate::problem::ApiError;
use axum::extract::Path;
use axum::response::Response;

/// Retrieves a run.
#[utoipa::path(
    get,
    path = "/runs/{id}",
    tag = "flow",
    params(("id" = uuid::Uuid, Path, description = "Run id")),
    responses((status = 200, body = RunDocument, description = "The run"), ReadErrors)
)]
pub(crate) async fn get(caller: Caller, Path(id): Path<String>) -> Result<Response, ApiError> {
    let run = params::run(&id)?;
    caller.show_run(run, |run| params::json(&RunDocument::from(run))).await?
}
