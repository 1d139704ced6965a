//! A running server, from the lock to the last flushed line.
//!
//! Order matters at both ends. Start: lock, keys, telemetry, stores, listener, then the word that
//! it is ready. Stop: readiness says no, no new connection, running requests finish, stores close,
//! spans are sent.

use crate::compose::{self, Ambient};
use crate::config::Config;
use crate::failure::{Failure, Outcome};
use crate::home::Home;
use crate::telemetry::{self, Terminal};
use chimera_api::{Edge, ServerLimits};
use chimera_core::error::Code;
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

/// The exit status after a second signal.
const EXIT_IMPATIENT: i32 = 130;

/// Runs until a signal; `ready` is told the folder and the address once requests are served.
pub(crate) async fn serve(
    config: &Config,
    terminal: Terminal,
    ready: impl FnOnce(&Home, SocketAddr, &Ambient) -> Outcome,
) -> Outcome {
    let ambient = Ambient::new();
    let stop = stop_signal()?;
    let home = Home::take(&config.data_dir)?;
    let seed = compose::signing_seed(config, &home, &ambient).await?;
    let telemetry = telemetry::start(config, terminal, ambient.clock.clone(), &compose::redactor(config))?;
    let parts = compose::open(config, &ambient, seed).await?;
    let (listener, address) = listen(config.listen).await?;
    let mut edge = Edge::new(ambient.clock.clone(), ambient.random.clone())
        .with_checks(parts.checks.clone())
        .with_metrics(telemetry.render_metrics())
        .with_request_timeout(config.request_timeout);
    if let Some(link) = telemetry.link() {
        edge = edge.with_link(link);
    }
    let limits = ServerLimits {
        connections_max: config.connections_max,
        header_timeout: config.header_timeout,
        shutdown_grace: config.shutdown_grace,
    };
    ready(&home, address, &ambient)?;
    tracing::info!(address = %address, "serving");
    let drained = chimera_api::serve(listener, chimera_api::router(edge.clone()), limits, async {
        let _ = stop.await;
        tracing::info!("stopping: running requests may finish");
        edge.begin_stopping();
    })
    .await;
    if drained.cut > 0 {
        tracing::warn!(connections = drained.cut, "requests were cut because the grace time was over");
    }
    parts.close().await;
    tracing::info!("stopped");
    telemetry.flush().await;
    Ok(())
}

async fn listen(address: SocketAddr) -> Outcome<(TcpListener, SocketAddr)> {
    let failed = |error: std::io::Error| {
        Failure::new(Code::ConfigInvalid, format!("can't listen at {address}: {}", error.kind()))
            .hint("choose another address with --listen; port 0 takes a free one")
    };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// Completes at the first SIGINT or SIGTERM; a second one ends the process on the spot.
fn stop_signal() -> Outcome<oneshot::Receiver<()>> {
    let failed =
        |error: std::io::Error| Failure::new(Code::Internal, format!("can't listen to signals: {}", error.kind()));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let (send, receive) = oneshot::channel();
    tokio::spawn(async move {
        either(&mut interrupt, &mut terminate).await;
        let _ = send.send(());
        either(&mut interrupt, &mut terminate).await;
        #[allow(clippy::disallowed_methods)] // whoever asks twice doesn't want to wait for anything
        std::process::exit(EXIT_IMPATIENT);
    });
    Ok(receive)
}

async fn either(one: &mut Signal, other: &mut Signal) {
    tokio::select! {
        _ = one.recv() => {}
        _ = other.recv() => {}
    }
}
