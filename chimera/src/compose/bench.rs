//! Scratch stores for benchmarks: a folder below the data folder or a schema in the configured database,
//! removed at the end.

use super::access::{self, ExampleActor};
use super::{Ambient, flow, records, resolve_setting, store_facts};
use crate::bench::{BenchConditions, BenchSubject, BenchWork};
use crate::cli::BenchLimit;
use crate::config::{Config, SensitiveText};
use crate::data_folder;
use crate::failure::{Failure, Outcome};
use async_trait::async_trait;
use chimera_connect::act::WordPlanner;
use chimera_connect::flow::local_tools;
use chimera_core::error::{Code, io_reason};
use chimera_core::flow::work::NoJobs;
use chimera_core::job::executions::ExecutionLog;
use chimera_core::secret::Secret;
use chimera_engine::access::Access;
use chimera_engine::act::rules::Rules;
use chimera_engine::act::{AccessPolicy, Actions};
use chimera_engine::flow::call_slots::CallLimits;
use chimera_engine::flow::{Asking, Flow, FlowPorts, ProcessLog, TenantBlobs, ToolRegistry};
use chimera_engine::port::{Clock, NoSpans, Records};
use chimera_storage::bench::{BareLoad, ScratchSchema, Workload, bare_postgres, bare_sqlite, drive};
use chimera_storage::blob::{FolderBlobs, LinkSigner};
use chimera_storage::bus::LocalBus;
use chimera_storage::records::migrate_sqlite;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub(crate) async fn bench_subject(config: &Config, ambient: &Ambient) -> Outcome<Arc<dyn BenchSubject>> {
    let workload = Workload::new(Arc::clone(&ambient.clock), Arc::clone(&ambient.random));
    let (config, scratch) = scratch(config, ambient).await?;
    let store = records(&config, ambient, "bench").await?;
    let facts = store_facts(&config).await?;
    let lanes = if config.database_url.is_some() { config.lanes } else { 1 };
    let setting = BenchConditions { record_store: facts.kind, fsync: facts.fsync, lanes };
    Ok(Arc::new(StoreBench { store, workload, scratch, setting, clock: Arc::clone(&ambient.clock) }))
}

/// Creates a scratch store, and the settings that use it.
async fn scratch(config: &Config, ambient: &Ambient) -> Outcome<(Config, ScratchStore)> {
    let id = ambient.random.opaque_id();
    let folder = config.data_dir.join(format!("{}{id}", data_folder::SCRATCH_PREFIX));
    let mut config = Config { data_dir: folder.clone(), mark_file: None, ..config.clone() };
    let scratch = match &config.database_url {
        None => ScratchStore::Folder(folder),
        Some(url) => {
            let schema = ScratchSchema::create(&resolve_setting(&config, "database_url", url).await?, &id).await?;
            tracing::info!(schema = schema.name(), "the benchmark works in a schema of its own");
            config.database_url = Some(SensitiveText(schema.url()));
            ScratchStore::Schema(schema, folder)
        }
    };
    Ok((config, scratch))
}

/// The flow engine on a store of its own, for a benchmark.
pub(crate) struct FlowBench {
    pub(crate) flow: Flow,
    /// The way in, for one actor with its key.
    pub(crate) actions: Arc<Actions>,
    pub(crate) actor: ExampleActor,
    pub(crate) setting: BenchConditions,
    records: Arc<dyn Records>,
    scratch: ScratchStore,
}

impl FlowBench {
    /// Opens the store, with the local tools alone.
    pub(crate) async fn open(config: &Config, ambient: &Ambient, limit: Option<BenchLimit>) -> Outcome<Self> {
        let (config, scratch) = scratch(config, ambient).await?;
        let records = records(&config, ambient, "bench").await?;
        let facts = store_facts(&config).await?;
        let alone = config.database_url.is_none();
        let setting = BenchConditions {
            record_store: facts.kind,
            fsync: facts.fsync,
            lanes: if alone { 1 } else { config.lanes },
        };
        let key = Secret::new(ambient.random.salt().to_vec());
        let links = LinkSigner::new("http://localhost", &key);
        let links = links.ok_or_else(|| Failure::new(Code::Internal, "the key of signed links is empty"))?;
        let blobs = FolderBlobs::open(config.data_dir.join("blobs"), links, Arc::clone(&ambient.random));
        let mut registry = ToolRegistry::default();
        let blobs = TenantBlobs::new(Arc::new(blobs), Arc::clone(&records));
        for tool in local_tools(blobs).map_err(|error| Failure::new(Code::Internal, error.to_string()))? {
            registry.add(tool).map_err(|error| Failure::new(Code::Internal, error.to_string()))?;
        }
        records.ready().await?;
        flow::ensure_default_tenant(ambient, &*records).await?;
        let actor = access::bench_actor(ambient);
        let directory = access::bench_directory(ambient, &records, &actor, alone).await?;
        let flow = Flow::new(FlowPorts {
            call_log: Arc::new(ProcessLog),
            records: Arc::clone(&records),
            clock: Arc::clone(&ambient.clock),
            random: Arc::clone(&ambient.random),
            bus: Arc::new(LocalBus::new()),
            notifier: flow::silent_notifier(ambient),
            spans: Arc::new(NoSpans),
            jobs: Arc::new(NoJobs),
            asking: Asking::default(),
            registry: Arc::new(registry),
            projection: Arc::new(ExecutionLog),
            policy: Arc::new(AccessPolicy::new(Arc::clone(&directory), rules(limit)?)),
            slots: CallLimits::default(),
            alone,
        });
        let authenticator = access::authenticator(&config, &directory, access::counters(&config, ambient).await?);
        let actions = Arc::new(Actions::new(
            Arc::new(Access::new(directory, authenticator)),
            flow.clone(),
            Arc::new(WordPlanner),
        ));
        Ok(Self { flow, actions, actor, setting, records, scratch })
    }

    /// Closes the store and removes what was written.
    pub(crate) async fn close(self) {
        self.flow.stop();
        self.records.close().await;
        self.scratch.remove().await;
    }
}

/// A limit on every step that is never reached.
fn rules(limit: Option<BenchLimit>) -> Outcome<Rules> {
    let Some(limit) = limit else { return Ok(Rules::default()) };
    let by = match limit {
        BenchLimit::Shared => "tenant",
        BenchLimit::Own => "/value",
    };
    let at_most = json!({"count": 1_000_000_000, "per": "1h", "by": by});
    let rule = json!({"name": "bench", "tool": "*", "effect": "limit", "at_most": at_most});
    let rule = serde_json::from_value(rule).map_err(|error| Failure::new(Code::Internal, error.to_string()))?;
    Ok(Rules(vec![rule]))
}

enum ScratchStore {
    Folder(PathBuf),
    /// A schema, and the folder of its marks.
    Schema(ScratchSchema, PathBuf),
}

struct StoreBench {
    store: Arc<dyn Records>,
    workload: Workload,
    scratch: ScratchStore,
    setting: BenchConditions,
    clock: Arc<dyn Clock>,
}

impl StoreBench {
    fn since(&self, start: i64) -> Duration {
        Duration::from_micros(self.clock.steady().micros().saturating_sub(start).unsigned_abs())
    }
}

#[async_trait]
impl BenchSubject for StoreBench {
    fn setting(&self) -> BenchConditions {
        self.setting
    }

    async fn store(&self, writers: usize, transactions: usize) -> Outcome<BenchWork> {
        let mut start = 0;
        let mark = || start = self.clock.steady().micros();
        let driven = drive(&self.store, &self.workload, writers, transactions, mark).await?;
        Ok(BenchWork { transactions: driven.txs, commits: driven.batches, time: self.since(start) })
    }

    async fn bare(&self, writers: usize, transactions: usize) -> Outcome<BenchWork> {
        let mut start = 0;
        let mark = || start = self.clock.steady().micros();
        // The lanes work side by side, so each takes its share of the writers, as in the store.
        let lanes = self.setting.lanes.min(writers);
        let batch = writers.div_ceil(lanes);
        let load = BareLoad { batch, batches: transactions.div_ceil(batch * lanes) };
        let transactions = match &self.scratch {
            ScratchStore::Schema(schema, _) => bare_postgres(&schema.url(), &self.workload, lanes, load, mark).await?,
            ScratchStore::Folder(folder) => {
                let folder = folder.join(format!("bare-{batch}"));
                migrate_sqlite(&folder)?;
                bare_sqlite(&folder, &self.workload, load, mark)?
            }
        };
        Ok(BenchWork { transactions, commits: lanes * load.batches, time: self.since(start) })
    }

    async fn close(&self) {
        self.store.close().await;
        self.scratch.remove().await;
    }
}

impl ScratchStore {
    async fn remove(&self) {
        let removed = match self {
            Self::Folder(folder) => std::fs::remove_dir_all(folder).map_err(|error| io_reason(&error)),
            Self::Schema(schema, folder) => {
                // The mark file is useless without its schema, and may not exist.
                let _ = std::fs::remove_dir_all(folder);
                schema.remove().await.map_err(|error| error.to_string())
            }
        };
        // Scratch that can't be removed is the operator's to see.
        if let Err(error) = removed {
            tracing::warn!(error, "what the benchmark wrote could not be removed");
        }
    }
}

impl From<chimera_storage::bench::BenchError> for Failure {
    fn from(error: chimera_storage::bench::BenchError) -> Self {
        let causes = std::iter::successors(std::error::Error::source(&error), |cause| cause.source());
        let cause = causes.last().map_or(String::new(), |cause| format!(": {cause}"));
        Self::new(Code::StoreUnavailable, format!("{error}{cause}"))
    }
}
