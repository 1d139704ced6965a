//! Blob content in transit: hashed and measured on write, verified on read.

use bytes::Bytes;
use chimera_core::id::BlobId;
use chimera_core::ledger::Digest32;
use chimera_engine::flow::port::{BlobError, BlobStat, DownloadStream, UploadStream};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use sha2::{Digest, Sha256};

/// Bytes hashed or written before yielding to other tasks.
const PIECE_BYTES_MAX: usize = 256 * 1024;

/// Incoming content that computes its own digest.
pub(super) struct HashingContent {
    content: UploadStream,
    ahead: Bytes,
    hasher: Sha256,
    size: u64,
    bytes_max: u64,
}

impl HashingContent {
    pub(super) fn new(content: UploadStream, bytes_max: u64) -> Self {
        Self { content, ahead: Bytes::new(), hasher: Sha256::new(), size: 0, bytes_max }
    }

    /// The next piece, never empty; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, BlobError> {
        while self.ahead.is_empty() {
            match self.content.next().await {
                None => return Ok(None),
                Some(Ok(bytes)) => self.ahead = bytes,
                Some(Err(error)) => {
                    tracing::debug!(%error, "content broke off");
                    return Err(BlobError::Interrupted);
                }
            }
        }
        let piece = self.ahead.split_to(self.ahead.len().min(PIECE_BYTES_MAX));
        self.size += piece.len() as u64;
        if self.size > self.bytes_max {
            return Err(BlobError::TooLarge { bytes_max: self.bytes_max });
        }
        self.hasher.update(&piece);
        tokio::task::coop::consume_budget().await;
        Ok(Some(piece))
    }

    /// Id and size, once the content has ended.
    pub(super) fn finish(self) -> BlobStat {
        BlobStat { id: BlobId::new(Digest32(self.hasher.finalize().into())), size: self.size }
    }
}

/// Passes content on while checking it against its address. The last chunk is held back until the digest is verified,
/// so a reader never receives all of a damaged blob.
pub(super) fn verify(id: BlobId, content: BoxStream<'static, Result<Bytes, BlobError>>) -> DownloadStream {
    struct Check {
        content: BoxStream<'static, Result<Bytes, BlobError>>,
        hasher: Sha256,
        held: Bytes,
        done: bool,
    }
    let check = Check { content, hasher: Sha256::new(), held: Bytes::new(), done: false };
    stream::try_unfold(check, move |mut check| async move {
        while !check.done {
            match check.content.try_next().await? {
                Some(piece) if piece.is_empty() => {}
                Some(piece) => {
                    check.hasher.update(&piece);
                    let ready = std::mem::replace(&mut check.held, piece);
                    if !ready.is_empty() {
                        return Ok(Some((ready, check)));
                    }
                }
                None => {
                    check.done = true;
                    let digest = Digest32(std::mem::take(&mut check.hasher).finalize().into());
                    if digest != id.digest() {
                        return Err(BlobError::Damaged(id));
                    }
                }
            }
        }
        let last = std::mem::take(&mut check.held);
        Ok(if last.is_empty() { None } else { Some((last, check)) })
    })
    .boxed()
}
