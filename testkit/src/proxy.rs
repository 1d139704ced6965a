//! A TCP relay that cuts a connection, or replaces bytes, when it sees a marker.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// When to cut the next connection that sends the marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    Never = 0,
    /// Before the marker reaches the server.
    BeforeMarker = 1,
    /// After the server has answered, before the answer reaches the client.
    AfterMarker = 2,
}

/// The relay. It lives as long as its runtime.
#[derive(Clone)]
pub struct Proxy {
    address: SocketAddr,
    cut: Arc<AtomicU8>,
    replacement: Replacement,
}

/// The replacement for the next marker.
type Replacement = Arc<Mutex<Option<&'static [u8]>>>;

impl Proxy {
    /// Relays to `target`, and looks for `marker` in the client's bytes.
    pub async fn start(target: SocketAddr, marker: &'static [u8]) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let proxy = Self { address: listener.local_addr()?, cut: Arc::default(), replacement: Arc::default() };
        let (cut, instead) = (Arc::clone(&proxy.cut), Arc::clone(&proxy.replacement));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(relay(client, target, marker, Arc::clone(&cut), Arc::clone(&instead)));
            }
        });
        Ok(proxy)
    }

    /// Where clients connect.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Arms a cut. The next marker triggers it once.
    pub fn arm(&self, cut: Cut) {
        self.cut.store(cut as u8, Ordering::SeqCst);
    }

    /// Replaces the next marker with `other`, which must have the same length.
    pub fn replace_next(&self, other: &'static [u8]) {
        *lock(&self.replacement) = Some(other);
    }

    /// Whether nothing is armed any more.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.cut.load(Ordering::SeqCst) == 0 && lock(&self.replacement).is_none()
    }
}

fn lock(instead: &Replacement) -> std::sync::MutexGuard<'_, Option<&'static [u8]>> {
    instead.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn relay(
    mut client: TcpStream,
    target: SocketAddr,
    marker: &'static [u8],
    cut: Arc<AtomicU8>,
    instead: Replacement,
) {
    let Ok(mut server) = TcpStream::connect(target).await else { return };
    let (mut up, mut down) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    loop {
        tokio::select! {
            biased;
            read = client.read(&mut up) => {
                let Ok(n @ 1..) = read else { return };
                let found = up[..n].windows(marker.len()).position(|window| window == marker);
                if let Some(at) = found && let Some(other) = lock(&instead).take() {
                    up[at..at + marker.len()].copy_from_slice(other);
                }
                let armed = cut.load(Ordering::SeqCst);
                if armed != 0 && found.is_some() {
                    if armed == Cut::AfterMarker as u8 {
                        // The server gets it and answers; the answer is dropped.
                        let _ = server.write_all(&up[..n]).await;
                        let _ = server.read(&mut down).await;
                    }
                    cut.store(0, Ordering::SeqCst);
                    return;
                }
                if server.write_all(&up[..n]).await.is_err() { return }
            }
            read = server.read(&mut down) => {
                let Ok(n @ 1..) = read else { return };
                if client.write_all(&down[..n]).await.is_err() { return }
            }
        }
    }
}
