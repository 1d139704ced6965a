//! Downloads in flight: slow readers, slow stores, shutdown.

use crate::support::{RequestGate, TestServer, client, edge, limits, serve_with_limits, served};
use async_trait::async_trait;
use bytes::Bytes;
use chimera_api::{Edge, ServerLimits};
use chimera_core::id::BlobId;
use chimera_core::ledger::Digest32;
use chimera_core::time::Timestamp;
use chimera_engine::flow::port::{
    Blob, BlobError, BlobStat, Blobs, DownloadStream, InvalidLink, PresentedLink, PresignedUrl, UploadStream,
};
use chimera_engine::port::{Outage, Unavailable};
use futures::{StreamExt, stream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;

const PIECE: usize = 64 * 1024;

type MakeStream = Box<dyn Fn() -> DownloadStream + Send + Sync>;

/// One blob of a given size that is made while it is read; every link opens it.
struct GeneratedBlob {
    size: u64,
    make: MakeStream,
}

#[async_trait]
impl Blobs for GeneratedBlob {
    async fn get(&self, id: BlobId) -> Result<Blob, BlobError> {
        Ok(Blob { stat: BlobStat { id, size: self.size }, content: (self.make)() })
    }

    fn check_link(&self, _: &PresentedLink<'_>, _: Timestamp) -> Result<(), InvalidLink> {
        Ok(())
    }

    async fn put(&self, _: UploadStream) -> Result<BlobStat, BlobError> {
        Err(BlobError::Interrupted)
    }

    async fn stat(&self, id: BlobId) -> Result<Option<BlobStat>, BlobError> {
        Ok(Some(BlobStat { id, size: self.size }))
    }

    async fn ids(&self, _: u8) -> Result<Vec<BlobId>, BlobError> {
        Ok(Vec::new())
    }

    async fn delete(&self, _: BlobId) -> Result<(), BlobError> {
        Ok(())
    }

    async fn presign(&self, id: BlobId, _: u64, _: Timestamp) -> Result<PresignedUrl, BlobError> {
        Err(BlobError::NotFound(id))
    }

    async fn ready(&self) -> Result<(), BlobError> {
        Ok(())
    }
}

fn with(size: u64, make: impl Fn() -> DownloadStream + Send + Sync + 'static) -> Edge {
    edge().with_blobs(Arc::new(GeneratedBlob { size, make: Box::new(make) }))
}

fn id() -> BlobId {
    BlobId::new(Digest32([7; 32]))
}

fn link() -> String {
    format!("/artifacts/{}?expires=1&signature=00", id().hex())
}

fn piece() -> Result<Bytes, BlobError> {
    Ok(Bytes::from_static(&[b'x'; PIECE]))
}

/// A first piece at once, a second one after `pause`.
fn two_pieces<F: Future<Output = ()> + Send + 'static>(pause: F) -> DownloadStream {
    let second = async move {
        pause.await;
        piece()
    };
    stream::iter([piece()]).chain(stream::once(second)).boxed()
}

async fn fetch(server: &TestServer) -> reqwest::Response {
    let answer = client().get(server.url(&link())).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    answer
}

#[tokio::test]
async fn who_does_not_read_holds_little_memory_and_is_cut_off() {
    let (pulled, dropped) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
    struct Dropped(Arc<Notify>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }
    let (count, notice) = (pulled.clone(), dropped.clone());
    let edge = with(1 << 30, move || {
        let state = (count.clone(), Dropped(notice.clone()));
        let pieces = stream::unfold(state, |state| async move {
            state.0.fetch_add(PIECE as u64, Ordering::Relaxed);
            Some((piece(), state))
        });
        pieces.boxed()
    });
    let short = ServerLimits { header_timeout: Duration::from_millis(200), ..limits() };
    let server = serve_with_limits(edge, short).await;
    let mut stream = server.connect().await;
    stream.write_all(format!("GET {} HTTP/1.1\r\nhost: x\r\n\r\n", link()).as_bytes()).await.unwrap();
    let cut = tokio::time::timeout(Duration::from_secs(20), dropped.notified()).await;
    assert!(cut.is_ok(), "somebody who reads nothing was served on and on");
    let pulled = pulled.load(Ordering::Relaxed);
    // What the kernel holds on both ends of a local connection is the most of it.
    assert!(pulled < 32 << 20, "{pulled} bytes were read for nobody");
    drop(stream);
}

/// An edge with a blob of two pieces, the second of which comes when the gate is opened.
fn gated() -> (Edge, RequestGate) {
    let gate = RequestGate::default();
    let held = gate.clone();
    let edge = with(2 * PIECE as u64, move || {
        let held = held.clone();
        two_pieces(async move { held.open.notified().await })
    });
    (edge, gate)
}

#[tokio::test]
async fn a_long_download_outlives_the_time_limit_of_a_request() {
    let (edge, gate) = gated();
    let server = served(edge.with_request_timeout(Duration::from_millis(400))).await;
    let download = fetch(&server).await;
    let meanwhile = client().get(server.url("/held")).send().await.unwrap();
    assert_eq!(crate::errors::problem(meanwhile).await["error"]["code"], "REQUEST_TIMEOUT");
    gate.open.notify_one();
    assert_eq!(download.bytes().await.unwrap().len(), 2 * PIECE);
}

#[tokio::test]
async fn a_store_that_does_not_begin_in_time_is_given_up() {
    let edge = with(1, || stream::pending().boxed()).with_request_timeout(Duration::from_millis(20));
    let server = served(edge).await;
    let answer = client().get(server.url(&link())).send().await.unwrap();
    let body = crate::errors::problem(answer).await;
    assert_eq!(body["error"]["code"], "REQUEST_TIMEOUT");
}

#[tokio::test]
async fn on_stop_a_running_download_finishes() {
    let (edge, gate) = gated();
    let mut server = served(edge).await;
    let answer = fetch(&server).await;
    server.begin_stop();
    gate.open.notify_one();
    assert_eq!(answer.bytes().await.unwrap().len(), 2 * PIECE);
    assert_eq!(server.ended().await.cut, 0);
}

#[tokio::test]
async fn a_download_past_the_grace_time_is_cut_and_does_not_look_whole() {
    let edge = with(2 * PIECE as u64, || two_pieces(std::future::pending()));
    let short = ServerLimits { shutdown_grace: Duration::from_millis(20), ..limits() };
    let mut server = serve_with_limits(edge, short).await;
    let answer = fetch(&server).await;
    server.begin_stop();
    assert!(answer.bytes().await.is_err());
    assert_eq!(server.ended().await.cut, 1);
}

/// The edge doesn't take the store's word for it.
#[tokio::test]
async fn content_that_is_shorter_or_longer_than_announced_never_looks_whole() {
    let pieces = |count: usize| stream::iter((0..count).map(|_| piece())).boxed();
    for (count, size) in [(2, 3 * PIECE), (3, 2 * PIECE), (3, 2 * PIECE + 1), (2, 2 * PIECE + 1)] {
        let server = served(with(size as u64, move || pieces(count))).await;
        let taken = fetch(&server).await.bytes().await;
        assert!(taken.is_err(), "{count} pieces looked like {size} bytes");
    }
    let broken = || {
        stream::iter([piece(), piece(), Err(BlobError::Unavailable(Unavailable::new(Outage::Transient, "gone")))])
            .boxed()
    };
    let server = served(with(2 * PIECE as u64, broken)).await;
    assert!(fetch(&server).await.bytes().await.is_err());
    let server = served(with(2 * PIECE as u64, move || pieces(2))).await;
    assert_eq!(fetch(&server).await.bytes().await.unwrap().len(), 2 * PIECE);
}
