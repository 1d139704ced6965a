//! `GET /artifacts/{sha256}`: downloads a blob with a presigned link.
//!
//! The link is the credential. The store is not read before the signature is verified, so that a
//! stranger can't learn which blobs exist. The content is verified while it is sent, and the last piece
//! is sent only when the whole is verified: the connection is cut before the end of a damaged blob.
//! Part of a blob can't be verified, so range requests are not supported.

use crate::edge::Edge;
use crate::ops::schema::{Octets, ProblemDocument};
use crate::problem::ApiError;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use chimera_core::error::Code;
use chimera_core::id::BlobId;
use chimera_core::time::Timestamp;
use chimera_engine::flow::port::{Blob, BlobError, DownloadStream, PresentedLink};
use futures::{Stream, StreamExt, TryStreamExt, future, stream};
use serde::Deserialize;
use tracing::Span;

/// The parameters of a presigned link.
#[derive(Deserialize)]
pub(crate) struct ArtifactLinkQuery {
    expires: String,
    signature: String,
}

/// Downloads an artifact with a presigned link.
#[utoipa::path(
    get,
    path = "/artifacts/{sha256}",
    tag = "flow",
    params(
        ("sha256" = String, Path, description = "SHA-256 of the content: 64 lower-case hex digits"),
        ("expires" = i64, Query, description = "When the link expires, in Unix seconds"),
        ("signature" = String, Query, description = "Signature of the link"),
        ("if-none-match" = Option<String>, Header, description = "Entity tags that the client has cached"),
    ),
    responses(
        (
            status = 200,
            description = "The content. If it is damaged, the connection is closed before its end",
            body = inline(Octets),
            content_type = "application/octet-stream",
            headers(("etag" = String, description = "The digest"), ("cache-control" = String, description = "Until the link expires")),
        ),
        (status = 304, description = "The client has the content already"),
        (status = 400, body = ProblemDocument, content_type = "application/problem+json", description = "SCHEMA_INVALID"),
        (status = 401, body = ProblemDocument, content_type = "application/problem+json", description = "SIGNATURE_INVALID, EXPIRED_TTL"),
        (status = 404, body = ProblemDocument, content_type = "application/problem+json", description = "NOT_FOUND"),
        (status = 500, body = ProblemDocument, content_type = "application/problem+json", description = "INTERNAL: the content is damaged"),
        (status = 503, body = ProblemDocument, content_type = "application/problem+json", description = "STORE_UNAVAILABLE, REQUEST_TIMEOUT"),
    )
)]
pub(crate) async fn artifact(
    State(edge): State<Edge>,
    Path(digest): Path<String>,
    link: Result<Query<ArtifactLinkQuery>, QueryRejection>,
    asked: HeaderMap,
) -> Result<Response, ApiError> {
    let blobs = edge.blobs.clone().ok_or_else(not_configured)?;
    let id = BlobId::from_hex(&digest).map_err(|_| malformed_link("sha256", "expected 64 lower-case hex digits"))?;
    let Query(link) = link.map_err(|_| malformed_link("expires, signature", "expected once each"))?;
    let now = edge.clock.now();
    blobs.check_link(&PresentedLink { id, expires: &link.expires, signature: &link.signature }, now)?;
    let blob = blobs.get(id).await.inspect_err(log_blob_error)?;
    let etag = format!("\"sha256:{digest}\"");
    let caching = [
        (header::ETAG, etag.clone()),
        (header::CACHE_CONTROL, format!("private, immutable, max-age={}", seconds_left(&link.expires, now))),
    ];
    if is_not_modified(&asked, &etag) {
        return Ok((StatusCode::NOT_MODIFIED, caching).into_response());
    }
    let about = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, blob.stat.size.to_string()),
        (header::CONTENT_DISPOSITION, "attachment".to_owned()),
        (header::ACCEPT_RANGES, "none".to_owned()),
    ];
    let content = verified_content(blob).await.inspect_err(log_blob_error)?;
    Ok((caching, about, Body::from_stream(content)).into_response())
}

fn not_configured() -> ApiError {
    ApiError::new(Code::NotFound, "artifact storage is not configured on this server")
}

fn malformed_link(parameter: &str, reason: &str) -> ApiError {
    ApiError::new(Code::SchemaInvalid, format!("malformed link: {parameter}: {reason}"))
        .with("parameter", parameter)
        .with("reason", reason)
}

/// Seconds until the link expires. The link has been checked.
fn seconds_left(expires: &str, now: Timestamp) -> i64 {
    let end = Timestamp::from_micros(0).plus_seconds(expires.parse().unwrap_or(0));
    end.micros().saturating_sub(now.micros()).max(0) / 1_000_000
}

/// Whether `If-None-Match` matches. GET uses weak comparison.
fn is_not_modified(asked: &HeaderMap, etag: &str) -> bool {
    let lines = asked.get_all(header::IF_NONE_MATCH).iter().filter_map(|line| line.to_str().ok());
    let mut tags = lines.flat_map(|line| line.split(',')).map(str::trim);
    tags.any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag)
}

/// The content of a blob as a stream that never looks complete when it is not. Each piece is held back
/// until the next one is read; content that ends early, late or with an error fails before the announced
/// length is reached. Damage within the first pieces is found before the response begins.
async fn verified_content(blob: Blob) -> Result<impl Stream<Item = Result<Bytes, BlobError>> + use<>, BlobError> {
    struct Rest {
        content: DownloadStream,
        ahead: Option<Bytes>,
        left: u64,
    }
    let id = blob.stat.id;
    let fits = move |ahead: Option<Bytes>, left: u64| {
        if ahead.is_some() == (left > 0) { Ok(ahead) } else { Err(BlobError::Damaged(id)) }
    };
    let mut content = blob.content.try_filter(|piece| future::ready(!piece.is_empty())).boxed();
    let ahead = fits(content.try_next().await?, blob.stat.size)?;
    let rest = Rest { content, ahead, left: blob.stat.size };
    let pieces = stream::try_unfold(rest, move |mut rest| async move {
        let Some(piece) = rest.ahead.take() else { return Ok(None) };
        rest.left = rest.left.checked_sub(piece.len() as u64).ok_or(BlobError::Damaged(id))?;
        rest.ahead = fits(rest.content.try_next().await?, rest.left)?;
        Ok(Some((piece, rest)))
    });
    let span = Span::current();
    Ok(pieces.inspect_err(move |error| span.in_scope(|| log_blob_error(error))))
}

/// Logs errors that the caller does not see, because they are internal or the response has begun.
fn log_blob_error(error: &BlobError) {
    let code = ApiError::from(error.clone()).code;
    let class = code.error_type();
    if class.is_alerting() {
        let (code, class) = (code.as_str(), class.as_str());
        tracing::error!(error_code = code, error_type = class, critical = true, "cannot send artifact: {error}");
    }
}
