//! Object storage by bucket and key, for tools that put files where somebody else reads them.

use async_trait::async_trait;
use bytes::Bytes;

/// Buckets of an object store.
///
/// **Atomic.** An object is seen whole or not at all; content, type and mark change together.
/// **Durable.** An object whose put was answered survives a crash.
/// **Idempotent.** Putting the same object again changes nothing; removing what is not there is not
/// an error.
/// **Exact.** A key names one object: it is used as it is written, or refused as a name.
#[async_trait]
pub trait Buckets: Send + Sync {
    /// Stores an object. Unless it may `replace`, whatever is stored there
    /// already stays, and `Taken` is said. Of two that come at once one wins, as far as the store
    /// behind keeps to its own conditional writes.
    async fn put(&self, bucket: &str, key: &str, object: &Object, replace: bool) -> Result<(), BucketError>;

    /// What is stored there, if anything is. More than `bytes_max` bytes are `TooLarge`.
    async fn get(&self, bucket: &str, key: &str, bytes_max: usize) -> Result<Option<Object>, BucketError>;

    /// Removes it.
    async fn delete(&self, bucket: &str, key: &str) -> Result<(), BucketError>;

    /// Whether every node finds the same objects here.
    fn is_shared(&self) -> bool;

    /// The host that keeps a bucket, as `host` or `host:port`. None: it lies on this machine.
    fn host(&self, _bucket: &str) -> Option<String> {
        None
    }

    /// The URL of an object, whether it is there or not.
    fn address(&self, bucket: &str, key: &str) -> String;
}

/// An object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its content.
    pub content: Bytes,
    /// What kind of content it is.
    pub content_type: String,
    /// Who put it there, in printable ASCII without spaces; empty if nobody says.
    pub mark: String,
}

/// Why a bucket can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BucketError {
    /// The bucket or key is not a name that can be used.
    #[error("not a usable name: {0}")]
    Name(String),
    /// Another object is stored there.
    #[error("an object is stored there already")]
    Taken,
    /// The object is larger than the caller wants.
    #[error("the object is larger than {bytes_max} bytes")]
    TooLarge {
        /// What the caller wants at the most.
        bytes_max: usize,
    },
    /// The store can't be reached, or did not answer in time.
    #[error("the object store is not available: {0}")]
    Unavailable(String),
    /// The store refuses.
    #[error("the object store refuses: {0}")]
    Refused(String),
}
