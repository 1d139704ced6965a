//! Blobs, separated by tenant: a tenant reads only what it has put.
//!
//! The blob store keeps one copy of a content, whoever puts it, and has no owners. A row (tenant, digest) in
//! `artifacts` grants a tenant access. Without it a blob is not found, whether another tenant has it or nobody. Putting
//! it again adds the tenant's row and reveals nothing about others.

use crate::flow::port::{Blob, BlobError, BlobStat, Blobs, CallContext, UploadStream};
use crate::port::{CommitError, Outage, ReadError, Records, Unavailable};
use chimera_core::flow::run::affinity;
use chimera_core::flow::tables::{ARTIFACTS, artifacts};
use chimera_core::id::BlobId;
use chimera_core::record::{Conflict, Insert, Scope, Select, Tx, Value};
use std::sync::Arc;

/// Blob access per tenant.
#[derive(Clone)]
pub struct TenantBlobs {
    blobs: Arc<dyn Blobs>,
    /// `None`: tools are only described, never called.
    records: Option<Arc<dyn Records>>,
}

impl TenantBlobs {
    /// Content in `blobs`, ownership in `records`.
    #[must_use]
    pub const fn new(blobs: Arc<dyn Blobs>, records: Arc<dyn Records>) -> Self {
        Self { blobs, records: Some(records) }
    }

    /// For tools that are described and never called: nothing can be put or read.
    #[must_use]
    pub const fn described(blobs: Arc<dyn Blobs>) -> Self {
        Self { blobs, records: None }
    }

    /// Stores content for the tenant of a call. A crash in between leaves content without an owner, which the next put
    /// of it adopts.
    pub async fn put(&self, ctx: &CallContext, media_type: &str, content: UploadStream) -> Result<BlobStat, BlobError> {
        let records = self.records.as_ref().ok_or_else(|| unrecorded(&"no records are open"))?;
        let stat = self.blobs.put(content).await?;
        let row = Insert::new(
            &ARTIFACTS,
            vec![
                (artifacts::tenant_id, ctx.tenant.as_str().into()),
                (artifacts::sha256, digest(stat.id)),
                (artifacts::size_bytes, i64::try_from(stat.size).unwrap_or(i64::MAX).into()),
                (artifacts::media_type, media_type.into()),
                (artifacts::created_by, ctx.actor.as_str().into()),
                (artifacts::run_id, ctx.run_id.into()),
            ],
        );
        let row = row.map_err(|error| unrecorded(&error))?;
        let tx = Tx { affinity: affinity(ctx.run_id), inserts: vec![row], ..Tx::default() };
        match records.commit(tx).await {
            Ok(_) | Err(CommitError::Conflict(Conflict::Exists(_))) => Ok(stat),
            Err(CommitError::Unavailable(outage)) => Err(BlobError::Unavailable(outage)),
            Err(error) => Err(unrecorded(&error)),
        }
    }

    /// Reads a tenant's blob. One that it has not put is `NotFound`.
    pub async fn get(&self, tenant: &str, id: BlobId) -> Result<Blob, BlobError> {
        let records = self.records.as_ref().ok_or(BlobError::NotFound(id))?;
        let owned =
            Select::from(&ARTIFACTS, Scope::Tenant(tenant.to_owned())).with(artifacts::sha256, digest(id)).take(1);
        let owned = records.read(owned).await.map_err(|error| match error {
            ReadError::Unavailable(outage) => BlobError::Unavailable(outage),
            error => unrecorded(&error),
        })?;
        match owned.rows.is_empty() {
            true => Err(BlobError::NotFound(id)),
            false => self.blobs.get(id).await,
        }
    }
}

fn digest(id: BlobId) -> Value {
    Value::Bytes(id.digest().to_vec())
}

fn unrecorded(error: &dyn std::fmt::Display) -> BlobError {
    BlobError::Unavailable(Unavailable::new(
        Outage::Transient,
        format!("the owner of a blob can't be recorded: {error}"),
    ))
}
