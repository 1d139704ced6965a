//! `POST /events`: publishes an event for the runs that wait for it.

use crate::caller::Caller;
use crate::error_responses::WriteErrors;
use crate::extract::ApiJson;
use crate::flow::wire::PublishedEventDocument;
use crate::problem::ApiError;
use axum::Json;
use axum::http::StatusCode;
use chimera_engine::flow::{PublishEvent, publish_event};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

/// An event.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PublishEventBody {
    /// Name of the event, such as `payment.received`.
    name: String,
    /// Key of the event, such as the number of an order.
    key: String,
    /// Any JSON; the wait node outputs it as `payload`.
    #[serde(default)]
    #[schema(value_type = crate::wire::AnyJson)]
    payload: Value,
    /// Id of the event. An event with an id that was published before counts once; without an id, Chimera draws one.
    event_id: Option<String>,
    /// How long the event is kept for runs that begin to wait later; a day by default.
    ttl_seconds: Option<u32>,
}

/// Publishes an event.
///
/// Every run of your tenant that waits for this name and key gets it, and so does every run that begins to wait for
/// it before it expires. Requires the scope `events.publish`.
#[utoipa::path(
    post,
    path = "/events",
    tag = "flow",
    request_body = PublishEventBody,
    responses(
        (status = 201, body = PublishedEventDocument, description = "The event was published"),
        (status = 200, body = PublishedEventDocument, description = "The event with this id was published before"),
        WriteErrors
    )
)]
pub(crate) async fn publish(
    caller: Caller,
    ApiJson(body): ApiJson<PublishEventBody>,
) -> Result<(StatusCode, Json<PublishedEventDocument>), ApiError> {
    let PublishEventBody { name, key, payload, event_id, ttl_seconds } = body;
    let event = PublishEvent { name, key, payload, event_id, ttl_seconds };
    let published = publish_event(&caller.flow, &caller.permit, event).await?;
    let status = if published.is_duplicate { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(published.event.into())))
}
