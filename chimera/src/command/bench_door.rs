//! `chimera bench door`: serves the benchmark workflow over HTTP, for a load generator.
//!
//! There is one actor; its token and the signature of the one request body are printed. All data is removed
//! at the end.

use super::bench_flow::{select_store, workflow};
use super::{CommandContext, print};
use crate::cli::BenchStore;
use crate::compose::{Ambient, FlowBench, operator};
use crate::data_folder::DataFolder;
use crate::failure::{Failure, Outcome};
use crate::serve::{self, Signals, listen};
use chimera_api::ServerLimits;
use chimera_core::error::Code;
use serde_json::json;
use std::net::SocketAddr;
use std::process::ExitCode;

pub(crate) async fn door(scene: &CommandContext<'_>, at: SocketAddr, store: Option<BenchStore>) -> Outcome<ExitCode> {
    if !at.ip().is_loopback() {
        return Err(Failure::new(Code::ConfigInvalid, "--at must be a loopback address"));
    }
    let mut config = scene.loaded.config.clone();
    select_store(&mut config, store)?;
    let home = DataFolder::lock(&config.data_dir)?;
    home.remove_scratch()?;
    let signals = Signals::listen()?;
    let ambient = Ambient::new();
    let (listener, address) = listen(&at.into()).await?;
    let bench = FlowBench::open(&config, &ambient, None).await?;
    let permit = operator();
    let applied = bench.flow.workflows().apply(&permit, "three", &workflow().to_string()).await;
    applied.map_err(|error| Failure::new(Code::Internal, error.to_string()))?;
    let edge = serve::bounded_edge(&config, &ambient).with_flow(bench.flow.clone()).with_actions(bench.actions.clone());
    let url = format!("http://{address}/act");
    let token = crate::access::token(bench.actions.access(), &bench.actor.actor)?;
    // The body alone is signed there, so that a load generator can send one request again and again.
    let body = r#"{"workflow_id":"three","wait":10}"#;
    let signature = crate::access::sign(&bench.actor.hmac_key, body);
    print(&match scene.json {
        true => format!("{}\n", json!({"url": url, "token": token, "body": body, "signature": signature})),
        false => format!("{url}\nAuthorization: Bearer {token}\nX-HMAC-Signature: {signature}\n{body}\n"),
    })?;
    // A load generator has one address.
    let limits = ServerLimits { connections_per_address_max: config.http.connections_max, ..serve::limits(&config) };
    let stop = async {
        let _ = signals.first.await;
        edge.begin_stopping();
    };
    chimera_api::serve(listener, chimera_api::router(edge.clone()), limits, stop).await;
    bench.close().await;
    Ok(ExitCode::SUCCESS)
}
