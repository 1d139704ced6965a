//! `POST /work/claim`: a worker claims calls of a queue.

use crate::caller::Caller;
use crate::edge::Edge;
use crate::error_responses::WriteErrors;
use crate::extract::ApiJson;
use crate::flow::wire::{ClaimedCallDocument, ClaimedCallList};
use crate::problem::ApiError;
use axum::Json;
use axum::extract::State;
use chimera_engine::flow::work::{self, ClaimRequest};
use serde::Deserialize;
use utoipa::ToSchema;

/// Which calls to claim.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClaimBody {
    /// Name of the queue. The actor needs the scope `work.claim.QUEUE`.
    queue: String,
    /// Maximum number of calls; 1 if absent.
    limit: Option<usize>,
    /// How many seconds to wait if the queue is empty; 0 if absent.
    wait_seconds: Option<u32>,
    /// What the worker calls itself, such as its host name. Shown to people.
    worker: Option<String>,
    /// A random id of 22 to 128 characters. A claim that is repeated under it gets the calls that it already holds.
    claim_id: Option<String>,
}

/// Claims calls of a queue.
#[utoipa::path(
    post,
    path = "/work/claim",
    tag = "flow",
    request_body = ClaimBody,
    responses((status = 200, body = ClaimedCallList, description = "The calls that the worker holds now"), WriteErrors)
)]
pub(crate) async fn claim(
    State(edge): State<Edge>,
    caller: Caller,
    ApiJson(body): ApiJson<ClaimBody>,
) -> Result<Json<ClaimedCallList>, ApiError> {
    caller.release_memory();
    let request = ClaimRequest {
        queue: body.queue,
        limit: body.limit.unwrap_or(1),
        worker: body.worker,
        wait_seconds: body.wait_seconds.unwrap_or(0),
        // The answer must begin before the request times out.
        wait_max: edge.wait_max(),
        claim_id: body.claim_id,
    };
    let claimed = work::claim(&caller.flow, &caller.permit, &request).await?;
    Ok(Json(ClaimedCallList { items: claimed.into_iter().map(ClaimedCallDocument::from).collect() }))
}
