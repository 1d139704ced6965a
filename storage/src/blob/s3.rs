//! Blobs in an S3 bucket, or in any S3-compatible store.
//!
//! Small content is hashed in memory and stored at once. Larger content is uploaded in parts below `tmp/`, since its
//! address is known only at the end, and then copied within the bucket; neither is visible until it is complete. A
//! lifecycle rule of the bucket should expire unfinished uploads and `tmp/` after a day, for processes that die in
//! between.

use super::content::{HashingContent, verify};
use super::{S3Url, folder_of, id_of, key, link_seconds, unavailable};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use chimera_core::id::BlobId;
use chimera_core::limits::{
    BLOB_BYTES_MAX, S3_CONNECT_TIMEOUT, S3_PART_BYTES, S3_RETRIES_MAX, S3_RETRY_PAUSE_FIRST, S3_RETRY_PAUSE_MAX,
    S3_RETRY_TIMEOUT, S3_SILENCE_TIMEOUT,
};
use chimera_core::secret::Secret;
use chimera_core::time::Timestamp;
use chimera_engine::flow::port::{
    Blob, BlobError, BlobStat, Blobs, InvalidLink, PresentedLink, PresignedUrl, UploadStream,
};
use chimera_engine::port::{Outage, Random, Unavailable};
use futures::{StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::signer::Signer;
use object_store::{
    BackoffConfig, ClientOptions, Error, MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload, RetryConfig,
};
use std::sync::Arc;
use std::time::Duration;

/// Static credentials.
pub struct S3Credentials {
    pub access_key_id: String,
    pub secret_access_key: Secret,
    /// For temporary credentials.
    pub session_token: Option<Secret>,
}

pub struct S3Blobs {
    store: AmazonS3,
    prefix: String,
    random: Arc<dyn Random>,
    bytes_max: u64,
}

/// Settings from which no client can be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the S3 settings are invalid or contradict each other")]
pub struct InvalidS3Settings;

impl S3Blobs {
    /// The blobs in this bucket. Does not connect yet. Without credentials the machine's own role is used.
    pub fn new(
        url: &S3Url,
        credentials: Option<&S3Credentials>,
        random: Arc<dyn Random>,
    ) -> Result<Self, InvalidS3Settings> {
        let store = client(url, &url.bucket, credentials)?;
        Ok(Self { store, prefix: url.prefix.clone(), random, bytes_max: BLOB_BYTES_MAX })
    }

    /// Lowers the size limit to `bytes_max`.
    #[must_use]
    pub fn with_bytes_max(mut self, bytes_max: u64) -> Self {
        self.bytes_max = bytes_max.min(BLOB_BYTES_MAX);
        self
    }

    fn path(&self, key: &str) -> Path {
        Path::from(if self.prefix.is_empty() { key.to_owned() } else { format!("{}/{key}", self.prefix) })
    }

    /// Uploads content in parts below `tmp/`, then moves it.
    async fn put_in_parts(&self, mut parts: UploadParts) -> Result<BlobStat, BlobError> {
        let draft = self.path(&format!("tmp/{}", self.random.opaque_id()));
        let upload = self.store.put_multipart(&draft).await.map_err(failed)?;
        let mut upload = MultipartUploadGuard { upload: Some(upload) };
        while let Some(part) = parts.next().await? {
            upload.part(part).await?;
        }
        upload.complete().await?;
        let stat = parts.content.finish();
        let moved = self.store.copy(&draft, &self.path(&key(stat.id))).await.map_err(failed);
        if let Err(error) = self.store.delete(&draft).await {
            tracing::warn!(%error, "an uploaded draft was left in the bucket");
        }
        moved.map(|()| stat)
    }
}

/// A client for one bucket on the server of `url`. Does not connect yet.
pub(crate) fn client(
    url: &S3Url,
    bucket: &str,
    credentials: Option<&S3Credentials>,
) -> Result<AmazonS3, InvalidS3Settings> {
    // The HTTP client uses the process-wide crypto provider; the first caller installs ours.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(bucket)
        .with_region(&url.region)
        .with_virtual_hosted_style_request(url.virtual_hosted)
        .with_disable_bulk_delete(true)
        .with_retry(retry())
        .with_client_options(
            ClientOptions::new()
                .with_timeout_disabled()
                .with_read_timeout(S3_SILENCE_TIMEOUT)
                .with_connect_timeout(S3_CONNECT_TIMEOUT)
                .with_allow_http(url.endpoint.as_ref().is_some_and(|e| e.starts_with("http://"))),
        );
    if let Some(endpoint) = &url.endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    if let Some(credentials) = credentials {
        let text = |secret: &Secret| secret.expose_text().map(str::to_owned).ok_or(InvalidS3Settings);
        builder = builder
            .with_access_key_id(&credentials.access_key_id)
            .with_secret_access_key(text(&credentials.secret_access_key)?);
        if let Some(token) = &credentials.session_token {
            builder = builder.with_token(text(token)?);
        }
    }
    builder.build().map_err(|_| InvalidS3Settings)
}

#[async_trait]
impl Blobs for S3Blobs {
    async fn put(&self, content: UploadStream) -> Result<BlobStat, BlobError> {
        let mut parts = UploadParts::new(HashingContent::new(content, self.bytes_max));
        let first = parts.next().await?.unwrap_or_default();
        if first.len() == S3_PART_BYTES {
            parts.again = Some(first);
            return self.put_in_parts(parts).await;
        }
        let stat = parts.content.finish();
        self.store.put(&self.path(&key(stat.id)), PutPayload::from(first)).await.map_err(failed)?;
        Ok(stat)
    }

    async fn get(&self, id: BlobId) -> Result<Blob, BlobError> {
        let found = self.store.get(&self.path(&key(id))).await.map_err(|error| missing_or_failed(id, error))?;
        let size = found.meta.size;
        let pieces = found.into_stream().map_err(move |error| missing_or_failed(id, error));
        Ok(Blob { stat: BlobStat { id, size }, content: verify(id, pieces.boxed()) })
    }

    async fn stat(&self, id: BlobId) -> Result<Option<BlobStat>, BlobError> {
        match self.store.head(&self.path(&key(id))).await {
            Ok(meta) => Ok(Some(BlobStat { id, size: meta.size })),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    async fn ids(&self, first: u8) -> Result<Vec<BlobId>, BlobError> {
        let folder = self.path(&folder_of(first));
        let found = self.store.list(Some(&folder)).map_err(failed);
        let found: Vec<Option<BlobId>> =
            found.map_ok(|object| id_of(first, object.location.filename()?)).try_collect().await?;
        let mut ids: Vec<BlobId> = found.into_iter().flatten().collect();
        ids.sort_unstable();
        Ok(ids)
    }

    async fn delete(&self, id: BlobId) -> Result<(), BlobError> {
        match self.store.delete(&self.path(&key(id))).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }

    async fn presign(&self, id: BlobId, seconds: u64, now: Timestamp) -> Result<PresignedUrl, BlobError> {
        self.stat(id).await?.ok_or(BlobError::NotFound(id))?;
        let seconds = link_seconds(seconds);
        let lifetime = Duration::from_secs(seconds);
        let url = self.store.signed_url(reqwest::Method::GET, &self.path(&key(id)), lifetime).await.map_err(failed)?;
        let expires_at = now.plus_seconds(i64::try_from(seconds).unwrap_or(i64::MAX));
        Ok(PresignedUrl { url: url.into(), expires_at })
    }

    fn check_link(&self, _link: &PresentedLink<'_>, _now: Timestamp) -> Result<(), InvalidLink> {
        Err(InvalidLink::Forged)
    }

    async fn ready(&self) -> Result<(), BlobError> {
        self.store.put(&self.path("tmp/ready"), PutPayload::from_static(b"ready")).await.map_err(failed)?;
        Ok(())
    }
}

/// Content split into parts of equal size; only the last is shorter.
struct UploadParts {
    content: HashingContent,
    again: Option<Bytes>,
    begun: BytesMut,
}

impl UploadParts {
    fn new(content: HashingContent) -> Self {
        Self { content, again: None, begun: BytesMut::new() }
    }

    async fn next(&mut self) -> Result<Option<Bytes>, BlobError> {
        if let Some(part) = self.again.take() {
            return Ok(Some(part));
        }
        while self.begun.len() < S3_PART_BYTES {
            match self.content.next().await? {
                Some(piece) => self.begun.extend_from_slice(&piece),
                None => break,
            }
        }
        let part = self.begun.split_to(self.begun.len().min(S3_PART_BYTES)).freeze();
        Ok(Some(part).filter(|part| !part.is_empty()))
    }
}

/// A multipart upload that is aborted if dropped before completion.
struct MultipartUploadGuard {
    upload: Option<Box<dyn MultipartUpload>>,
}

impl MultipartUploadGuard {
    async fn part(&mut self, part: Bytes) -> Result<(), BlobError> {
        let Some(upload) = self.upload.as_mut() else { return Err(unavailable("the upload has ended")) };
        upload.put_part(part.into()).await.map_err(failed)
    }

    async fn complete(mut self) -> Result<(), BlobError> {
        let Some(upload) = self.upload.as_mut() else { return Err(unavailable("the upload has ended")) };
        upload.complete().await.map_err(failed)?;
        self.upload = None;
        Ok(())
    }
}

impl Drop for MultipartUploadGuard {
    fn drop(&mut self) {
        if let (Some(mut upload), Ok(runtime)) = (self.upload.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move { upload.abort().await });
        }
    }
}

fn retry() -> RetryConfig {
    let backoff = BackoffConfig { init_backoff: S3_RETRY_PAUSE_FIRST, max_backoff: S3_RETRY_PAUSE_MAX, base: 2.0 };
    RetryConfig { backoff, max_retries: S3_RETRIES_MAX, retry_timeout: S3_RETRY_TIMEOUT }
}

fn missing_or_failed(id: BlobId, error: Error) -> BlobError {
    if matches!(error, Error::NotFound { .. }) { BlobError::NotFound(id) } else { failed(error) }
}

/// The reason for an operator; the error itself names the location and is only logged.
fn failed(error: Error) -> BlobError {
    tracing::debug!(%error, "object store failed");
    let unusable = |reason| BlobError::Unavailable(Unavailable::new(Outage::Unusable, reason));
    match error {
        Error::Unauthenticated { .. } | Error::PermissionDenied { .. } => unusable("the object store denies access"),
        Error::NotFound { .. } => unusable("the bucket is missing"),
        Error::NotSupported { .. } | Error::NotImplemented { .. } => {
            unusable("the object store does not support a required operation")
        }
        _ => unavailable("the object store is unreachable or returned an unexpected response"),
    }
}
