//! Blobs: in a local folder, or in an S3 bucket.

mod content;
mod folder;
mod link;
mod s3;
mod s3_url;

pub use folder::FolderBlobs;
pub use link::LinkSigner;
pub(crate) use s3::client as s3_client;
pub use s3::{InvalidS3Settings, S3Blobs, S3Credentials};
pub use s3_url::{InvalidS3Url, S3Url};

use chimera_core::id::BlobId;
use chimera_core::limits::PRESIGN_SECONDS_MAX;
use chimera_engine::flow::port::BlobError;
use chimera_engine::port::{Outage, Unavailable};

/// The path of a blob below its root: `sha256/ab/cdef…`, so that no folder gets too many entries.
fn key(id: BlobId) -> String {
    let hex = id.hex();
    let (first, rest) = hex.split_at(2);
    format!("sha256/{first}/{rest}")
}

/// The folder of the blobs whose digest begins with this byte.
fn folder_of(first: u8) -> String {
    format!("sha256/{first:02x}")
}

/// The id for a file name in such a folder, if it is valid.
fn id_of(first: u8, name: &str) -> Option<BlobId> {
    BlobId::from_hex(&format!("{first:02x}{name}")).ok()
}

/// The lifetime of a link when `seconds` are requested.
fn link_seconds(seconds: u64) -> u64 {
    seconds.clamp(1, PRESIGN_SECONDS_MAX)
}

fn unavailable(reason: impl Into<String>) -> BlobError {
    BlobError::Unavailable(Unavailable::new(Outage::Transient, reason))
}
