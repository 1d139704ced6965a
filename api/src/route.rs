//! What a route demands of whoever asks, and what else hangs on it. Nothing else in the edge looks at
//! the text of a route to find that out.

use axum::http::Method;
use chimera_core::limits::{BODY_BYTES_MAX, UNAUTHENTICATED_BODY_BYTES_MAX};

/// One line of the route table.
#[derive(Clone, Debug)]
pub struct Route {
    /// The method; GET answers HEAD as well.
    pub method: Method,
    /// The path, with its parameters in braces.
    pub path: &'static str,
    /// What it demands.
    pub rules: &'static Rules,
}

/// What a route demands.
#[derive(Debug, PartialEq, Eq)]
pub struct Rules {
    /// Only those are let in who have a token.
    pub token: bool,
    /// What the actor has to sign.
    pub signed: Signed,
    /// Whether the request says when it was made and counts once.
    pub dated: Dated,
    /// How it is counted.
    pub limit: Limit,
    /// A run may begin with it: the request begins the run's trace, and whatever is refused is entered.
    pub acts: bool,
    /// The path ends with a link's token, which is the credential, and a person sees the answer.
    pub link: bool,
    /// Bytes of its body at the most; with none a body is never read.
    pub body_bytes_max: usize,
}

impl Rules {
    /// Whether the gate stands before it: whoever comes shows a token or sends a body.
    pub(crate) const fn is_guarded(&self) -> bool {
        self.token || self.body_bytes_max > 0
    }
}

/// What the actor has to sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signed {
    /// Nothing.
    No,
    /// The raw body, in `X-HMAC-Signature`.
    Body,
    /// Method, path, query and body, by an HTTP message signature.
    Message,
}

/// Whether a request says when it was made and counts once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dated {
    /// It doesn't.
    No,
    /// If it says so.
    IfSaid,
    /// Always.
    Always,
}

/// How a request is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Not at all.
    Free,
    /// As one that asks.
    Reads,
    /// As one that changes something.
    Writes,
}

/// Anybody may ask. What a presigned address proves is its handler's business.
pub(crate) static OPEN: Rules = Rules {
    token: false,
    signed: Signed::No,
    dated: Dated::No,
    limit: Limit::Free,
    acts: false,
    link: false,
    body_bytes_max: 0,
};
/// Whoever holds a link decides by it.
pub(crate) static LINK: Rules = Rules { link: true, body_bytes_max: UNAUTHENTICATED_BODY_BYTES_MAX, ..OPEN };
/// Somebody signs in.
pub(crate) static SIGN_IN: Rules = Rules {
    signed: Signed::Body,
    dated: Dated::Always,
    limit: Limit::Writes,
    body_bytes_max: UNAUTHENTICATED_BODY_BYTES_MAX,
    ..OPEN
};
/// Somebody stays signed in: the refresh token itself is used up.
pub(crate) static REFRESH: Rules = Rules { dated: Dated::No, ..SIGN_IN };
/// Somebody who is known asks.
pub(crate) static READ: Rules = Rules { token: true, limit: Limit::Reads, ..OPEN };
/// Somebody who is known asks with a body; nothing changes.
pub(crate) static CHECK: Rules = Rules { limit: Limit::Writes, body_bytes_max: BODY_BYTES_MAX, ..READ };
/// The front door.
pub(crate) static ACT: Rules = Rules { signed: Signed::Body, dated: Dated::IfSaid, acts: true, ..CHECK };
/// Something is changed.
pub(crate) static CHANGE: Rules = Rules { signed: Signed::Message, dated: Dated::Always, ..CHECK };
/// A run is begun.
pub(crate) static CALL: Rules = Rules { acts: true, ..CHANGE };
