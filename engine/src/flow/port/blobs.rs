//! Blobs: content by its address.

use crate::port::Unavailable;
use async_trait::async_trait;
use bytes::Bytes;
use chimera_core::id::BlobId;
use chimera_core::time::Timestamp;
use futures::stream::BoxStream;

/// Content on its way in. An error ends the put; nothing is stored.
pub type Incoming = BoxStream<'static, std::io::Result<Bytes>>;

/// Content on its way out. After an error, or after `None`, nothing more comes.
pub type Outgoing = BoxStream<'static, Result<Bytes, BlobError>>;

/// A store of immutable contents, addressed by their SHA-256.
///
/// **Atomic.** A blob is visible whole or not at all. A put that fails, is dropped or dies with
/// the process leaves nothing that `get`, `stat` or a link can reach; what it left behind is
/// cleaned up by the store itself, or, for an object store, by its expiry rules for unfinished
/// uploads and for the folder `tmp/`.
/// **Durable.** An id given back means that the content survives a crash of process and machine.
/// **Idempotent.** The same content twice is one blob with one id; a second put repairs a damaged
/// first. Deleting what is not there is no error.
/// **Verified.** What `get` yields without an error is the content that was put. Damage ends the
/// stream with `Damaged` before its last piece is handed out.
/// **Recovering.** After `Unavailable` the same call works again once the cause is gone; nobody
/// has to reopen anything.
#[async_trait]
pub trait Blobs: Send + Sync {
    /// Stores content of at most `BLOB_BYTES_MAX` bytes. Holds only a few pieces in memory.
    async fn put(&self, content: Incoming) -> Result<BlobStat, BlobError>;

    /// Reads a blob. A missing one is `NotFound`.
    async fn get(&self, id: BlobId) -> Result<Blob, BlobError>;

    /// What is known of a blob without reading it; `None` if there is none.
    async fn stat(&self, id: BlobId) -> Result<Option<BlobStat>, BlobError>;

    /// Every blob whose digest begins with this byte, in order: to look at all of them, ask 256 times.
    async fn ids(&self, first: u8) -> Result<Vec<BlobId>, BlobError>;

    /// Removes a blob, for retention. A reader that has begun may finish or end with an error.
    async fn delete(&self, id: BlobId) -> Result<(), BlobError>;

    /// A URL by which anyone can GET the blob without further proof, for `seconds`, but not for
    /// less than one or more than `PRESIGN_SECONDS_MAX`. A missing blob is `NotFound`.
    async fn presign(&self, id: BlobId, seconds: u64, now: Timestamp) -> Result<PresignedUrl, BlobError>;

    /// Checks a link that was presented to us. Only links that this store made and that lead to
    /// us pass; a store whose links lead elsewhere refuses all.
    fn check_link(&self, link: &PresentedLink<'_>, now: Timestamp) -> Result<(), LinkRefused>;

    /// Whether the store takes blobs now: it proves so by writing.
    async fn ready(&self) -> Result<(), BlobError>;
}

/// A blob and how large it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobStat {
    /// Its address.
    pub id: BlobId,
    /// Its length in bytes.
    pub size: u64,
}

/// An opened blob.
pub struct Blob {
    /// What it is.
    pub stat: BlobStat,
    /// Its content.
    pub content: Outgoing,
}

/// A URL that carries its own permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresignedUrl {
    /// The URL. Whoever has it can read the blob until it expires.
    pub url: String,
    /// When it stops working.
    pub expires_at: Timestamp,
}

/// The parts of a presigned URL that somebody came with.
#[derive(Clone, Copy, Debug)]
pub struct PresentedLink<'a> {
    /// The blob it asks for.
    pub id: BlobId,
    /// The parameter `expires`: Unix seconds.
    pub expires: &'a str,
    /// The parameter `signature`: hex.
    pub signature: &'a str,
}

/// Why a link does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkRefused {
    /// It was good once.
    #[error("the link has expired")]
    Expired,
    /// It was never given out like this.
    #[error("the link is not valid")]
    Forged,
}

/// Why a blob was not stored or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlobError {
    /// There is no such blob.
    #[error("there is no blob {0}")]
    NotFound(BlobId),
    /// The content is longer than any blob may be; nothing was stored.
    #[error("the content is larger than {bytes_max} bytes")]
    TooLarge {
        /// The limit: `BLOB_BYTES_MAX`, or less where the store was told so.
        bytes_max: u64,
    },
    /// What is stored is not what was put.
    #[error("the blob {0} is damaged")]
    Damaged(BlobId),
    /// The content broke off before its end; nothing was stored.
    #[error("the content broke off before its end")]
    Interrupted,
    /// The store can't be reached or can't write.
    #[error("the blob store is unavailable: {}", .0.reason)]
    Unavailable(Unavailable),
}
