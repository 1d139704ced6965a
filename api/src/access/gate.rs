//! What stands before every guarded route: the body is read whole, its caller is let in or turned
//! away, and the answer says where the caller stands.
//!
//! The size comes first, because nothing else may cost more than that; the body's type and shape come
//! last, in the handler, because they are nobody's business before the caller is known.

use super::headers::{SIGNATURE, bearer, single, tell};
use crate::edge::{Edge, PublicUrl};
use crate::extract;
use crate::json;
use crate::problem::{ApiError, Attached};
use crate::route::{Dated, Limit, Rules, Signed};
use crate::routes;
use crate::server::Peer;
use crate::trace::TraceContext;
use axum::body::{Body, HttpBody};
use axum::extract::{MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use chimera_core::access::signature;
use chimera_core::error::Code;
use chimera_core::limits::BODY_BYTES_MAX;
use chimera_engine::access::{Door, Permit, Presented, Proof, Rate, Turned};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;

/// The parameter by which an operator acts for another tenant.
pub(crate) const FOR_TENANT: &str = "for_tenant";

/// What a request shows, owned, so that it outlives the request's parts.
pub(crate) struct Shown {
    bearer: Option<String>,
    /// The signature of the body alone.
    signature: Option<String>,
    pub(crate) body: Bytes,
    rules: &'static Rules,
    method: Method,
    uri: Uri,
    /// What a signature of the whole request can cover, if one is demanded.
    fields: Vec<(String, String)>,
    public: PublicUrl,
    peer: Option<std::net::IpAddr>,
    target: String,
    trace_id: Option<String>,
}

impl Shown {
    /// Reads what a request shows, and its body as far as it may go. Whatever can't be read is refused
    /// like anything else: counted, and entered in the ledger.
    pub(crate) async fn read(edge: &Edge, request: Request) -> Result<(Self, Request), Response> {
        let (parts, body) = request.into_parts();
        let Some(mut shown) = Self::of(edge, &parts) else {
            // A route that the table doesn't know is a fault of ours: nobody gets through it.
            return Err(ApiError::internal().into_response());
        };
        match shown.fill(&parts.headers, body).await {
            Ok(()) => {
                let body = Body::from(shown.body.clone());
                Ok((shown, Request::from_parts(parts, body)))
            }
            Err(error) => Err(shown.refuse(edge, error).await),
        }
    }

    /// What stands in a request's head and needs no trust.
    fn of(edge: &Edge, parts: &Parts) -> Option<Self> {
        let path = parts.extensions.get::<MatchedPath>()?.as_str();
        let route = routes::route(&parts.method, path)?;
        Some(Self {
            bearer: None,
            signature: None,
            body: Bytes::new(),
            rules: route.rules,
            method: parts.method.clone(),
            uri: parts.uri.clone(),
            fields: match route.rules.signed {
                Signed::Message => fields(&parts.headers),
                Signed::Body | Signed::No => Vec::new(),
            },
            public: edge.public.clone(),
            peer: parts.extensions.get::<Peer>().map(|peer| peer.0),
            target: format!("{} {path}", parts.method),
            trace_id: parts.extensions.get::<TraceContext>().map(|context| context.trace_id.clone()),
        })
    }

    async fn fill(&mut self, headers: &HeaderMap, body: Body) -> Result<(), ApiError> {
        if !body.is_end_stream() {
            self.body = extract::read(body, BODY_BYTES_MAX).await?;
        }
        self.bearer = bearer(headers)?.map(str::to_owned);
        self.signature = single(headers, &SIGNATURE)?.map(str::to_owned);
        Ok(())
    }

    /// Refuses whoever sent something that can't be read, before it is known who they are.
    pub(crate) async fn refuse(&self, edge: &Edge, error: ApiError) -> Response {
        match door(edge) {
            Ok(door) if error.code.status() < 500 => turned_away(door.refuse(&self.presented(), error.body).await),
            _ => error.into_response(),
        }
    }

    /// The body as JSON of one shape.
    pub(crate) fn json<T: DeserializeOwned + 'static>(&self, headers: &HeaderMap) -> Result<T, ApiError> {
        Ok(json::shaped(&self.document(headers)?)?)
    }

    /// The body as JSON of any shape.
    pub(crate) fn document(&self, headers: &HeaderMap) -> Result<Value, ApiError> {
        extract::require_json(headers)?;
        Ok(json::parse(&self.body)?)
    }

    /// The token that was shown.
    pub(crate) fn bearer(&self) -> &str {
        self.bearer.as_deref().unwrap_or_default()
    }

    /// As the door wants to see it.
    pub(crate) fn presented(&self) -> Presented<'_> {
        let signature = self.signature.as_deref();
        Presented {
            bearer: self.bearer.as_deref(),
            proof: match self.rules.signed {
                Signed::No => Proof::Token,
                Signed::Body => Proof::Body { signature, dated: self.rules.dated == Dated::IfSaid },
                Signed::Message => Proof::Message(self.parts()),
            },
            body: &self.body,
            reads: self.rules.limit == Limit::Reads,
            peer: self.peer,
            target: &self.target,
            trace_id: self.trace_id.as_deref(),
        }
    }

    /// What a signature of the whole request can cover.
    fn parts(&self) -> signature::Parts<'_> {
        let host = self.fields.iter().find(|(name, _)| name == "host").map(|(_, value)| value.as_str());
        signature::Parts {
            method: self.method.as_str(),
            scheme: self.public.scheme(),
            authority: self.uri.authority().map(Authority::as_str).or(host).unwrap_or_default(),
            path: self.uri.path(),
            prefix: self.public.prefix(),
            query: self.uri.query(),
            fields: &self.fields,
            body: &self.body,
        }
    }
}

/// Header fields as a signature can cover them; those that are no text can't be.
fn fields(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |(name, value): (&HeaderName, &HeaderValue)| Some((name.to_string(), value.to_str().ok()?.to_owned()));
    headers.iter().filter_map(text).collect()
}

/// Reads a request whole and finds out who sent it; its handler gets a permit.
pub(crate) async fn authenticate(State(edge): State<Edge>, request: Request, next: Next) -> Response {
    let (shown, mut request) = match Shown::read(&edge, request).await {
        Ok(read) => read,
        Err(refused) => return refused,
    };
    let door = match door(&edge) {
        Ok(door) => door,
        Err(error) => return error.into_response(),
    };
    let permit = match door.identify(&shown.presented()).await {
        Ok(permit) => permit,
        Err(turned) => return turned_away(turned),
    };
    let shown = Arc::new(shown);
    request.extensions_mut().insert(permit.clone());
    request.extensions_mut().insert(Arc::clone(&shown));
    rate_limit_middleware((door, &permit, &shown), request, next).await
}

/// Lets an operator act for another tenant, if the request says so. The parameter is no business of the handler.
async fn act_for(door: &Door, permit: &Permit, shown: &Shown, request: &mut Request) -> Result<(), ApiError> {
    let Some((slug, uri)) = for_tenant(request.uri())? else { return Ok(()) };
    if shown.rules.signed == Signed::Body {
        return Err(misplaced("the query is not signed here, so nobody acts for another tenant"));
    }
    let permit = door.act_for(permit, &slug, &shown.presented()).await?;
    *request.uri_mut() = uri;
    request.extensions_mut().insert(permit);
    Ok(())
}

/// The tenant for which a request acts, and its address without that.
fn for_tenant(uri: &Uri) -> Result<Option<(String, Uri)>, ApiError> {
    let parts = uri.query().unwrap_or_default().split('&');
    let (named, others): (Vec<&str>, Vec<&str>) = parts.partition(|part| part.split('=').next() == Some(FOR_TENANT));
    let slug = match named[..] {
        [] => return Ok(None),
        [one] => one.split_once('=').map_or("", |(_, slug)| slug),
        _ => return Err(misplaced("it stands more than once")),
    };
    let rest = others.join("&");
    let rest = if rest.is_empty() { uri.path().to_owned() } else { format!("{}?{rest}", uri.path()) };
    let rest = rest.parse().map_err(|_| misplaced("the rest is no address"))?;
    Ok(Some((slug.to_owned(), rest)))
}

fn misplaced(why: &str) -> ApiError {
    ApiError::new(Code::SchemaInvalid, format!("the parameter {FOR_TENANT}: {why}")).with("parameter", FOR_TENANT)
}

/// Counts a request of somebody who is known, and says in the answer where they stand.
async fn rate_limit_middleware(
    (door, permit, shown): (&Door, &Permit, &Shown),
    mut request: Request,
    call_next: Next,
) -> Response {
    let rate = match door.count(permit, &shown.presented()).await {
        Ok(rate) => rate,
        Err(turned) => return turned_away(turned),
    };
    let response = match door.check_once(permit, &shown.presented()).await {
        Ok(()) => match act_for(door, permit, shown, &mut request).await {
            Ok(()) => finished(door, permit, call_next.run(request).await).await,
            Err(error) => error.into_response(),
        },
        Err(body) => return with_rate(ApiError::from(body).into_response(), &rate),
    };
    with_rate(entered(door, permit, shown, response).await, &rate)
}

/// A request that was obeyed counts no second time, also if it changed nothing.
async fn finished(door: &Door, permit: &Permit, response: Response) -> Response {
    if !response.status().is_success() {
        return response;
    }
    match door.finish(permit).await {
        Ok(()) => response,
        Err(body) => ApiError::from(body).into_response(),
    }
}

/// Enters in the ledger what was refused to somebody who is known: what they may not do, and whatever
/// they asked to be done.
async fn entered(door: &Door, permit: &Permit, shown: &Shown, mut response: Response) -> Response {
    let counts = |error: &ApiError| match error.code.status() {
        403 => true,
        status => shown.rules.acts && status < 500,
    };
    match response.extensions_mut().remove::<Attached>() {
        Some(Attached(error)) if counts(&error) => {
            ApiError::from(door.enter(permit, &shown.presented(), error.body).await).into_response()
        }
        Some(attached) => {
            response.extensions_mut().insert(attached);
            response
        }
        None => response,
    }
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
