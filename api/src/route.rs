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
    pub rules: &'static Rules,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Rules {
    /// Requires an access token.
    pub token: bool,
    /// What the actor has to sign.
    pub signed: Signed,
    pub dated: Dated,
    pub limit: Limit,
    /// May start a run: the request is the root of the run's trace, and every refusal is recorded in the ledger.
    pub acts: bool,
    /// The last path segment is a link token, which is the credential. Responses are HTML pages.
    pub link: bool,
    /// Maximum body size. With 0 the body is never read.
    pub body_bytes_max: usize,
}

impl Rules {
    /// Whether the gate runs before the handler: the route requires a token or takes a body.
    pub(crate) const fn is_guarded(&self) -> bool {
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
pub enum Dated {
    No,
    /// Checked if the request carries them.
    IfSaid,
    /// Always.
    Always,
}

/// Which rate limit a request counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    Free,
    Reads,
    Writes,
}

/// No authentication by the gate. The handler checks presigned links.
pub(crate) static OPEN: Rules = Rules {
    token: false,
    signed: Signed::No,
    dated: Dated::No,
    limit: Limit::Free,
    acts: false,
    link: false,
    body_bytes_max: 0,
};
/// Decides an approval with a link token.
pub(crate) static LINK: Rules = Rules { link: true, body_bytes_max: UNAUTHENTICATED_BODY_BYTES_MAX, ..OPEN };
pub(crate) static SIGN_IN: Rules = Rules {
    signed: Signed::Body,
    dated: Dated::Always,
    limit: Limit::Writes,
    body_bytes_max: UNAUTHENTICATED_BODY_BYTES_MAX,
    ..OPEN
};
/// No nonce: the refresh token itself is single-use.
pub(crate) static REFRESH: Rules = Rules { dated: Dated::No, ..SIGN_IN };
pub(crate) static READ: Rules = Rules { token: true, limit: Limit::Reads, ..OPEN };
/// A read with a body.
pub(crate) static CHECK: Rules = Rules { limit: Limit::Writes, body_bytes_max: BODY_BYTES_MAX, ..READ };
/// `POST /act`.
pub(crate) static ACT: Rules = Rules { signed: Signed::Body, dated: Dated::IfSaid, acts: true, ..CHECK };
pub(crate) static CHANGE: Rules = Rules { signed: Signed::Message, dated: Dated::Always, ..CHECK };
/// Starts a run.
pub(crate) static CALL: Rules = Rules { acts: true, ..CHANGE };
