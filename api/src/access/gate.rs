//! What stands before every guarded route: the body is read whole, its caller is let in or turned
//! away, and the answer says where the caller stands.
//!
//! The size comes first, because nothing else may cost more than that; the body's type and shape come
//! last, in the handler, because they are nobody's business before the caller is known.

use super::headers::{SIGNATURE, bearer, single, tell};
use crate::edge::Edge;
use crate::extract;
use crate::problem::ApiError;
use crate::server::Peer;
use crate::trace::TraceContext;
use axum::body::{Body, HttpBody};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use chimera_core::error::Code;
use chimera_core::limits::BODY_BYTES_MAX;
use chimera_engine::access::{Door, Presented, Rate, Turned};

/// What a request shows, owned, so that it outlives the request's parts.
pub(crate) struct Shown {
    bearer: Option<String>,
    signature: Option<String>,
    pub(crate) body: Bytes,
    method: Method,
    peer: Option<std::net::IpAddr>,
    target: String,
    trace_id: Option<String>,
}

impl Shown {
    /// Reads what a request shows, and its body as far as it may go.
    pub(crate) async fn read(request: Request) -> Result<(Self, Request), ApiError> {
        let (parts, body) = request.into_parts();
        let body = if body.is_end_stream() { Bytes::new() } else { extract::read(body, BODY_BYTES_MAX).await? };
        let route = parts.extensions.get::<MatchedPath>().map_or(parts.uri.path(), MatchedPath::as_str);
        let shown = Self {
            bearer: bearer(&parts.headers)?.map(str::to_owned),
            signature: single(&parts.headers, &SIGNATURE)?.map(str::to_owned),
            body: body.clone(),
            method: parts.method.clone(),
            peer: parts.extensions.get::<Peer>().map(|peer| peer.0),
            target: format!("{} {route}", parts.method),
            trace_id: parts.extensions.get::<TraceContext>().map(|context| context.trace_id.clone()),
        };
        Ok((shown, Request::from_parts(parts, Body::from(body))))
    }

    /// The token that was shown.
    pub(crate) fn bearer(&self) -> &str {
        self.bearer.as_deref().unwrap_or_default()
    }

    /// As the door wants to see it.
    pub(crate) fn presented(&self) -> Presented<'_> {
        let acts = self.target == "POST /act";
        Presented {
            bearer: self.bearer.as_deref(),
            signature: self.signature.as_deref(),
            body: &self.body,
            signed: acts,
            dated: acts,
            reads: matches!(self.method, Method::GET | Method::HEAD),
            peer: self.peer,
            target: &self.target,
            trace_id: self.trace_id.as_deref(),
        }
    }
}

/// Lets a request through to its handler, with a permit.
pub(crate) async fn admit(State(edge): State<Edge>, request: Request, next: Next) -> Response {
    let (shown, mut request) = match Shown::read(request).await {
        Ok(read) => read,
        Err(error) => return error.into_response(),
    };
    let door = match door(&edge) {
        Ok(door) => door,
        Err(error) => return error.into_response(),
    };
    let admitted = match door.admit(&shown.presented()).await {
        Ok(admitted) => admitted,
        Err(turned) => return turned_away(turned),
    };
    let rate = admitted.rate;
    request.extensions_mut().insert(admitted);
    request.extensions_mut().insert(std::sync::Arc::new(shown));
    let response = next.run(request).await;
    with_rate(response, &rate)
}

/// The door, if this server has one.
pub(crate) fn door(edge: &Edge) -> Result<&Door, ApiError> {
    let closed = || ApiError::new(Code::Unauthenticated, "nobody is let in here");
    edge.access.as_ref().map(|access| access.door()).ok_or_else(closed)
}

/// The answer to somebody who was turned away.
pub(crate) fn turned_away(turned: Turned) -> Response {
    let response = ApiError::from(turned.body).into_response();
    match &turned.rate {
        Some(rate) => with_rate(response, rate),
        None => response,
    }
}

/// An answer that says where the caller stands.
pub(crate) fn with_rate(mut response: Response, rate: &Rate) -> Response {
    tell(response.headers_mut(), rate);
    response
}

/// Whether a request says that its body is JSON.
pub(crate) fn require_json(headers: &HeaderMap) -> Result<(), ApiError> {
    extract::require_json(headers)
}
