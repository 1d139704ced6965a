//! Buckets, separated by tenant.
//!
//! The default tenant uses every bucket, with keys as given. Any other tenant uses the buckets that are shared with it;
//! its objects are stored below its own prefix, which nobody else can name. A bucket that is not shared is refused with
//! the same message as one that does not exist.

use crate::access::port::Tenancy;
use crate::flow::port::{BucketError, Buckets, Object};
use chimera_core::access::tenant::is_guest_object_key;
use std::sync::Arc;

/// Bucket access per tenant.
#[derive(Clone)]
pub struct TenantBuckets {
    buckets: Arc<dyn Buckets>,
    tenancy: Arc<dyn Tenancy>,
}

impl TenantBuckets {
    /// Objects in `buckets`, separated by `tenancy`.
    #[must_use]
    pub const fn new(buckets: Arc<dyn Buckets>, tenancy: Arc<dyn Tenancy>) -> Self {
        Self { buckets, tenancy }
    }

    /// Stores an object; see [`Buckets::put`].
    pub async fn put(
        &self,
        tenant: &str,
        (bucket, key): (&str, &str),
        object: &Object,
        replace: bool,
    ) -> Result<(), BucketError> {
        self.buckets.put(bucket, &self.key(tenant, bucket, key)?, object, replace).await
    }

    /// Reads an object; see [`Buckets::get`].
    pub async fn get(
        &self,
        tenant: &str,
        (bucket, key): (&str, &str),
        bytes_max: usize,
    ) -> Result<Option<Object>, BucketError> {
        self.buckets.get(bucket, &self.key(tenant, bucket, key)?, bytes_max).await
    }

    /// Removes an object; see [`Buckets::delete`].
    pub async fn delete(&self, tenant: &str, (bucket, key): (&str, &str)) -> Result<(), BucketError> {
        self.buckets.delete(bucket, &self.key(tenant, bucket, key)?).await
    }

    /// The URL of an object, whether it exists or not; see [`Buckets::address`].
    pub fn address(&self, tenant: &str, (bucket, key): (&str, &str)) -> Result<String, BucketError> {
        self.buckets.address(bucket, &self.key(tenant, bucket, key)?)
    }

    /// See [`Buckets::is_shared`].
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.buckets.is_shared()
    }

    /// See [`Buckets::host`].
    #[must_use]
    pub fn host(&self, bucket: &str) -> Option<String> {
        self.buckets.host(bucket)
    }

    /// The stored key of a tenant's object.
    fn key(&self, tenant: &str, bucket: &str, key: &str) -> Result<String, BucketError> {
        match self.tenancy.guest(tenant) {
            None if is_guest_object_key(key) => {
                Err(BucketError::Name("this prefix is reserved for objects of tenants".to_owned()))
            }
            None => Ok(key.to_owned()),
            // With the prefix an empty key would look valid.
            Some(_) if key.is_empty() => Err(BucketError::Name("a key has 1 to 1024 bytes".to_owned())),
            Some(guest) if guest.may_use_bucket(bucket) => Ok(guest.object_key(key)),
            Some(_) => Err(BucketError::Refused("there is no such bucket".to_owned())),
        }
    }
}
