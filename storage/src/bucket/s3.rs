//! Buckets on the S3 server that also holds the blobs.
//!
//! Every bucket that the credentials can access is allowed, except the location of the blobs: whoever could write
//! there could change the content behind a content address.

use super::{check_names, escaped};
use crate::blob::{InvalidS3Settings, S3Credentials, S3Url, s3_client};
use async_trait::async_trait;
use bytes::Bytes;
use chimera_core::limits::BUCKETS_OPEN_MAX;
use chimera_engine::flow::port::{BucketError, Buckets, Object};
use object_store::aws::AmazonS3;
use object_store::path::Path;
use object_store::{Attribute, Attributes, Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The metadata name of an object's marker.
const MARK: &str = "chimera-mark";

pub struct S3Buckets {
    url: S3Url,
    credentials: Option<S3Credentials>,
    open: Mutex<BTreeMap<String, AmazonS3>>,
}

impl S3Buckets {
    /// The buckets on the same server as the blobs, with the same credentials. Does not connect yet.
    pub fn new(url: S3Url, credentials: Option<S3Credentials>) -> Result<Self, InvalidS3Settings> {
        s3_client(&url, &url.bucket, credentials.as_ref())?;
        Ok(Self { url, credentials, open: Mutex::new(BTreeMap::new()) })
    }

    /// The path of a key that the store can hold.
    fn path(&self, bucket: &str, key: &str) -> Result<Path, BucketError> {
        check_names(bucket, key)?;
        let prefix = &self.url.prefix;
        let inside = prefix.is_empty() || key == prefix || key.starts_with(&format!("{prefix}/"));
        if bucket == self.url.bucket && inside {
            return Err(BucketError::Name("this location is reserved for Chimera's own blobs".to_owned()));
        }
        if self.url.virtual_hosted && self.url.endpoint.is_some() && bucket != self.url.bucket {
            return Err(BucketError::Name("an endpoint with style=virtual can only reach its own bucket".to_owned()));
        }
        Path::parse(key).map_err(|_| BucketError::Name("the store can't hold this key".to_owned()))
    }

    fn open(&self, bucket: &str, key: &str) -> Result<(AmazonS3, Path), BucketError> {
        let path = self.path(bucket, key)?;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = open.get(bucket) {
            return Ok((store.clone(), path));
        }
        let store = s3_client(&self.url, bucket, self.credentials.as_ref())
            .map_err(|_| BucketError::Name("the bucket name can't be used".to_owned()))?;
        if open.len() >= BUCKETS_OPEN_MAX {
            open.clear();
        }
        open.insert(bucket.to_owned(), store.clone());
        Ok((store, path))
    }

    fn url_of(&self, bucket: &str, key: &str) -> String {
        let key = escaped(key);
        let endpoint = self.url.endpoint.as_deref().map(|endpoint| endpoint.trim_end_matches('/'));
        match (endpoint, self.url.virtual_hosted) {
            (Some(endpoint), false) => format!("{endpoint}/{bucket}/{key}"),
            // A virtual-hosted endpoint already contains the bucket.
            (Some(endpoint), true) => format!("{endpoint}/{key}"),
            (None, true) => format!("https://{bucket}.s3.{}.amazonaws.com/{key}", self.url.region),
            (None, false) => format!("https://s3.{}.amazonaws.com/{bucket}/{key}", self.url.region),
        }
    }
}

#[async_trait]
impl Buckets for S3Buckets {
    async fn put(&self, bucket: &str, key: &str, object: &Object, replace: bool) -> Result<(), BucketError> {
        let (store, path) = self.open(bucket, key)?;
        let mut attributes = Attributes::new();
        attributes.insert(Attribute::ContentType, object.content_type.clone().into());
        if !object.mark.is_empty() {
            attributes.insert(Attribute::Metadata(MARK.into()), object.mark.clone().into());
        }
        let mode = if replace { PutMode::Overwrite } else { PutMode::Create };
        let options = PutOptions { mode, attributes, ..PutOptions::default() };
        store.put_opts(&path, PutPayload::from(object.content.clone()), options).await.map_err(failed)?;
        Ok(())
    }

    async fn get(&self, bucket: &str, key: &str, bytes_max: usize) -> Result<Option<Object>, BucketError> {
        let (store, path) = self.open(bucket, key)?;
        let found = match store.get(&path).await {
            Ok(found) => found,
            // A missing bucket looks the same here; a `put` reports it.
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        if found.meta.size > bytes_max as u64 {
            return Err(BucketError::TooLarge { bytes_max });
        }
        let text = |name: Attribute| found.attributes.get(&name).map(|value| value.to_string()).unwrap_or_default();
        let (content_type, mark) = (text(Attribute::ContentType), text(Attribute::Metadata(MARK.into())));
        let content: Bytes = match found.bytes().await {
            Ok(content) => content,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        Ok(Some(Object { content, content_type, mark }))
    }

    async fn delete(&self, bucket: &str, key: &str) -> Result<(), BucketError> {
        let (store, path) = self.open(bucket, key)?;
        match store.delete(&path).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn host(&self, bucket: &str) -> Option<String> {
        let address = self.url_of(bucket, "");
        let authority = address.split_once("://")?.1.split('/').next()?;
        Some(authority.to_ascii_lowercase())
    }

    fn address(&self, bucket: &str, key: &str) -> Result<String, BucketError> {
        self.path(bucket, key)?;
        Ok(self.url_of(bucket, key))
    }
}

/// The reason for the caller; the error itself names the location and is only logged.
fn failed(error: Error) -> BucketError {
    tracing::debug!(%error, "object store failed");
    match error {
        Error::AlreadyExists { .. } | Error::Precondition { .. } => BucketError::Taken,
        Error::NotFound { .. } => BucketError::Refused("there is no such bucket".to_owned()),
        Error::Unauthenticated { .. } | Error::PermissionDenied { .. } => {
            BucketError::Refused("it denies access".to_owned())
        }
        Error::NotSupported { .. } | Error::NotImplemented { .. } => {
            BucketError::Refused("it does not support a required operation".to_owned())
        }
        _ => BucketError::Unavailable("it is unreachable or returned an unexpected response".to_owned()),
    }
}
