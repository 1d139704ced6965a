//! Buckets as one tenant sees them.
//!
//! The default tenant uses every bucket, under keys as they are written. Any other tenant uses the buckets that are
//! shared with it, and its objects lie below a prefix of its own there, which nobody else can name. A bucket that is
//! not shared is refused in the same words as one that the store does not have.

use crate::access::port::Tenancy;
use crate::flow::port::{BucketError, Buckets, Object};
use chimera_core::access::tenant::is_tenants_object;
use std::sync::Arc;

/// The buckets of every tenant, each tenant's objects apart.
#[derive(Clone)]
pub struct TenantBuckets {
    buckets: Arc<dyn Buckets>,
    tenancy: Arc<dyn Tenancy>,
}

impl TenantBuckets {
    /// Objects in `buckets`, apart as `tenancy` says.
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

    /// What is stored there; see [`Buckets::get`].
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

    /// The URL of an object, whether it is there or not.
    pub fn address(&self, tenant: &str, (bucket, key): (&str, &str)) -> Result<String, BucketError> {
        Ok(self.buckets.address(bucket, &self.key(tenant, bucket, key)?))
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

    /// The key under which the store has an object of a tenant.
    fn key(&self, tenant: &str, bucket: &str, key: &str) -> Result<String, BucketError> {
        match self.tenancy.guest(tenant) {
            None if is_tenants_object(key) => Err(BucketError::Name("this place holds objects of tenants".to_owned())),
            None => Ok(key.to_owned()),
            // A prefix makes a good name of an empty key.
            Some(_) if key.is_empty() => Err(BucketError::Name("a key has 1 to 1024 bytes".to_owned())),
            Some(guest) if guest.uses_bucket(bucket) => Ok(guest.object_key(key)),
            Some(_) => Err(BucketError::Refused("there is no such bucket".to_owned())),
        }
    }
}
