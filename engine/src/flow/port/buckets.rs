//! Object storage by bucket and key, for tools that upload files for others to read.

use async_trait::async_trait;
use bytes::Bytes;

/// An object store.
///
/// **Atomic.** An object is visible whole or not at all; content, type and mark change together.
/// **Durable.** An object whose put was acknowledged survives a crash.
/// **Idempotent.** Putting the same object again changes nothing; deleting a missing object is not an error.
/// **Exact.** A key names one object: it is used as given, or refused as an invalid name.
#[async_trait]
pub trait Buckets: Send + Sync {
    /// Stores an object. Without `replace`, an existing object is kept and the result is `Taken`. Of two concurrent
    /// puts one wins, as far as the store's conditional writes guarantee it.
    async fn put(&self, bucket: &str, key: &str, object: &Object, replace: bool) -> Result<(), BucketError>;

    /// Reads an object; `None` if there is none. More than `bytes_max` bytes are `TooLarge`.
    async fn get(&self, bucket: &str, key: &str, bytes_max: usize) -> Result<Option<Object>, BucketError>;

    async fn delete(&self, bucket: &str, key: &str) -> Result<(), BucketError>;

    /// Whether all nodes see the same objects.
    fn is_shared(&self) -> bool;

    /// The host of a bucket, as `host` or `host:port`; `None` if it is on this machine.
    fn host(&self, _bucket: &str) -> Option<String> {
        None
    }

    /// The URL of an object, whether it exists or not. Names that `put` refuses are refused, without asking the store.
    fn address(&self, bucket: &str, key: &str) -> Result<String, BucketError>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pub content: Bytes,
    pub content_type: String,
    /// Who uploaded it, in printable ASCII without spaces; empty if unknown.
    pub mark: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BucketError {
    #[error("not a usable name: {0}")]
    Name(String),
    #[error("an object with this key already exists")]
    Taken,
    #[error("the object is larger than {bytes_max} bytes")]
    TooLarge {
        /// The caller's limit.
        bytes_max: usize,
    },
    /// Unreachable, or timed out.
    #[error("the object store is not available: {0}")]
    Unavailable(String),
    #[error("the object store refuses: {0}")]
    Refused(String),
}
