//! `Authorization: Bearer …` and `X-Chimera-Actor: …` become a permit, or a refusal.
//!
//! Only the doorkeeper decides. Without one, as on a server that was given no token, nobody is let
//! in. A handler that takes a [`Caller`] can't be reached without a permit.

use crate::edge::Edge;
use crate::problem::ApiError;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, header};
use chimera_core::error::Code;
use chimera_engine::access::Permit;
use chimera_engine::flow::Flow;

const ACTOR: HeaderName = HeaderName::from_static("x-chimera-actor");

/// Somebody who was let in, and the room they came to.
pub(crate) struct Caller {
    pub(crate) permit: Permit,
    pub(crate) flow: Flow,
}

impl FromRequestParts<Edge> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, edge: &Edge) -> Result<Self, ApiError> {
        let closed = || ApiError::new(Code::Unauthenticated, "this server has no token to let anybody in");
        let door = edge.door.as_ref().ok_or_else(closed)?;
        let actor = single(&parts.headers, &ACTOR)?;
        let permit = door.admit(bearer(&parts.headers)?, actor)?;
        let flow = edge.flow.clone().ok_or_else(|| ApiError::new(Code::NotFound, "no workflows run here"))?;
        Ok(Self { permit, flow })
    }
}

/// The token, if there is one. The scheme's case doesn't matter.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let Some(value) = single(headers, &header::AUTHORIZATION)? else { return Ok(None) };
    let (scheme, token) = value.split_once(' ').unwrap_or((value, ""));
    Ok(scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()))
}

/// A header that may be given once: whoever reads the first and whoever reads the last must agree.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, ApiError> {
    let mut values = headers.get_all(name).iter();
    let code = if name == ACTOR { Code::SchemaInvalid } else { Code::Unauthenticated };
    let refused = |what: &str| ApiError::new(code, format!("the header {name} {what}")).with("header", name.as_str());
    let Some(first) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(refused("stands twice"));
    }
    first.to_str().map(Some).map_err(|_| refused("is not plain text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_from_one_plain_header_only() {
        let mut headers = HeaderMap::new();
        assert_eq!(bearer(&headers).unwrap(), None);
        headers.insert(header::AUTHORIZATION, "bearer  abc ".parse().unwrap());
        assert_eq!(bearer(&headers).unwrap(), Some("abc"));
        headers.insert(header::AUTHORIZATION, "Basic abc".parse().unwrap());
        assert_eq!(bearer(&headers).unwrap(), None);
        headers.append(header::AUTHORIZATION, "Bearer abc".parse().unwrap());
        assert_eq!(bearer(&headers).unwrap_err().code, Code::Unauthenticated);
    }
}
