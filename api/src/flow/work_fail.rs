//! `POST /work/fail`: a worker reports that a call failed.

use crate::caller::Caller;
use crate::error_responses::WriteErrors;
use crate::extract::ApiJson;
use crate::flow::wire::Reported;
use crate::problem::ApiError;
use axum::Json;
use chimera_core::error::Code;
use chimera_core::flow::call::Sent;
use chimera_engine::flow::work::{self, FailureReport, Lease};
use serde::Deserialize;
use utoipa::ToSchema;
use uuid::Uuid;

/// Whether the call may have taken effect.
#[derive(Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SentWord {
    /// Certainly not.
    No,
    /// Unknown.
    #[default]
    Maybe,
}

/// Why a call failed.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FailBody {
    /// Id of the work item.
    item_id: Uuid,
    /// Token from the claim.
    lease_token: String,
    /// An error code of this API; `EXTERNAL_SERVICE_ERROR` if absent.
    code: Option<String>,
    /// What went wrong.
    message: String,
    /// Whether another attempt may succeed. If absent, the code says it.
    retryable: Option<bool>,
    /// How many seconds to wait before another attempt.
    retry_after_seconds: Option<u64>,
    /// Whether the call may have taken effect; `maybe` if absent.
    #[serde(default)]
    sent: SentWord,
}

/// Reports that a call failed. The rules of the run decide whether it is made again.
#[utoipa::path(
    post,
    path = "/work/fail",
    tag = "flow",
    request_body = FailBody,
    responses((status = 200, body = Reported, description = "The outcome is recorded"), WriteErrors)
)]
pub(crate) async fn fail(caller: Caller, ApiJson(body): ApiJson<FailBody>) -> Result<Json<Reported>, ApiError> {
    let lease = Lease { item: body.item_id, token: body.lease_token };
    let failure = FailureReport {
        code: body.code.as_deref().map_or(Ok(Code::ExternalServiceError), parse_code)?,
        message: body.message,
        retryable: body.retryable,
        retry_after_seconds: body.retry_after_seconds,
        sent: match body.sent {
            SentWord::No => Sent::No,
            SentWord::Maybe => Sent::Maybe,
        },
    };
    work::fail(&caller.flow, &caller.permit, &lease, failure).await?;
    Ok(Json(Reported { item_id: lease.item, recorded: true }))
}

fn parse_code(text: &str) -> Result<Code, ApiError> {
    Code::parse(text).ok_or_else(|| {
        let what = "code must be an error code of this API; leave it out for EXTERNAL_SERVICE_ERROR";
        ApiError::new(Code::ValidationFailed, what).with("pointer", "/code")
    })
}
