//! Puts the parts together: the only file that names concrete adapters.
//!
//! Everything else sees ports. A setting decides which adapter stands behind a port: a URL means
//! the server that it names, its absence means the data folder or this process.

use crate::ambient::{SystemClock, SystemRandom};
use crate::bench::Subject;
use crate::config::Config;
use crate::doctor::StoreFacts;
use crate::failure::{Failure, Outcome};
use crate::home::Home;
use crate::telemetry::Redactor;
use chimera_api::Check;
use chimera_core::error::Code;
use chimera_engine::port::{Clock, Random, Records};
use std::path::Path;
use std::sync::Arc;

/// Time and randomness of this machine.
#[derive(Clone)]
pub(crate) struct Ambient {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
}

impl Ambient {
    pub(crate) fn new() -> Self {
        Self { clock: Arc::new(SystemClock::default()), random: Arc::new(SystemRandom) }
    }
}

/// The seed of the key that signs the ledger: a secret if one is named, else the folder's own.
pub(crate) async fn signing_seed(config: &Config, home: &Home, ambient: &Ambient) -> Outcome<[u8; 32]> {
    match &config.signing_key {
        None => home.ledger_seed(&*ambient.random),
        Some(name) => Err(Failure::new(Code::ConfigInvalid, format!("`ledger.signing_key`: {name} is not set"))),
    }
}

/// What a server runs on.
pub(crate) struct Parts {
    /// What readiness asks.
    pub(crate) checks: Vec<Check>,
    records: Option<Arc<dyn Records>>,
}

/// Opens everything that a server needs. The ledger is signed with `seed`.
pub(crate) async fn open(config: &Config, _ambient: &Ambient, _seed: [u8; 32]) -> Outcome<Parts> {
    let mut checks = dependencies(config);
    checks.push(data_folder(&config.data_dir));
    Ok(Parts { checks, records: None })
}

impl Parts {
    /// Finishes what is queued and closes.
    pub(crate) async fn close(self) {
        if let Some(records) = self.records {
            records.close().await;
        }
    }
}

/// The record store, for reading only: it may run beside a live server.
pub(crate) async fn records_to_read(_config: &Config, _ambient: &Ambient) -> Outcome<Arc<dyn Records>> {
    Err(absent())
}

/// Brings the schema up to date; the names of what was applied, and the version.
pub(crate) async fn migrate(_config: &Config) -> Outcome<(Vec<String>, i64)> {
    Err(absent())
}

/// What the doctor wants to know about the record store.
pub(crate) async fn store_facts(_config: &Config) -> Outcome<StoreFacts> {
    Err(absent())
}

/// The record store under measurement; the caller holds the lock.
pub(crate) async fn bench_subject(_config: &Config, _ambient: &Ambient) -> Outcome<Arc<dyn Subject>> {
    Err(absent())
}

/// The services that are configured, each with a way to ask whether it answers.
pub(crate) fn dependencies(_config: &Config) -> Vec<Check> {
    Vec::new()
}

/// What keeps secrets out of logs and spans, beyond the built-in rules.
pub(crate) fn redactor(_config: &Config) -> Redactor {
    Redactor::with(Vec::new())
}

fn absent() -> Failure {
    Failure::new(Code::StoreUnavailable, "this build has no record store")
}

fn data_folder(dir: &Path) -> Check {
    let dir = dir.to_owned();
    Check::new("data_folder", move || {
        let dir = dir.clone();
        async move {
            let tried = tokio::task::spawn_blocking(move || crate::doctor::write_probe(&dir)).await;
            tried.unwrap_or(Err("the check did not finish".to_owned()))
        }
    })
}
