//! Connections: limits, timeouts and graceful shutdown.
//!
//! Connections beyond the total limit wait in the kernel's accept queue; those beyond the limit of their
//! address are refused. A client is disconnected when it sends its request head too slowly, keeps an idle
//! connection open too long, or does not read its response. On shutdown no new connections are accepted,
//! requests in flight may finish within the grace period, and the rest are dropped.
//! Only HTTP/1.1 is supported: its header timer covers the whole life of a connection.

mod connection_limit;
mod in_process;
mod write_timeout;

pub use in_process::InProcessClient;

use axum::{Extension, Router};
use chimera_core::access::address::Network;
use chimera_core::error::io_reason;
use chimera_core::limits::{ACCEPT_PAUSE, HEAD_BYTES_MAX};
use connection_limit::{ConnectionLimiter, ConnectionSlot};
use futures::FutureExt;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use write_timeout::WriteTimeoutStream;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    pub connections_max: usize,
    /// Concurrent connections from one address. One connection is always left for other addresses.
    pub connections_per_address_max: usize,
    /// Proxies are exempt from the limit per address.
    pub proxies: Arc<[Network]>,
    /// Applies to three waits: for a request head, on an idle connection, and for a client that reads
    /// nothing of its response.
    pub header_timeout: Duration,
    /// How long requests in flight may run after shutdown begins.
    pub shutdown_grace: Duration,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    /// Many callers share a proxy's address.
    pub(crate) is_proxy: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShutdownReport {
    /// Connections dropped at the end of the grace period.
    pub cut: usize,
}

/// Serves until `stop` completes, then lets requests in flight finish.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: ServerLimits,
    stop: impl Future<Output = ()>,
) -> ShutdownReport {
    let grace = limits.shutdown_grace;
    serve_until(listener, router, limits, stop.map(|()| grace)).await
}

/// Like [`serve`], but `stop` returns the grace period, which overrides the one in `limits`.
pub async fn serve_until(
    listener: TcpListener,
    router: Router,
    limits: ServerLimits,
    stop: impl Future<Output = Duration>,
) -> ShutdownReport {
    let slots = Arc::new(Semaphore::new(limits.connections_max));
    let ServerLimits { connections_max, connections_per_address_max, proxies, .. } = limits;
    let places = Arc::new(ConnectionLimiter::new(connections_per_address_max, connections_max, proxies));
    let (stopping, _) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    let grace = loop {
        tokio::select! {
            biased;
            grace = &mut stop => break grace,
            Some(_) = connections.join_next() => {}
            accepted = accept(&listener, &slots) => match accepted {
                Ok((stream, address, slot)) => match places.take(address) {
                    Some(place) => {
                        let peer = Peer { address, is_proxy: place.is_proxy() };
                        let router = router.clone().layer(Extension(peer));
                        let held = (slot, place);
                        connections.spawn(serve_connection(stream, held, router, limits.header_timeout, stopping.subscribe()));
                    }
                    None => {
                        connections.spawn(Arc::clone(&places).refuse(stream));
                    }
                }
                Err(error) => {
                    tracing::warn!(reason = io_reason(&error), "failed to accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    drop(listener);
    stopping.send_replace(true);
    let drained = tokio::time::timeout(grace, async { while connections.join_next().await.is_some() {} });
    if drained.await.is_ok() {
        return ShutdownReport { cut: 0 };
    }
    let cut = connections.len();
    connections.shutdown().await;
    ShutdownReport { cut }
}

async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, IpAddr, OwnedSemaphorePermit)> {
    let slot = slots.clone().acquire_owned().await.map_err(std::io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    Ok((stream, peer.ip(), slot))
}

async fn serve_connection(
    stream: TcpStream,
    held: (OwnedSemaphorePermit, ConnectionSlot),
    router: Router,
    header_timeout: Duration,
    mut stopping: watch::Receiver<bool>,
) {
    let _ = stream.set_nodelay(true);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(
            TokioIo::new(WriteTimeoutStream::new(stream, header_timeout)),
            TowerToHyperService::new(router),
        )
        .with_upgrades();
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = async { drop(stopping.wait_for(|stopping| *stopping).await) } => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(reason = %error, "connection ended with an error");
    }
    drop(held);
}
