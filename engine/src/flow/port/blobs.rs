//! Content-addressed blob storage.

use crate::port::Unavailable;
use async_trait::async_trait;
use bytes::Bytes;
use chimera_core::id::BlobId;
use chimera_core::time::Timestamp;
use futures::stream::BoxStream;

/// Content being uploaded. An error aborts the put, and nothing is stored.
pub type UploadStream = BoxStream<'static, std::io::Result<Bytes>>;

/// Content being downloaded. The stream ends after an error or `None`.
pub type DownloadStream = BoxStream<'static, Result<Bytes, BlobError>>;

/// A store of immutable content, addressed by its SHA-256 digest.
///
/// **Atomic.** A blob is visible whole or not at all. A put that fails, is dropped or dies with the process leaves
/// nothing that `get`, `stat` or a link can reach. The store cleans up leftovers itself; an object store does so by its
/// expiry rules for unfinished uploads and for the folder `tmp/`.
/// **Durable.** A returned id means that the content survives a crash of process and machine.
/// **Idempotent.** The same content twice is one blob with one id; a second put repairs a damaged first. Deleting a
/// missing blob is not an error.
/// **Verified.** What `get` yields without an error is the content that was put. Damage ends the stream with `Damaged`
/// before the last chunk.
/// **Recovering.** After `Unavailable` the same call works again once the cause is gone; nothing has to be reopened.
#[async_trait]
pub trait Blobs: Send + Sync {
    /// Stores content of at most `BLOB_BYTES_MAX` bytes. Holds only a few chunks in memory.
    async fn put(&self, content: UploadStream) -> Result<BlobStat, BlobError>;

    /// Reads a blob. A missing one is `NotFound`.
    async fn get(&self, id: BlobId) -> Result<Blob, BlobError>;

    /// Metadata without reading the content; `None` if there is no such blob.
    async fn stat(&self, id: BlobId) -> Result<Option<BlobStat>, BlobError>;

    /// All blobs whose digest starts with this byte, in order. 256 calls list the whole store.
    async fn ids(&self, first: u8) -> Result<Vec<BlobId>, BlobError>;

    /// Deletes a blob, for retention. A read in progress may finish or end with an error.
    async fn delete(&self, id: BlobId) -> Result<(), BlobError>;

    /// A URL that lets anyone GET the blob for `seconds`, clamped to 1..=`PRESIGN_SECONDS_MAX`. A missing blob is
    /// `NotFound`.
    async fn presign(&self, id: BlobId, seconds: u64, now: Timestamp) -> Result<PresignedUrl, BlobError>;

    /// Verifies a presigned link that this server received. Only links that this store signed for this server pass; a
    /// store whose links point elsewhere refuses all.
    fn check_link(&self, link: &PresentedLink<'_>, now: Timestamp) -> Result<(), InvalidLink>;

    /// Whether the store accepts blobs now. Proven by writing one.
    async fn ready(&self) -> Result<(), BlobError>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobStat {
    pub id: BlobId,
    /// In bytes.
    pub size: u64,
}

pub struct Blob {
    pub stat: BlobStat,
    pub content: DownloadStream,
}

/// A signed URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresignedUrl {
    /// Grants read access to whoever holds it, until it expires.
    pub url: String,
    pub expires_at: Timestamp,
}

/// The parts of a presigned URL that a client sent.
#[derive(Clone, Copy, Debug)]
pub struct PresentedLink<'a> {
    pub id: BlobId,
    /// The parameter `expires`: Unix seconds.
    pub expires: &'a str,
    /// The parameter `signature`: hex.
    pub signature: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLink {
    #[error("the link has expired")]
    Expired,
    /// Not signed by this store.
    #[error("the link is not valid")]
    Forged,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlobError {
    #[error("there is no blob {0}")]
    NotFound(BlobId),
    /// Nothing was stored.
    #[error("the content is larger than {bytes_max} bytes")]
    TooLarge {
        /// `BLOB_BYTES_MAX`, or a lower configured limit.
        bytes_max: u64,
    },
    /// The stored content does not match its digest.
    #[error("the blob {0} is damaged")]
    Damaged(BlobId),
    /// The upload ended early; nothing was stored.
    #[error("the content broke off before its end")]
    Interrupted,
    #[error("the blob store is unavailable: {}", .0.reason)]
    Unavailable(Unavailable),
}
