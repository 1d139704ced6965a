//! Blobs: in a local folder, or in an S3 bucket.

mod content;
mod folder;
mod link;
mod s3;
mod s3_url;

pub use folder::FolderBlobs;
pub use link::LinkSigner;
pub(crate) use s3::client as s3_client;
pub use s3::{InvalidS3, S3Blobs, S3Credentials};
pub use s3_url::{InvalidS3Url, S3Url};

use chimera_core::ledger::BlobId;
use chimera_core::limits::PRESIGN_SECONDS_MAX;
use chimera_engine::port::BlobError;

/// The place of a blob below its root: `sha256/ab/cdef…`, so that no folder grows too wide.
fn key(id: BlobId) -> String {
    let hex = id.hex();
    let (first, rest) = hex.split_at(2);
    format!("sha256/{first}/{rest}")
}

/// The lifetime a link gets when `seconds` are asked for.
fn link_seconds(seconds: u64) -> u64 {
    seconds.clamp(1, PRESIGN_SECONDS_MAX)
}

fn unavailable(reason: impl Into<String>) -> BlobError {
    BlobError::Unavailable { reason: reason.into() }
}
