//! The credentials and data of a request: its head at first, and its body once that is read.

use super::headers::{SIGNATURE, bearer, single};
use super::{authenticator, refusal_response};
use crate::edge::{Edge, PublicUrl};
use crate::problem::ApiError;
use crate::route::{Freshness, RateClass, RouteRules, Signed};
use crate::server::Peer;
use crate::trace::TraceContext;
use crate::{extract, json, page, routes};
use axum::extract::MatchedPath;
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use chimera_core::access::signature;
use chimera_engine::access::{Credentials, RequestProof};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Owned, so that it outlives the request.
pub(crate) struct ReceivedRequest {
    bearer: Option<String>,
    /// `X-HMAC-Signature`, over the body alone.
    signature: Option<String>,
    pub(crate) body: Bytes,
    has_body: bool,
    pub(super) rules: &'static RouteRules,
    method: Method,
    uri: Uri,
    /// Header fields that a message signature can cover; empty if the route requires none.
    fields: Vec<(String, String)>,
    public: PublicUrl,
    pub(super) peer: Option<Peer>,
    target: String,
    trace_id: Option<String>,
}

impl ReceivedRequest {
    /// The parts of the head that need no checks; `None` for a route that is not in the table.
    pub(super) fn from_head(edge: &Edge, parts: &Parts) -> Option<Self> {
        let path = parts.extensions.get::<MatchedPath>()?.as_str();
        let route = routes::route(&parts.method, path)?;
        Some(Self {
            bearer: None,
            signature: None,
            body: Bytes::new(),
            has_body: false,
            rules: route.rules,
            method: parts.method.clone(),
            uri: parts.uri.clone(),
            fields: match route.rules.signed {
                Signed::Message => text_headers(&parts.headers),
                Signed::Body | Signed::No => Vec::new(),
            },
            public: edge.public.clone(),
            peer: parts.extensions.get::<Peer>().copied(),
            target: format!("{} {path}", parts.method),
            trace_id: parts.extensions.get::<TraceContext>().map(|context| context.trace_id.clone()),
        })
    }

    /// Reads the credentials in the head. A body announced as too large is refused first.
    pub(super) fn read_head(&mut self, headers: &HeaderMap, announced: u64) -> Result<(), ApiError> {
        let bytes_max = self.rules.body_bytes_max;
        if bytes_max > 0 && announced > bytes_max as u64 {
            return Err(extract::too_large(bytes_max));
        }
        self.bearer = bearer(headers)?.map(str::to_owned);
        self.signature = single(headers, &SIGNATURE)?.map(str::to_owned);
        Ok(())
    }

    pub(super) fn set_body(&mut self, body: Bytes) {
        (self.body, self.has_body) = (body, true);
    }

    /// Refuses a malformed request before its caller is authenticated. The refusal is counted and recorded in the ledger
    /// like any other, except on link routes, whose visitors are not counted.
    pub(crate) async fn refuse(&self, edge: &Edge, error: ApiError) -> Response {
        if self.rules.link {
            return page::refused(error, &*edge.random);
        }
        match authenticator(edge) {
            Ok(authenticator) if error.code.status() < 500 => {
                refusal_response(authenticator.reject_unparsed(&self.credentials(), error.body).await)
            }
            _ => error.into_response(),
        }
    }

    pub(crate) fn json<T: DeserializeOwned + 'static>(&self, headers: &HeaderMap) -> Result<T, ApiError> {
        Ok(json::decode(&self.document(headers)?)?)
    }

    pub(crate) fn document(&self, headers: &HeaderMap) -> Result<Value, ApiError> {
        extract::require_json(headers)?;
        Ok(json::parse(&self.body)?)
    }

    /// The access token; empty if there is none.
    pub(crate) fn bearer(&self) -> &str {
        self.bearer.as_deref().unwrap_or_default()
    }

    pub(crate) fn credentials(&self) -> Credentials<'_> {
        let signature = self.signature.as_deref();
        Credentials {
            bearer: self.bearer.as_deref(),
            proof: match self.rules.signed {
                Signed::No => RequestProof::Token,
                Signed::Body => RequestProof::Body { signature, dated: self.rules.freshness == Freshness::IfPresent },
                Signed::Message => RequestProof::Message(self.parts()),
            },
            body: self.has_body.then_some(&self.body),
            reads: self.rules.limit == RateClass::Reads,
            peer: self.peer.map(|peer| peer.address),
            target: &self.target,
            trace_id: self.trace_id.as_deref(),
        }
    }

    /// The input of a message signature (RFC 9421).
    fn parts(&self) -> signature::RequestParts<'_> {
        let host = self.fields.iter().find(|(name, _)| name == "host").map(|(_, value)| value.as_str());
        signature::RequestParts {
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

/// The headers that are text; others cannot be signed.
fn text_headers(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |(name, value): (&HeaderName, &HeaderValue)| Some((name.to_string(), value.to_str().ok()?.to_owned()));
    headers.iter().filter_map(text).collect()
}
