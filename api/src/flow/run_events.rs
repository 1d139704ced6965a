//! `GET /runs/{id}/events`: what happens to a run, as server-sent events from the ledger.
//!
//! The id of an event is its number within the run, so a client that reconnects with
//! `Last-Event-ID` misses nothing and gets nothing twice. The store is asked again and again: no
//! hint has to arrive for an event to be seen. When the run has ended and everything was sent the
//! stream ends, and whoever reconnects after that is told that there is no more. It ends too when the caller
//! would not be let in any more.

use super::streams::{Full, Place};
use crate::caller::Caller;
use crate::edge::Edge;
use crate::extract::ApiQuery;
use crate::gate::shown::Shown;
use crate::problem::ApiError;
use crate::refusals::Asking;
use crate::{gate, place};
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use chimera_core::error::Code;
use chimera_core::limits;
use chimera_engine::access::Permit;
use chimera_engine::flow::EventPage;
use futures::{Stream, stream};
use serde::Deserialize;
use serde_json::Value;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Where to begin.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    after: Option<i64>,
}

/// Follows a run.
#[utoipa::path(
    get,
    path = "/runs/{id}/events",
    tag = "flow",
    params(
        ("id" = String, Path, description = "The run's id"),
        ("after" = Option<i64>, Query, description = "Number of the last event that is known already"),
        ("last-event-id" = Option<i64>, Header, description = "The same, as reconnecting clients send it; it counts more"),
    ),
    responses(
        (status = 200, body = String, content_type = "text/event-stream", description = "`id` is the event's number, `event` its type, `data` the event as JSON"),
        (status = 204, description = "The run has ended and the caller has seen everything"),
        Asking
    )
)]
pub(crate) async fn events(
    State(edge): State<Edge>,
    caller: Caller,
    Path(id): Path<String>,
    ApiQuery(which): ApiQuery<Which>,
    Extension(shown): Extension<Arc<Shown>>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let run = place::run(&id)?;
    let resumed = last_event_id(&headers)?;
    if which.after.is_some_and(|after| after < 0) {
        let what = "after is the number of an event of this run, or 0";
        return Err(ApiError::new(Code::SchemaInvalid, what).with("parameter", "after"));
    }
    let after = resumed.or(which.after).unwrap_or(0);
    let place = edge.stream_for(&caller.permit).map_err(|full| full_up(full, &caller.permit))?;
    let first = caller.flow.feed(&caller.permit, run, after).await?;
    if first.over && resumed.is_some() {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let admitted = Admitted { bearer: shown.bearer().to_owned(), at: Instant::now() };
    let follower = Follower { edge, caller, run, feed: first, admitted, _place: place };
    let sse = Sse::new(follow(follower)).keep_alive(KeepAlive::new().interval(limits::STREAM_HEARTBEAT_INTERVAL));
    Ok(([(header::CACHE_CONTROL, "no-store")], sse).into_response())
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<i64>, ApiError> {
    let Some(value) = headers.get(&LAST_EVENT_ID) else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.trim().parse().ok()).filter(|number| *number >= 0);
    let refused = || {
        let what = "Last-Event-ID is the number of an event of this run, or 0";
        ApiError::new(Code::SchemaInvalid, what).with("header", "last-event-id")
    };
    number.map(Some).ok_or_else(refused)
}

/// The refusal of a stream for which there is no place.
fn full_up(full: Full, permit: &Permit) -> ApiError {
    let (actor, tenant) = (permit.actor(), permit.tenant());
    let what = match full {
        Full::All => "too many streams of events are open".to_owned(),
        Full::Tenant(held) => {
            format!("tenant {tenant} has {held} streams of events open, as many as it may: close one first")
        }
        Full::Actor(held) => format!("{actor} has {held} streams of events open, as many as it may: close one first"),
    };
    ApiError::new(Code::Overloaded, what).retry_after(1)
}

/// What let the caller in, and when it was last looked at.
struct Admitted {
    bearer: String,
    at: Instant,
}

struct Follower {
    edge: Edge,
    caller: Caller,
    run: Uuid,
    feed: EventPage,
    admitted: Admitted,
    _place: Place,
}

impl Follower {
    /// Whether the caller would be let in now, with the scopes of now. A stream may be open for days: whoever was
    /// disabled meanwhile, or whose token was revoked or has run out, hears no more.
    async fn is_still_let_in(&mut self) -> bool {
        if self.admitted.at.elapsed() < limits::STREAM_REAUTHORIZE_INTERVAL {
            return true;
        }
        let Ok(door) = gate::door(&self.edge) else { return false };
        let Some(permit) = door.readmit(&self.admitted.bearer, &self.caller.permit).await else { return false };
        self.caller.permit = permit;
        self.admitted.at = Instant::now();
        true
    }

    /// The next events; none when there will be no more, or none can be read now: whoever reconnects
    /// goes on where this ends.
    async fn next(&mut self) -> Option<Vec<Value>> {
        loop {
            if !self.is_still_let_in().await {
                return None;
            }
            if !self.feed.events.is_empty() {
                return Some(std::mem::take(&mut self.feed.events));
            }
            if self.feed.over || self.edge.is_stopping() {
                return None;
            }
            let after = self.feed.after;
            self.feed = self.caller.flow.feed(&self.caller.permit, self.run, after).await.ok()?;
            if self.feed.after == after && !self.feed.over {
                sleep(limits::EVENTS_POLL_INTERVAL).await;
            }
        }
    }
}

fn follow(follower: Follower) -> impl Stream<Item = Result<Event, Infallible>> {
    let pages = stream::unfold(follower, |mut follower| async move {
        let page = follower.next().await?;
        Some((stream::iter(page.into_iter().map(|event| Ok(spell(&event)))), follower))
    });
    futures::StreamExt::flatten(pages)
}

fn spell(event: &Value) -> Event {
    let kind = event["event_type"].as_str().unwrap_or_default();
    Event::default().id(event["run_seq"].to_string()).event(kind).data(event.to_string())
}
