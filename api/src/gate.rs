//! Authentication and rate limiting, before every route that requires a token or takes a body.
//!
//! The gate authenticates the caller by the request head, reads the whole body, verifies the signature, counts the
//! request, checks its nonce, runs the handler and adds rate-limit headers. What a route requires is in its line of the
//! route table. No byte of a body is read before the head passes. The handler checks the body's type and shape last, so
//! that an unauthenticated caller learns nothing about them.

pub(crate) mod headers;
pub(crate) mod memory;
pub(crate) mod received;
pub(crate) mod refused_bytes;
pub(crate) mod unread;

use self::headers::insert_rate_headers;
use self::memory::MemoryShare;
use self::received::ReceivedRequest;
use self::refused_bytes::BodyCharge;
use crate::edge::Edge;
use crate::extract::{self, MinimumRate};
use crate::flow::link_open;
use crate::page;
use crate::problem::{ApiError, PendingProblem};
use crate::route::Signed;
use axum::body::{Body, HttpBody};
use axum::extract::{FromRequestParts, Path, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use chimera_core::access::Claimant;
use chimera_core::error::Code;
use chimera_core::limits::{BODY_RECHECK_MS, JSON_INLINE_BYTES_MAX};
use chimera_engine::access::{self, AuthenticatedCaller, Authenticator, Permit, Rate, Rejection};
use chimera_engine::flow;
use std::sync::Arc;

/// Query parameter with which an operator acts for another tenant.
pub(crate) const FOR_TENANT: &str = "for_tenant";

/// Response extension: the handler has recorded the refusal itself.
#[derive(Clone, Copy)]
pub(crate) struct RecordedRefusal;

/// Middleware: checks the head, reads the body and runs the handler, with a [`Permit`] if the route requires a token.
/// It is one layer, because every layer clones all inner layers for each request.
pub(crate) async fn enforce(State(edge): State<Edge>, request: Request, next: Next) -> Response {
    unread::limit_unread(&edge.unread, request, |request| check_and_run(&edge, request, next)).await
}

async fn check_and_run(edge: &Edge, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let Some(mut received) = ReceivedRequest::from_head(edge, &parts) else {
        // A route that is not in the table is a bug: fail closed.
        return ApiError::internal().into_response();
    };
    let (announced, has_body) = (body.size_hint().lower(), !body.is_end_stream());
    let admitted = match admit(edge, &mut received, &mut parts, announced).await {
        Ok(caller) => receive_body(edge, &mut received, caller, body).await,
        Err(refused) => Err(refused),
    };
    let request = Request::from_parts(parts, Body::from(received.body.clone()));
    let large = received.body.len() > JSON_INLINE_BYTES_MAX;
    match admitted {
        Ok((Some(caller), charge)) => {
            let who = caller.claimant();
            let answer = Box::pin(run_authenticated((edge, caller, received, charge), request, next));
            let answer = edge.run_offloaded(&who, large, answer).await;
            answer.unwrap_or_else(IntoResponse::into_response)
        }
        Ok((None, charge)) => {
            let who = anonymous_claimant(&received);
            let answer = Box::pin(run_unauthenticated((edge, &who), received, charge, request, next));
            let answer = edge.run_offloaded(&who, large, answer).await;
            answer.unwrap_or_else(IntoResponse::into_response)
        }
        Err(refused) if has_body => close_connection(refused),
        Err(refused) => refused,
    }
}

/// Closes the connection after this response: the unread body would be taken for the next request.
fn close_connection(mut response: Response) -> Response {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Unauthenticated callers share one tenant's budget; each address counts as an actor.
fn anonymous_claimant(received: &ReceivedRequest) -> Claimant {
    let address = received.peer.map(|peer| peer.address.to_string());
    Claimant::new("", address.as_deref().unwrap_or_default())
}

/// Runs the handler of a route without a token; the handler authenticates the caller itself.
async fn run_unauthenticated(
    (edge, who): (&Edge, &Claimant),
    received: ReceivedRequest,
    charge: BodyCharge<'_>,
    mut request: Request,
    next: Next,
) -> Response {
    let received = Arc::new(received);
    request.extensions_mut().insert(Arc::clone(&received));
    let response = run_with_memory(edge, (who, &received), request, |request| next.run(request)).await;
    if response.status().is_client_error() { response } else { charge.forgive(response) }
}

/// Runs the handler if the signature proves that the request is the caller's own and the quota allows it.
async fn run_authenticated(
    (edge, caller, received, charge): (&Edge, AuthenticatedCaller, ReceivedRequest, BodyCharge<'_>),
    mut request: Request,
    next: Next,
) -> Response {
    let authenticator = match authenticator(edge) {
        Ok(authenticator) => authenticator,
        Err(error) => return error.into_response(),
    };
    let permit = match authenticator.verify_request(caller, &received.credentials()).await {
        Ok(permit) => permit,
        Err(rejection) => return refusal_response(rejection),
    };
    let received = Arc::new(received);
    request.extensions_mut().insert(permit.clone());
    request.extensions_mut().insert(Arc::clone(&received));
    rate_limit_middleware((edge, authenticator, &permit, &received, charge), request, next).await
}

/// Authenticates the caller from the head alone. A body announced as too large is refused here.
async fn admit(
    edge: &Edge,
    received: &mut ReceivedRequest,
    parts: &mut Parts,
    announced: u64,
) -> Result<Option<AuthenticatedCaller>, Response> {
    if let Err(error) = received.read_head(&parts.headers, announced) {
        return Err(received.refuse(edge, error).await);
    }
    if received.rules.link {
        let checked = match link_open::flow(edge) {
            Ok(flow) => flow::check_link(flow, &link_token(parts).await).await.map_err(ApiError::from),
            Err(error) => Err(error),
        };
        return checked.map(|()| None).map_err(|error| page::refused(error, &*edge.random));
    }
    let authenticator = authenticator(edge).map_err(IntoResponse::into_response)?;
    match received.rules.token {
        true => authenticator.admit(&received.credentials()).await.map(Some).map_err(refusal_response),
        false => authenticator.admit_anonymous(&received.credentials()).await.map(|()| None).map_err(refusal_response),
    }
}

async fn link_token(parts: &mut Parts) -> String {
    link_open::token_or_empty(Path::from_request_parts(parts, &()).await)
}

/// Reads the body of an admitted caller. A sender over its budget of refused bytes is refused unread. After a slow body
/// the caller is authenticated again, because the token may have been revoked in the meantime.
async fn receive_body<'a>(
    edge: &'a Edge,
    received: &mut ReceivedRequest,
    caller: Option<AuthenticatedCaller>,
    body: Body,
) -> Result<(Option<AuthenticatedCaller>, BodyCharge<'a>), Response> {
    let mut charge = BodyCharge::new(edge, received.peer, caller.as_ref().map(AuthenticatedCaller::actor));
    if received.rules.body_bytes_max == 0 {
        return Ok((caller, charge));
    }
    if body.is_end_stream() {
        received.set_body(Bytes::new());
        return Ok((caller, charge));
    }
    if let Err(over) = charge.check() {
        return Err(received.refuse(edge, over).await);
    }
    let began = edge.clock.steady();
    let pace = MinimumRate { grace: edge.timeouts.body, ..MinimumRate::default() };
    match extract::read_body(body, received.rules.body_bytes_max, pace, |bytes| charge.add(bytes)).await {
        Ok(bytes) => received.set_body(bytes),
        Err(error) => return Err(received.refuse(edge, error).await),
    }
    let Some(before) = &caller else { return Ok((caller, charge)) };
    let authenticator = authenticator(edge).map_err(IntoResponse::into_response)?;
    let is_quick = edge.clock.steady().millis() - began.millis() <= BODY_RECHECK_MS;
    if is_quick && authenticator.is_current(before) {
        return Ok((caller, charge));
    }
    let caller = authenticator.admit(&received.credentials()).await.map_err(refusal_response)?;
    Ok((Some(caller), charge))
}

/// Lets an operator act for the tenant in `for_tenant`. The parameter is removed before the handler sees the query.
async fn act_for(
    authenticator: &Authenticator,
    permit: &Permit,
    received: &ReceivedRequest,
    request: &mut Request,
) -> Result<(), ApiError> {
    let Some((slug, uri)) = take_for_tenant(request.uri())? else { return Ok(()) };
    if received.rules.signed == Signed::Body {
        return Err(invalid_for_tenant(
            "this endpoint does not sign the query string, so it cannot act for another tenant",
        ));
    }
    let permit = access::act_for(authenticator, permit, &slug, &received.credentials()).await?;
    *request.uri_mut() = uri;
    request.extensions_mut().insert(permit);
    Ok(())
}

/// The tenant in `for_tenant`, and the URI without that parameter.
fn take_for_tenant(uri: &Uri) -> Result<Option<(String, Uri)>, ApiError> {
    let (mut named, mut others) = (Vec::new(), Vec::new());
    for part in uri.query().unwrap_or_default().split('&') {
        match decoded(part) {
            Some((name, slug)) if name == FOR_TENANT => named.push(slug),
            _ => others.push(part),
        }
    }
    let Some(slug) = named.pop() else { return Ok(None) };
    if !named.is_empty() {
        return Err(invalid_for_tenant("given more than once"));
    }
    let rest = others.join("&");
    let rest = if rest.is_empty() { uri.path().to_owned() } else { format!("{}?{rest}", uri.path()) };
    let rest = rest.parse().map_err(|_| invalid_for_tenant("the rest of the query is not a valid URI"))?;
    Ok(Some((slug, rest)))
}

/// The name and value of one part of a query, decoded as every other parameter is.
fn decoded(part: &str) -> Option<(String, String)> {
    let alone = format!("/?{part}").parse().ok()?;
    Query::<Vec<(String, String)>>::try_from_uri(&alone).ok()?.0.pop()
}

fn invalid_for_tenant(why: &str) -> ApiError {
    ApiError::new(Code::SchemaInvalid, format!("invalid parameter {FOR_TENANT}: {why}")).with("parameter", FOR_TENANT)
}

/// Counts the request of an authenticated caller against their quota, and adds the rate-limit headers.
async fn rate_limit_middleware(
    (edge, authenticator, permit, received, charge): (&Edge, &Authenticator, &Permit, &ReceivedRequest, BodyCharge<'_>),
    mut request: Request,
    call_next: Next,
) -> Response {
    let rate = match authenticator.count(permit, &received.credentials()).await {
        Ok(rate) => charge.forgive(rate),
        Err(rejection) => return refusal_response(rejection),
    };
    let response = match authenticator.check_once(permit, &received.credentials()).await {
        Ok(()) => match act_for(authenticator, permit, received, &mut request).await {
            Ok(()) => {
                let who = request.extensions().get::<Permit>().unwrap_or(permit).claimant();
                let run = |request| unread::bound_tenant(&edge.unread, request, call_next);
                use_up_nonce(authenticator, permit, run_with_memory(edge, (&who, received), request, run).await).await
            }
            Err(error) => error.into_response(),
        },
        Err(body) => return with_rate_headers(ApiError::from(body).into_response(), &rate),
    };
    with_rate_headers(record_refusal(authenticator, permit, received, response).await, &rate)
}

/// Runs the handler with its share of memory, which is held until the response is complete.
async fn run_with_memory<F: Future<Output = Response>>(
    edge: &Edge,
    (who, received): (&Claimant, &ReceivedRequest),
    mut request: Request,
    run: impl FnOnce(Request) -> F,
) -> Response {
    let share = match MemoryShare::reserve(edge, who, received).await {
        Ok(share) => share,
        Err(refused) => return refused.into_response(),
    };
    if let Some(share) = &share {
        request.extensions_mut().insert(share.clone());
    }
    let response = run(request).await;
    drop(share.map(|share| share.take()));
    response
}

/// Uses up the nonce of a successful request, even if it changed nothing, so it cannot be sent twice.
async fn use_up_nonce(authenticator: &Authenticator, permit: &Permit, response: Response) -> Response {
    if !response.status().is_success() {
        return response;
    }
    match authenticator.finish(permit).await {
        Ok(()) => response,
        Err(body) => ApiError::from(body).into_response(),
    }
}

/// Records the refusal of an authenticated caller in the ledger: every 403, and every refusal on routes
/// that start a run.
async fn record_refusal(
    authenticator: &Authenticator,
    permit: &Permit,
    received: &ReceivedRequest,
    mut response: Response,
) -> Response {
    let counts = |error: &ApiError| match error.code.status() {
        403 => true,
        status => received.rules.starts_run && status < 500,
    };
    if response.extensions_mut().remove::<RecordedRefusal>().is_some() {
        return response;
    }
    match response.extensions_mut().remove::<PendingProblem>() {
        Some(PendingProblem(error)) if counts(&error) => {
            ApiError::from(authenticator.record_refusal(permit, &received.credentials(), error.body).await)
                .into_response()
        }
        Some(attached) => {
            response.extensions_mut().insert(attached);
            response
        }
        None => response,
    }
}

pub(crate) fn authenticator(edge: &Edge) -> Result<&Authenticator, ApiError> {
    let closed = || ApiError::new(Code::Unauthenticated, "authentication is not configured on this server");
    edge.access.as_ref().map(|access| access.authenticator()).ok_or_else(closed)
}

pub(crate) fn refusal_response(rejection: Rejection) -> Response {
    let response = ApiError::from(rejection.body).into_response();
    match &rejection.rate {
        Some(rate) => with_rate_headers(response, rate),
        None => response,
    }
}

/// Adds the rate-limit headers.
pub(crate) fn with_rate_headers(mut response: Response, rate: &Rate) -> Response {
    insert_rate_headers(response.headers_mut(), rate);
    response
}
