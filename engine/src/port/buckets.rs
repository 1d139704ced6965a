//! Object storage by bucket and key, for tools that put files where somebody else reads them.

use async_trait::async_trait;
use bytes::Bytes;

/// Buckets of an object store.
///
/// Putting the same bytes under the same key again changes nothing; removing what is not there is
/// not an error.
#[async_trait]
pub trait Buckets: Send + Sync {
    /// Stores `content` and gives its address.
    async fn put(&self, bucket: &str, key: &str, content: Bytes, content_type: &str) -> Result<String, BucketError>;

    /// What is stored there, if anything is.
    async fn get(&self, bucket: &str, key: &str) -> Result<Option<Bytes>, BucketError>;

    /// Removes it.
    async fn delete(&self, bucket: &str, key: &str) -> Result<(), BucketError>;
}

/// Why a bucket can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BucketError {
    /// The bucket or key is not a name that can be used.
    #[error("not a usable name: {0}")]
    Name(String),
    /// The store can't be reached, or did not answer in time.
    #[error("the object store is not available: {0}")]
    Unavailable(String),
    /// The store refuses.
    #[error("the object store refuses: {0}")]
    Refused(String),
}
