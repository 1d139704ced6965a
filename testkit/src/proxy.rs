//! A TCP relay that can cut a connection at a chosen moment.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// When the next connection that sends the marker is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Never.
    Never = 0,
    /// Before the marker reaches the server.
    BeforeMarker = 1,
    /// After the server has answered the marker, before the answer reaches the client.
    AfterMarker = 2,
}

/// The relay. It lives as long as its runtime.
#[derive(Clone)]
pub struct Proxy {
    address: SocketAddr,
    cut: Arc<AtomicU8>,
}

impl Proxy {
    /// Relays to `target`; `marker` is what a cut waits for in the client's bytes.
    pub async fn start(target: SocketAddr, marker: &'static [u8]) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let proxy = Self { address: listener.local_addr()?, cut: Arc::new(AtomicU8::new(0)) };
        let cut = Arc::clone(&proxy.cut);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(relay(client, target, marker, Arc::clone(&cut)));
            }
        });
        Ok(proxy)
    }

    /// Where clients connect.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Arms the next cut; it is used up by the first marker.
    pub fn arm(&self, cut: Cut) {
        self.cut.store(cut as u8, Ordering::SeqCst);
    }

    /// Whether the cut has happened.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.cut.load(Ordering::SeqCst) == 0
    }
}

async fn relay(mut client: TcpStream, target: SocketAddr, marker: &'static [u8], cut: Arc<AtomicU8>) {
    let Ok(mut server) = TcpStream::connect(target).await else { return };
    let (mut up, mut down) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    loop {
        tokio::select! {
            biased;
            read = client.read(&mut up) => {
                let Ok(n @ 1..) = read else { return };
                let armed = cut.load(Ordering::SeqCst);
                if armed != 0 && up[..n].windows(marker.len()).any(|window| window == marker) {
                    if armed == Cut::AfterMarker as u8 {
                        // The server gets it and answers; the answer goes nowhere.
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
