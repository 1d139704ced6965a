//! The rules of a route: authentication, signature, freshness, rate limit, body size. Nothing in this
//! crate derives any of these from the text of a path.

use axum::http::Method;
use chimera_core::limits::{BODY_BYTES_MAX, UNAUTHENTICATED_BODY_BYTES_MAX};

/// One line of the route table.
#[derive(Clone, Debug)]
pub struct Route {
    /// GET answers HEAD as well.
    pub method: Method,
    /// Parameters are in braces.
    pub path: &'static str,
    /// The operation id in the OpenAPI document. Unique, because generated clients name a function after it.
    pub operation: &'static str,
    pub rules: &'static RouteRules,
}

#[derive(Debug, PartialEq, Eq)]
pub struct RouteRules {
    /// Requires an access token.
    pub token: bool,
    /// What the actor has to sign.
    pub signed: Signed,
    pub freshness: Freshness,
    pub limit: RateClass,
    /// May start a run: the request is the root of the run's trace, and every refusal is recorded in the ledger.
    pub starts_run: bool,
    /// The last path segment is a link token, which is the credential. Responses are HTML pages.
    pub link: bool,
    /// Maximum body size. With 0 the body is never read.
    pub body_bytes_max: usize,
}

impl RouteRules {
    /// Whether the gate runs before the handler: the route requires a token or takes a body.
    pub(crate) const fn has_gate(&self) -> bool {
        self.token || self.body_bytes_max > 0
    }
}

/// What the actor has to sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signed {
    No,
    /// The raw body, in `X-HMAC-Signature`.
    Body,
    /// Method, path, query and body, by an HTTP message signature.
    Message,
}

/// Whether a request carries a time and a nonce, and is accepted once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    No,
    /// Checked if the request carries them.
    IfPresent,
    /// Always.
    Always,
}

/// Which rate limit a request counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateClass {
    Free,
    Reads,
    Writes,
}

/// No authentication by the gate. The handler checks presigned links.
pub(crate) static OPEN: RouteRules = RouteRules {
    token: false,
    signed: Signed::No,
    freshness: Freshness::No,
    limit: RateClass::Free,
    starts_run: false,
    link: false,
    body_bytes_max: 0,
};
/// Decides an approval with a link token.
pub(crate) static LINK: RouteRules = RouteRules { link: true, body_bytes_max: UNAUTHENTICATED_BODY_BYTES_MAX, ..OPEN };
pub(crate) static SIGN_IN: RouteRules = RouteRules {
    signed: Signed::Body,
    freshness: Freshness::Always,
    limit: RateClass::Writes,
    body_bytes_max: UNAUTHENTICATED_BODY_BYTES_MAX,
    ..OPEN
};
/// No nonce: the refresh token itself is single-use.
pub(crate) static REFRESH: RouteRules = RouteRules { freshness: Freshness::No, ..SIGN_IN };
pub(crate) static READ: RouteRules = RouteRules { token: true, limit: RateClass::Reads, ..OPEN };
/// A read with a body.
pub(crate) static CHECK: RouteRules = RouteRules { limit: RateClass::Writes, body_bytes_max: BODY_BYTES_MAX, ..READ };
/// `POST /act`.
pub(crate) static ACT: RouteRules =
    RouteRules { signed: Signed::Body, freshness: Freshness::IfPresent, starts_run: true, ..CHECK };
/// `POST /intents`: the signature is in the envelope.
pub(crate) static INTENT: RouteRules = RouteRules { starts_run: true, ..CHECK };
pub(crate) static CHANGE: RouteRules = RouteRules { signed: Signed::Message, freshness: Freshness::Always, ..CHECK };
/// Starts a run.
pub(crate) static CALL: RouteRules = RouteRules { starts_run: true, ..CHANGE };
