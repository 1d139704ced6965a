//! `chimera bench door`: the HTTP door in front of the benchmark's workflow, for a load generator.
//!
//! Whoever reaches it may call it, so it listens on a loopback address only, and what it writes is
//! removed at the end.

use super::bench_flow::{choose, workflow};
use super::{Scene, print};
use crate::cli::BenchStore;
use crate::compose::{Ambient, FlowBench, operator};
use crate::failure::{Failure, Outcome};
use crate::home::Home;
use crate::serve::{Signals, listen};
use chimera_api::{Edge, ServerLimits};
use chimera_core::error::Code;
use chimera_engine::access::Doorkeeper;
use serde_json::json;
use std::net::SocketAddr;
use std::process::ExitCode;

pub(crate) async fn door(scene: &Scene<'_>, at: SocketAddr, store: Option<BenchStore>) -> Outcome<ExitCode> {
    if !at.ip().is_loopback() {
        return Err(Failure::new(Code::ConfigInvalid, "this door is for loopback addresses only"));
    }
    let mut config = scene.loaded.config.clone();
    choose(&mut config, store)?;
    let home = Home::take(&config.data_dir)?;
    home.remove_scratch()?;
    let signals = Signals::listen()?;
    let ambient = Ambient::new();
    let (listener, address) = listen(at).await?;
    let bench = FlowBench::open(&config, &ambient).await?;
    let permit = operator();
    let applied = bench.flow.workflows().apply(&permit, "three", &workflow().to_string()).await;
    applied.map_err(|error| Failure::new(Code::Internal, error.to_string()))?;
    let edge = Edge::new(ambient.clock.clone(), ambient.random.clone())
        .with_flow(bench.flow.clone())
        .with_door(Doorkeeper::open(permit.tenant()))
        .with_request_timeout(config.request_timeout);
    let url = format!("http://{address}/workflows/three/call");
    print(&(if scene.json { json!({ "url": url }).to_string() } else { url } + "\n"))?;
    let limits = ServerLimits {
        connections_max: config.connections_max,
        header_timeout: config.header_timeout,
        shutdown_grace: config.shutdown_grace,
    };
    let stop = async {
        let _ = signals.first.await;
        edge.begin_stopping();
    };
    chimera_api::serve(listener, chimera_api::router(edge.clone()), limits, stop).await;
    bench.close().await;
    Ok(ExitCode::SUCCESS)
}
