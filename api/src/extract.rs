//! Extractors for bodies and query parameters: bounded, checked by content type, strict JSON.

use crate::json::{self, JsonError};
use crate::problem::ApiError;
use axum::body::{Body, HttpBody};
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use chimera_core::error::Code;
use chimera_core::limits;
use futures::StreamExt;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// A JSON body of type `T`, at most [`limits::BODY_BYTES_MAX`] bytes long.
pub struct ApiJson<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + 'static> FromRequest<S> for ApiJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        require_json(request.headers())?;
        let bytes = read_buffered(request.into_body()).await?;
        Ok(Self(json::decode(&json::parse(&bytes)?)?))
    }
}

/// An optional JSON body; an empty one is `T::default()`.
pub(crate) struct OptionalJson<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Default + 'static> FromRequest<S> for OptionalJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let typed = require_json(request.headers());
        let bytes = read_buffered(request.into_body()).await?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        typed?;
        Ok(Self(json::decode(&json::parse(&bytes)?)?))
    }
}

/// A JSON body as raw text, for a parser that is strict itself. Only the number of values is checked here.
pub(crate) struct JsonText(pub(crate) String);

impl<S: Send + Sync> FromRequest<S> for JsonText {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        require_json(request.headers())?;
        let bytes = read_buffered(request.into_body()).await?;
        json::check_values(&bytes)?;
        let text = String::from_utf8(bytes.into());
        text.map(Self).map_err(|_| ApiError::new(Code::SchemaInvalid, "the body is not UTF-8"))
    }
}

/// The query parameters.
pub(crate) struct ApiQuery<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for ApiQuery<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        if parts.uri.query().is_some_and(|query| query.contains("%00")) {
            return Err(ApiError::new(Code::SchemaInvalid, "a query parameter contains the NUL character"));
        }
        let rejected = |rejection: QueryRejection| invalid_query(&rejection.body_text());
        let Query(given) = Query::from_request_parts(parts, state).await.map_err(rejected)?;
        Ok(Self(given))
    }
}

/// The error for a rejection such as `Failed to deserialize query string: limit: invalid digit found in string`.
fn invalid_query(rejection: &str) -> ApiError {
    let mut words = rejection.rsplit(": ");
    let reason = match words.next().unwrap_or_default() {
        "invalid digit found in string"
        | "cannot parse integer from empty string"
        | "number too large to fit in target type"
        | "number too small to fit in target type" => "expected an integer in range",
        "invalid float literal" | "cannot parse float from empty string" => "expected a number",
        "provided string was not `true` or `false`" => "expected true or false",
        reason => reason,
    };
    match words.next().filter(|name| !name.contains(' ')) {
        Some(name) => ApiError::new(Code::SchemaInvalid, format!("invalid query parameter `{name}`: {reason}"))
            .with("parameter", name),
        None => ApiError::new(Code::SchemaInvalid, format!("invalid query parameters: {reason}")),
    }
    .with("reason", reason)
}

impl From<JsonError> for ApiError {
    fn from(error: JsonError) -> Self {
        match error {
            JsonError::Syntax { line, column, reason } => Self::new(
                Code::SchemaInvalid,
                format!("the body is not valid JSON: {reason} at line {line} column {column}"),
            )
            .with("line", line)
            .with("column", column)
            .with("reason", reason),
            JsonError::Nul { line, column } => {
                let what = "contains U+0000, which cannot be stored";
                Self::new(Code::ValidationFailed, format!("the string at line {line} column {column} {what}"))
                    .with("line", line)
                    .with("column", column)
            }
            JsonError::Shape { pointer, reason } => {
                let place = if pointer.is_empty() { String::new() } else { format!(" at '{pointer}'") };
                Self::new(Code::SchemaInvalid, format!("the body does not match its schema{place}: {reason}"))
                    .with("pointer", pointer)
                    .with("reason", reason)
            }
        }
    }
}

pub(crate) fn require_json(headers: &HeaderMap) -> Result<(), ApiError> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let json = essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"));
    if json && !headers.contains_key(header::CONTENT_ENCODING) {
        return Ok(());
    }
    Err(ApiError::new(Code::UnsupportedMediaType, "the body must be application/json without a Content-Encoding")
        .with("expected", "application/json"))
}

/// How slowly a body may arrive: at any rate during `grace`, then at `bytes_per_second` on average.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MinimumRate {
    pub(crate) grace: Duration,
    pub(crate) bytes_per_second: u64,
}

impl Default for MinimumRate {
    fn default() -> Self {
        Self { grace: limits::BODY_TIMEOUT_DEFAULT, bytes_per_second: limits::BODY_BYTES_PER_SECOND_MIN }
    }
}

impl MinimumRate {
    /// How long after the start the next chunk may arrive.
    fn deadline_after(self, received: usize) -> Duration {
        self.grace + Duration::from_secs_f64(received as f64 / self.bytes_per_second.max(1) as f64)
    }
}

/// Reads a body that the gate has buffered already, or on a route without the gate.
async fn read_buffered(body: Body) -> Result<Bytes, ApiError> {
    read_body(body, limits::BODY_BYTES_MAX, MinimumRate::default(), |_| ()).await
}

/// Reads a whole body and reports the size of each chunk to `received`. A body that is too long or too slow is refused
/// as soon as that is known, whether its length was announced or not.
pub(crate) async fn read_body(
    body: Body,
    bytes_max: usize,
    pace: MinimumRate,
    mut received: impl FnMut(usize),
) -> Result<Bytes, ApiError> {
    let announced = body.size_hint().lower();
    if announced > bytes_max as u64 {
        return Err(too_large(bytes_max));
    }
    let mut chunks = body.into_data_stream();
    let mut bytes = BytesMut::new();
    let began = Instant::now();
    while let Some(chunk) = timeout_at(began + pace.deadline_after(bytes.len()), chunks.next())
        .await
        .map_err(|_| too_slow(bytes.len(), pace))?
    {
        let chunk = chunk
            .map_err(|_| ApiError::new(Code::SchemaInvalid, "the connection closed before the whole body arrived"))?;
        received(chunk.len());
        if bytes.len() + chunk.len() > bytes_max {
            return Err(too_large(bytes_max));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.freeze())
}

fn too_slow(received: usize, pace: MinimumRate) -> ApiError {
    metrics::counter!("chimera_http_bodies_refused_total", "reason" => "slow").increment(1);
    ApiError::new(Code::BodyTimeout, "the body arrived too slowly")
        .with("bytes_received", received)
        .with("bytes_per_second_min", pace.bytes_per_second)
        .retry_after(1)
}

pub(crate) fn too_large(bytes_max: usize) -> ApiError {
    metrics::counter!("chimera_http_bodies_refused_total", "reason" => "size").increment(1);
    ApiError::new(Code::PayloadTooLarge, format!("the body is larger than {bytes_max} bytes"))
        .with("bytes_max", bytes_max)
}
