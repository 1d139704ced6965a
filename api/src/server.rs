//! Connections: how many, how slow, and how they end.
//!
//! Connections beyond the limit wait in the kernel's queue, and those of an address that has too many
//! are refused. A client that dawdles with its request
//! head, keeps an idle connection open too long, or doesn't take its answer, is cut off. On stop
//! nobody new is let in, every request that has begun may finish, to the last byte of its answer,
//! within the grace time, and what is left then is dropped.
//! Only HTTP/1.1 is spoken: its head timer covers the whole life of a connection.

mod direct;
mod places;
mod stall;

pub use direct::Direct;

use axum::{Extension, Router};
use chimera_core::access::address::Network;
use chimera_core::error::io_reason;
use chimera_core::limits::{ACCEPT_PAUSE, HEAD_BYTES_MAX};
use futures::FutureExt;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use places::{Place, Places};
use stall::Impatient;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

/// The limits of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Connections at one time.
    pub connections_max: usize,
    /// Of these, connections from one address; one is left for others in any case.
    pub connections_per_address_max: usize,
    /// Addresses of proxies, which have no limit of their own.
    pub proxies: Arc<[Network]>,
    /// How long a client may take to send a request head, how long a connection may idle, and how
    /// long an answer may wait for a client that takes nothing of it.
    pub header_timeout: Duration,
    /// How long requests may run on after the stop.
    pub shutdown_grace: Duration,
}

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    /// Many callers share the address.
    pub(crate) is_proxy: bool,
}

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were cut because the grace time was over.
    pub cut: usize,
}

/// Serves until `stop` completes, then lets requests finish.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: ServerLimits,
    stop: impl Future<Output = ()>,
) -> Drained {
    let grace = limits.shutdown_grace;
    serve_until(listener, router, limits, stop.map(|()| grace)).await
}

/// The same; `stop` says how long requests may still take, whatever the limits say.
pub async fn serve_until(
    listener: TcpListener,
    router: Router,
    limits: ServerLimits,
    stop: impl Future<Output = Duration>,
) -> Drained {
    let slots = Arc::new(Semaphore::new(limits.connections_max));
    let ServerLimits { connections_max, connections_per_address_max, proxies, .. } = limits;
    let places = Arc::new(Places::new(connections_per_address_max, connections_max, proxies));
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
                        connections.spawn(converse(stream, held, router, limits.header_timeout, stopping.subscribe()));
                    }
                    None => {
                        connections.spawn(Arc::clone(&places).refuse(stream));
                    }
                }
                Err(error) => {
                    tracing::warn!(reason = io_reason(&error), "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    drop(listener);
    stopping.send_replace(true);
    let drained = tokio::time::timeout(grace, async { while connections.join_next().await.is_some() {} });
    if drained.await.is_ok() {
        return Drained { cut: 0 };
    }
    let cut = connections.len();
    connections.shutdown().await;
    Drained { cut }
}

async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, IpAddr, OwnedSemaphorePermit)> {
    let slot = slots.clone().acquire_owned().await.map_err(std::io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    Ok((stream, peer.ip(), slot))
}

async fn converse(
    stream: TcpStream,
    held: (OwnedSemaphorePermit, Place),
    router: Router,
    header_timeout: Duration,
    mut stopping: watch::Receiver<bool>,
) {
    let _ = stream.set_nodelay(true);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(Impatient::new(stream, header_timeout)), TowerToHyperService::new(router))
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
        tracing::debug!(reason = %error, "a connection ended early");
    }
    drop(held);
}
