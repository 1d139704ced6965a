//! `GET /runs/{id}/events`: the events of a run from the ledger, as server-sent events.
//!
//! The id of an event is its number within the run, so a client that reconnects with `Last-Event-ID`
//! misses nothing and gets nothing twice. The store is polled, so no event depends on a notification.
//! The stream ends when the run has ended and every event was sent; a client that reconnects after that
//! gets 204. It also ends when the caller's access is revoked or expires.

use super::stream_limit::{StreamLimitReached, StreamSlot};
use crate::caller::Caller;
use crate::edge::Edge;
use crate::error_responses::ReadErrors;
use crate::extract::ApiQuery;
use crate::flow::wire::EventDocument;
use crate::gate::received::ReceivedRequest;
use crate::problem::ApiError;
use crate::{gate, params};
use axum::Extension;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use chimera_core::error::Code;
use chimera_core::limits;
use chimera_engine::access::Permit;
use chimera_engine::flow::view::EventView;
use chimera_engine::flow::{self, EventPage};
use futures::{Stream, stream};
use serde::Deserialize;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunEventsQuery {
    after: Option<i64>,
}

/// The last event that the client has received, as it says.
pub(crate) struct StreamPosition {
    query: RunEventsQuery,
    header: Option<HeaderValue>,
}

impl FromRequestParts<Edge> for StreamPosition {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, edge: &Edge) -> Result<Self, ApiError> {
        let ApiQuery(query) = ApiQuery::from_request_parts(parts, edge).await?;
        Ok(Self { query, header: parts.headers.get(&LAST_EVENT_ID).cloned() })
    }
}

impl StreamPosition {
    fn after(&self) -> Result<Option<i64>, ApiError> {
        if self.query.after.is_some_and(|after| after < 0) {
            let what = "after must be an event number of this run, or 0";
            return Err(ApiError::new(Code::SchemaInvalid, what).with("parameter", "after"));
        }
        Ok(self.query.after)
    }

    /// Set by a client that reconnects.
    fn last_event_id(&self) -> Result<Option<i64>, ApiError> {
        let Some(value) = &self.header else { return Ok(None) };
        let number = value.to_str().ok().and_then(|text| text.trim().parse().ok()).filter(|number| *number >= 0);
        let refused = || {
            let what = "Last-Event-ID must be an event number of this run, or 0";
            ApiError::new(Code::SchemaInvalid, what).with("header", "last-event-id")
        };
        number.map(Some).ok_or_else(refused)
    }
}

/// Streams the events of a run.
#[utoipa::path(
    get,
    path = "/runs/{id}/events",
    tag = "flow",
    params(
        ("id" = uuid::Uuid, Path, description = "Run id"),
        ("after" = Option<i64>, Query, description = "Number of the last event received"),
        ("last-event-id" = Option<i64>, Header, description = "Like `after`, sent by reconnecting clients; takes precedence"),
    ),
    responses(
        (status = 200, body = String, content_type = "text/event-stream", description = "`id` is the event's number, `event` its type, `data` an `EventDocument` as JSON"),
        (status = 204, description = "The run has ended and there are no more events"),
        ReadErrors
    )
)]
pub(crate) async fn events(
    State(edge): State<Edge>,
    caller: Caller,
    Path(id): Path<String>,
    position: StreamPosition,
    Extension(received): Extension<Arc<ReceivedRequest>>,
) -> Result<Response, ApiError> {
    let run = params::run(&id)?;
    let resumed = position.last_event_id()?;
    let after = resumed.or(position.after()?).unwrap_or(0);
    let place = edge.reserve_stream(&caller.permit).map_err(|full| stream_limit_error(full, &caller.permit))?;
    let first = flow::feed(&caller.flow, &caller.permit, run, after).await?;
    if first.over && resumed.is_some() {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let admitted = AdmittedToken { bearer: received.bearer().to_owned(), at: Instant::now() };
    let follower = Follower { edge, caller, run, feed: first, admitted, _place: place };
    let sse = Sse::new(event_stream(follower)).keep_alive(KeepAlive::new().interval(limits::STREAM_HEARTBEAT_INTERVAL));
    Ok(([(header::CACHE_CONTROL, "no-store")], sse).into_response())
}

fn stream_limit_error(full: StreamLimitReached, permit: &Permit) -> ApiError {
    let (actor, tenant) = (permit.actor(), permit.tenant());
    let what = match full {
        StreamLimitReached::All => "too many event streams are open".to_owned(),
        StreamLimitReached::Tenant(held) => {
            format!("tenant {tenant} has reached its limit of {held} open event streams; close one first")
        }
        StreamLimitReached::Actor(held) => {
            format!("{actor} has reached its limit of {held} open event streams; close one first")
        }
    };
    ApiError::new(Code::Overloaded, what).retry_after(1)
}

/// The caller's token, and when it was last checked.
struct AdmittedToken {
    bearer: String,
    at: Instant,
}

struct Follower {
    edge: Edge,
    caller: Caller,
    run: Uuid,
    feed: EventPage,
    admitted: AdmittedToken,
    _place: StreamSlot,
}

impl Follower {
    /// Checks the caller's access again, with their current scopes. A stream may be open for days, and the actor may be
    /// disabled or the token revoked or expired in the meantime.
    async fn is_still_admitted(&mut self) -> bool {
        if self.admitted.at.elapsed() < limits::STREAM_REAUTHORIZE_INTERVAL {
            return true;
        }
        let Ok(authenticator) = gate::authenticator(&self.edge) else { return false };
        let Some(permit) = authenticator.readmit(&self.admitted.bearer, &self.caller.permit).await else {
            return false;
        };
        self.caller.permit = permit;
        self.admitted.at = Instant::now();
        true
    }

    /// The next events; `None` when there are no more, or the store can't be read: a client that
    /// reconnects continues where this ended.
    async fn next(&mut self) -> Option<Vec<EventView>> {
        loop {
            if !self.is_still_admitted().await {
                return None;
            }
            if !self.feed.events.is_empty() {
                return Some(std::mem::take(&mut self.feed.events));
            }
            if self.feed.over || self.edge.is_stopping() {
                return None;
            }
            let after = self.feed.after;
            self.feed = flow::feed(&self.caller.flow, &self.caller.permit, self.run, after).await.ok()?;
            if self.feed.after == after && !self.feed.over {
                sleep(limits::EVENTS_POLL_INTERVAL).await;
            }
        }
    }
}

fn event_stream(follower: Follower) -> impl Stream<Item = Result<Event, Infallible>> {
    let pages = stream::unfold(follower, |mut follower| async move {
        let page = follower.next().await?;
        Some((stream::iter(page.into_iter().map(|event| Ok(to_sse_event(event)))), follower))
    });
    futures::StreamExt::flatten(pages)
}

fn to_sse_event(event: EventView) -> Event {
    let sse = Event::default().id(event.run_seq.to_string()).event(&event.event_type);
    sse.data(serde_json::to_string(&EventDocument::from(event)).unwrap_or_default())
}
