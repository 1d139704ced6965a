//! Authentication headers of requests and rate-limit headers of responses.

use crate::problem::ApiError;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use chimera_core::error::Code;
use chimera_engine::access::Rate;

pub(crate) const SIGNATURE: HeaderName = HeaderName::from_static("x-hmac-signature");

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const RATE: HeaderName = HeaderName::from_static("ratelimit");
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The bearer token, if there is one. The scheme is case-insensitive.
pub(crate) fn bearer(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let Some(value) = single(headers, &header::AUTHORIZATION)? else { return Ok(None) };
    let (scheme, token) = value.split_once(' ').unwrap_or((value, ""));
    Ok(scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()))
}

/// The value of a header that may be given only once, so that a proxy and this server cannot read different ones.
pub(crate) fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, ApiError> {
    let mut values = headers.get_all(name).iter();
    let code = if *name == header::AUTHORIZATION { Code::Unauthenticated } else { Code::SignatureInvalid };
    let refused = |what: &str| ApiError::new(code, format!("the header {name} {what}")).with("header", name.as_str());
    let Some(first) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(refused("is given more than once"));
    }
    first.to_str().map(Some).map_err(|_| refused("is not printable ASCII"))
}

/// Adds the rate-limit headers: `X-RateLimit-*` and the IETF draft's `RateLimit`.
pub(crate) fn insert_rate_headers(headers: &mut HeaderMap, rate: &Rate) {
    headers.insert(LIMIT, HeaderValue::from(rate.limit));
    headers.insert(REMAINING, HeaderValue::from(rate.remaining));
    headers.insert(RESET, HeaderValue::from(rate.reset));
    let now = format!("\"{}\";r={};t={}", rate.name, rate.remaining, rate.reset_after);
    let policy = format!("\"{}\";q={};w=60", rate.name, rate.limit);
    for (name, text) in [(RATE, now), (POLICY, policy)] {
        if let Ok(value) = HeaderValue::from_str(&text) {
            headers.insert(name, value);
        }
    }
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
