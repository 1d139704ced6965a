//! `POST /work/renew`: a worker keeps its lease on a call.

use crate::caller::Caller;
use crate::error_responses::WriteErrors;
use crate::extract::ApiJson;
use crate::flow::wire::RenewedLeaseDocument;
use crate::problem::ApiError;
use axum::Json;
use chimera_engine::flow::work::{self, Lease};
use serde::Deserialize;
use utoipa::ToSchema;
use uuid::Uuid;

/// The lease to renew.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RenewBody {
    /// Id of the work item.
    item_id: Uuid,
    /// Token from the claim.
    lease_token: String,
}

/// Renews the lease on a call, and says whether the run still wants its outcome.
#[utoipa::path(
    post,
    path = "/work/renew",
    tag = "flow",
    request_body = RenewBody,
    responses((status = 200, body = RenewedLeaseDocument, description = "The lease goes on"), WriteErrors)
)]
pub(crate) async fn renew(
    caller: Caller,
    ApiJson(body): ApiJson<RenewBody>,
) -> Result<Json<RenewedLeaseDocument>, ApiError> {
    let lease = Lease { item: body.item_id, token: body.lease_token };
    Ok(Json(work::renew(&caller.flow, &caller.permit, &lease).await?.into()))
}
