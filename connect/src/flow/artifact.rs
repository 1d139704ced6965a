//! Artifacts that inputs and outputs name by content address. A tenant reads only what it has stored itself.

use bytes::Bytes;
use chimera_core::error::Code;
use chimera_core::id::BlobId;
use chimera_engine::flow::TenantBlobs;
use chimera_engine::flow::port::{BlobError, BlobStat, CallContext, ToolError};
use futures::{StreamExt, TryStreamExt, stream};

/// The content of an artifact, if it has at most `bytes_max` bytes.
pub(crate) async fn fetch(
    blobs: &TenantBlobs,
    ctx: &CallContext,
    address: &str,
    bytes_max: usize,
) -> Result<Bytes, ToolError> {
    let id: BlobId = address.parse().map_err(|_| {
        ToolError::not_sent(Code::MalformedArgs, "an artifact address must be cas://sha256: followed by 64 hex digits")
    })?;
    let blob = blobs.get(&ctx.tenant, id).await.map_err(failed)?;
    if blob.stat.size > bytes_max as u64 {
        return Err(ToolError::not_sent(Code::PayloadTooLarge, "the artifact is too large for this tool")
            .with("artifact", address)
            .with("bytes", blob.stat.size)
            .with("bytes_max", bytes_max));
    }
    let pieces: Vec<Bytes> = blob.content.try_collect().await.map_err(failed)?;
    Ok(pieces.concat().into())
}

/// Stores content and returns its address.
pub(crate) async fn store(
    blobs: &TenantBlobs,
    ctx: &CallContext,
    media_type: &str,
    content: Bytes,
) -> Result<BlobStat, ToolError> {
    blobs.put(ctx, media_type, stream::iter([Ok(content)]).boxed()).await.map_err(failed)
}

fn failed(error: BlobError) -> ToolError {
    let code = match error {
        BlobError::NotFound(_) => Code::NotFound,
        BlobError::TooLarge { .. } => Code::PayloadTooLarge,
        BlobError::Damaged(_) => Code::Internal,
        BlobError::Interrupted => Code::StoreUnavailable,
        BlobError::Unavailable(ref why) => why.outage.code(),
    };
    ToolError::not_sent(code, error.to_string())
}
