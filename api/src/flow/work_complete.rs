//! `POST /work/complete`: a worker reports the output of a call.

use crate::caller::Caller;
use crate::error_responses::WriteErrors;
use crate::extract::ApiJson;
use crate::flow::wire::Reported;
use crate::problem::ApiError;
use crate::wire::AnyJson;
use axum::Json;
use chimera_engine::flow::work::{self, Lease};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

/// The output of a call.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CompleteBody {
    /// Id of the work item.
    item_id: Uuid,
    /// Token from the claim.
    lease_token: String,
    /// Output of the call. It must match the output schema of the tool.
    #[schema(value_type = AnyJson)]
    output: Value,
}

/// Reports the output of a call. Reporting it again changes nothing.
#[utoipa::path(
    post,
    path = "/work/complete",
    tag = "flow",
    request_body = CompleteBody,
    responses((status = 200, body = Reported, description = "The outcome is recorded"), WriteErrors)
)]
pub(crate) async fn complete(caller: Caller, ApiJson(body): ApiJson<CompleteBody>) -> Result<Json<Reported>, ApiError> {
    let lease = Lease { item: body.item_id, token: body.lease_token };
    work::complete(&caller.flow, &caller.permit, &lease, body.output).await?;
    Ok(Json(Reported { item_id: lease.item, recorded: true }))
}
