//! The one way to read a request: bodies bounded, typed by their header, strict; parameters checked.

use crate::json::{self, JsonError};
use crate::problem::ApiError;
use axum::body::{Body, HttpBody};
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use chimera_core::error::Code;
use chimera_core::limits;
use futures::StreamExt;
use serde::de::DeserializeOwned;

/// A JSON body of type `T`, at most [`limits::BODY_BYTES_MAX`] bytes long.
pub struct ApiJson<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + 'static> FromRequest<S> for ApiJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        require_json(request.headers())?;
        let bytes = read(request.into_body(), limits::BODY_BYTES_MAX).await?;
        Ok(Self(json::shaped(&json::parse(&bytes)?)?))
    }
}

/// A JSON body that may be left out; it is `T`'s default then.
pub(crate) struct OptionalJson<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Default + 'static> FromRequest<S> for OptionalJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let typed = require_json(request.headers());
        let bytes = read(request.into_body(), limits::BODY_BYTES_MAX).await?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        typed?;
        Ok(Self(json::shaped(&json::parse(&bytes)?)?))
    }
}

/// A JSON body as its text, for a reader that is strict itself.
pub(crate) struct JsonText(pub(crate) String);

impl<S: Send + Sync> FromRequest<S> for JsonText {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        require_json(request.headers())?;
        let bytes = read(request.into_body(), limits::BODY_BYTES_MAX).await?;
        let text = String::from_utf8(bytes.into());
        text.map(Self).map_err(|_| ApiError::new(Code::SchemaInvalid, "the body is not UTF-8"))
    }
}

/// The parameters behind the question mark.
pub(crate) struct ApiQuery<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for ApiQuery<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        if parts.uri.query().is_some_and(|query| query.contains("%00")) {
            return Err(ApiError::new(Code::SchemaInvalid, "a parameter holds the NUL character"));
        }
        let Query(given) = Query::from_request_parts(parts, state).await.map_err(|rejection| {
            let reason = rejection.body_text();
            let reason = reason.rsplit(": ").next().unwrap_or_default().to_owned();
            ApiError::new(Code::SchemaInvalid, format!("the parameters are not valid: {reason}")).with("reason", reason)
        })?;
        Ok(Self(given))
    }
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
                let what = "holds the character U+0000, which can't be stored";
                Self::new(Code::ValidationFailed, format!("a text at line {line} column {column} {what}"))
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
    Err(ApiError::new(Code::UnsupportedMediaType, "the body must be plain application/json")
        .with("expected", "application/json"))
}

/// Reads a body to its end. One that is too long is refused as soon as that is known, whether its
/// length was announced or not.
pub(crate) async fn read(body: Body, bytes_max: usize) -> Result<Bytes, ApiError> {
    let announced = body.size_hint().lower();
    if announced > bytes_max as u64 {
        return Err(too_large(bytes_max));
    }
    let mut chunks = body.into_data_stream();
    let mut bytes = BytesMut::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| ApiError::new(Code::SchemaInvalid, "the body ended before its end"))?;
        if bytes.len() + chunk.len() > bytes_max {
            return Err(too_large(bytes_max));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.freeze())
}

fn too_large(bytes_max: usize) -> ApiError {
    ApiError::new(Code::PayloadTooLarge, format!("the body may have at most {bytes_max} bytes"))
        .with("bytes_max", bytes_max)
}
