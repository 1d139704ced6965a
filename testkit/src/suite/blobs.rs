//! The contract of `chimera_engine::flow::port::Blobs`.

use bytes::Bytes;
use chimera_core::id::BlobId;
use chimera_core::ledger::Digest32;
use chimera_core::limits::{BLOB_BYTES_MAX, PRESIGN_SECONDS_MAX};
use chimera_core::time::Timestamp;
use chimera_engine::flow::port::{Blob, BlobError, BlobStat, Blobs, UploadStream};
use futures::future::Either;
use futures::{StreamExt, TryStreamExt, future, stream};
use sha2::{Digest, Sha256};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Larger than the parts in which a store uploads.
const LARGE: usize = 8 * 1024 * 1024 + 100_000;

/// A fresh store under test.
pub struct Fixture {
    pub blobs: Arc<dyn Blobs>,
    /// The folder that holds its objects as files, at `sha256/ab/cdef…`.
    pub objects: PathBuf,
}

/// Runs the whole contract. `make` creates a store that refuses content larger than its argument.
pub async fn contract(make: impl AsyncFn(u64) -> Fixture) {
    content_is_got_back_as_it_was_put(&make(BLOB_BYTES_MAX).await).await;
    the_same_content_twice_is_one_blob(&make(BLOB_BYTES_MAX).await).await;
    what_is_missing_is_said_to_be_missing(&make(BLOB_BYTES_MAX).await).await;
    a_deleted_blob_is_gone(&make(BLOB_BYTES_MAX).await).await;
    a_put_that_breaks_off_leaves_nothing(&make(BLOB_BYTES_MAX).await).await;
    content_beyond_the_limit_is_refused(&make(1_000).await, 1_000).await;
    content_beyond_the_limit_is_refused(&make(LARGE as u64).await, LARGE).await;
    damage_never_passes_unseen(&make(BLOB_BYTES_MAX).await).await;
    every_blob_is_listed_once_under_its_first_byte(&make(BLOB_BYTES_MAX).await).await;
    a_link_lives_no_longer_than_allowed(&make(BLOB_BYTES_MAX).await).await;
}

/// Content as a stream of chunks of odd sizes, some empty.
#[must_use]
pub fn incoming(content: &[u8]) -> UploadStream {
    let mut pieces: Vec<io::Result<Bytes>> = vec![Ok(Bytes::new())];
    pieces.extend(content.chunks(99_991).map(|piece| Ok(Bytes::copy_from_slice(piece))));
    stream::iter(pieces).boxed()
}

pub async fn all(blob: Blob) -> Result<Vec<u8>, BlobError> {
    blob.content.map_ok(|piece| piece.to_vec()).try_concat().await
}

#[must_use]
pub fn id_of(content: &[u8]) -> BlobId {
    BlobId::new(Digest32(Sha256::digest(content).into()))
}

/// Pseudo-random content.
#[must_use]
pub fn sample(len: usize, seed: u32) -> Vec<u8> {
    let step = |state: &mut u32| {
        *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Some((*state >> 24) as u8)
    };
    std::iter::repeat(()).scan(seed, |state, ()| step(state)).take(len).collect()
}

fn file_of(objects: &Path, id: BlobId) -> PathBuf {
    let hex = id.hex();
    objects.join("sha256").join(&hex[..2]).join(&hex[2..])
}

/// Every file below a folder, recursively.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.flat_map(|e| if e.path().is_dir() { files(&e.path()) } else { vec![e.path()] }).collect()
}

async fn every_blob_is_listed_once_under_its_first_byte(on: &Fixture) {
    let mut put = Vec::new();
    for seed in 0..40 {
        put.push(on.blobs.put(incoming(&sample(10, seed))).await.unwrap().id);
    }
    put.sort_unstable();
    let mut listed = Vec::new();
    for first in 0..=u8::MAX {
        let ids = on.blobs.ids(first).await.unwrap();
        assert!(ids.iter().all(|id| id.digest().0[0] == first), "{first}");
        listed.extend(ids);
    }
    assert_eq!(listed, put);
}

async fn content_is_got_back_as_it_was_put(on: &Fixture) {
    for (len, seed) in [(0, 1), (1, 2), (300_000, 3), (LARGE, 4)] {
        let content = sample(len, seed);
        let stat = BlobStat { id: id_of(&content), size: len as u64 };
        assert_eq!(on.blobs.put(incoming(&content)).await, Ok(stat), "{len} bytes");
        assert_eq!(on.blobs.stat(stat.id).await, Ok(Some(stat)));
        let blob = on.blobs.get(stat.id).await.unwrap();
        assert_eq!(blob.stat, stat);
        assert!(all(blob).await == Ok(content), "{len} bytes come back the same");
        assert!(file_of(&on.objects, stat.id).is_file(), "it lies where the layout says");
    }
    assert_eq!(on.blobs.ready().await, Ok(()));
}

async fn the_same_content_twice_is_one_blob(on: &Fixture) {
    let content = sample(LARGE, 5);
    let puts = (0..2).map(|_| on.blobs.put(incoming(&content)));
    for outcome in future::join_all(puts).await {
        assert_eq!(outcome.map(|stat| stat.id), Ok(id_of(&content)));
    }
    assert_eq!(on.blobs.put(incoming(&content)).await.map(|stat| stat.id), Ok(id_of(&content)));
    assert_eq!(files(&on.objects), [file_of(&on.objects, id_of(&content))], "one file and no leftovers");
}

async fn what_is_missing_is_said_to_be_missing(on: &Fixture) {
    let id = id_of(b"never put");
    assert_eq!(on.blobs.stat(id).await, Ok(None));
    assert_eq!(on.blobs.get(id).await.err(), Some(BlobError::NotFound(id)));
    assert_eq!(on.blobs.presign(id, 60, Timestamp::from_micros(0)).await, Err(BlobError::NotFound(id)));
    assert_eq!(on.blobs.delete(id).await, Ok(()));
}

async fn a_deleted_blob_is_gone(on: &Fixture) {
    let (kept, dropped) = (sample(10, 6), sample(10, 7));
    for content in [&kept, &dropped] {
        assert!(on.blobs.put(incoming(content)).await.is_ok());
    }
    for _ in 0..2 {
        assert_eq!(on.blobs.delete(id_of(&dropped)).await, Ok(()));
        assert_eq!(on.blobs.stat(id_of(&dropped)).await, Ok(None));
    }
    assert_eq!(on.blobs.get(id_of(&dropped)).await.err(), Some(BlobError::NotFound(id_of(&dropped))));
    assert!(on.blobs.get(id_of(&kept)).await.is_ok());
    assert!(on.blobs.put(incoming(&dropped)).await.is_ok(), "and can come back");
    assert!(on.blobs.stat(id_of(&dropped)).await.is_ok_and(|stat| stat.is_some()));
}

async fn a_put_that_breaks_off_leaves_nothing(on: &Fixture) {
    for len in [10, LARGE] {
        let content = sample(len, 8);
        let broken = || incoming(&content).chain(stream::iter([Err(io::Error::other("cut"))]));
        assert_eq!(on.blobs.put(broken().boxed()).await, Err(BlobError::Interrupted));
        assert_eq!(on.blobs.stat(id_of(&content)).await, Ok(None));

        let (reach, reached) = oneshot::channel();
        let endless = stream::once(async move {
            let _ = reach.send(());
            future::pending().await
        });
        let abandoned = on.blobs.put(incoming(&content).chain(endless).boxed());
        let outcome = future::select(abandoned, reached).await;
        assert!(matches!(outcome, Either::Right(_)), "all of it was taken, but not its end");
        drop(outcome);
        assert_eq!(on.blobs.stat(id_of(&content)).await, Ok(None));
    }
    assert_eq!(files(&on.objects), Vec::<PathBuf>::new(), "nothing lies around");
}

async fn content_beyond_the_limit_is_refused(on: &Fixture, bytes_max: usize) {
    let content = sample(bytes_max + 1, 9);
    let refused = Err(BlobError::TooLarge { bytes_max: bytes_max as u64 });
    assert_eq!(on.blobs.put(incoming(&content)).await, refused);
    assert_eq!(files(&on.objects), Vec::<PathBuf>::new());
    assert!(on.blobs.put(incoming(&content[1..])).await.is_ok(), "exactly the limit is fine");
}

async fn damage_never_passes_unseen(on: &Fixture) {
    for len in [1, 1_000_000] {
        let content = sample(len, 10);
        let id = id_of(&content);
        let file = file_of(&on.objects, id);
        let mut flipped = content.clone();
        flipped[len / 2] ^= 1;
        let longer = [content.as_slice(), b"x"].concat();
        for damaged in [flipped.as_slice(), &content[..len - 1], &longer] {
            assert!(on.blobs.put(incoming(&content)).await.is_ok(), "a second put repairs");
            assert!(all(on.blobs.get(id).await.unwrap()).await == Ok(content.clone()));
            std::fs::write(&file, damaged).unwrap();
            let pieces: Vec<_> = on.blobs.get(id).await.unwrap().content.collect().await;
            let whole: usize = pieces.iter().flatten().map(Bytes::len).sum();
            assert!(whole == 0 || whole < damaged.len(), "the last piece is held back");
            assert_eq!(pieces.last(), Some(&Err(BlobError::Damaged(id))));
            assert_eq!(pieces.iter().filter(|piece| piece.is_err()).count(), 1);
        }
    }
}

async fn a_link_lives_no_longer_than_allowed(on: &Fixture) {
    let content = sample(10, 11);
    let now = Timestamp::from_micros(1_700_000_000_000_000);
    assert!(on.blobs.put(incoming(&content)).await.is_ok());
    for (asked, given) in
        [(60, 60), (0, 1), (PRESIGN_SECONDS_MAX, PRESIGN_SECONDS_MAX), (u64::MAX, PRESIGN_SECONDS_MAX)]
    {
        let link = on.blobs.presign(id_of(&content), asked, now).await;
        let link = link.unwrap();
        assert_eq!(link.expires_at, now.plus_seconds(given as i64), "{asked} seconds asked for");
        assert!(link.url.starts_with("http"), "{}", link.url);
    }
}
