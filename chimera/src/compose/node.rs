//! The lifecycle of a node: prepare, begin, drain, close.
//!
//! While it is being prepared, no run is driven, so the start can simply be aborted. After that, a node must
//! be stopped in order.

use super::checks::{LoopHealth, blobs_check, clock_check, counters_check, data_folder, records_check, tools_check};
use super::intent_folder::IntentFolder;
use super::{
    Ambient, ExampleActor, access, base_url, blobs, check_signing_key, existing_signer, flow, has_local_blobs,
    record_node_event, records, signer, signing,
};
use crate::config::Config;
use crate::data_folder::DataFolder;
use crate::failure::{Failure, Outcome};
use chimera_api::ReadinessCheck;
use chimera_connect::act::WordPlanner;
use chimera_core::error::Code;
use chimera_core::json::schema::InvalidSchema;
use chimera_core::ledger::checkpoint::Signer;
use chimera_core::limits;
use chimera_core::record::Tx;
use chimera_engine::access::port::Counters;
use chimera_engine::access::{Access, Directory};
use chimera_engine::act::{Actions, Schedules};
use chimera_engine::flow::Flow;
use chimera_engine::flow::port::Blobs;
use chimera_engine::heartbeat::Heartbeat;
use chimera_engine::intent::IntentRouter;
use chimera_engine::ledger::checkpoint::{Checkpointer, Schedule};
use chimera_engine::port::{Bus, Records};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Everything a node has opened before it starts driving runs.
pub(crate) struct PreparedNode {
    node: String,
    records: Arc<dyn Records>,
    signer: Arc<Signer>,
    blobs: Arc<dyn Blobs>,
    checks: Vec<ReadinessCheck>,
    bus: Arc<dyn Bus>,
    directory: Arc<Directory>,
    counters: Option<Arc<dyn Counters>>,
    address: SocketAddr,
    webhook_seed: [u8; 32],
}

/// Opens everything that a server needs; `address` is where its own links lead.
pub(crate) async fn prepare(
    config: &Config,
    home: &DataFolder,
    ambient: &Ambient,
    address: SocketAddr,
    examples: &[ExampleActor],
) -> Outcome<PreparedNode> {
    if config.database_url.is_none() && home.lost_data() {
        tracing::warn!("there is a ledger key but no data file; if the file was removed, stop and put it back");
    }
    let node = ambient.random.opaque_id();
    let (existing, was_here) = (existing_signer(config).await?, signing::used_this_store(config));
    let records = records(config, ambient, &node).await?;
    // Before a key is created: a lost key must not be replaced.
    check_signing_key(config, existing.as_ref(), &*records, was_here).await?;
    let signer = Arc::new(signer(config, home, ambient).await?);
    let blobs = blobs(config, home, ambient, address).await?;
    let mut checks = vec![
        data_folder(&config.data_dir),
        records_check(&records),
        blobs_check(&blobs),
        clock_check(&ambient.machine),
    ];
    let counters = access::counters(config, ambient).await?;
    if config.access.refuse_without_redis {
        checks.extend(counters.iter().map(counters_check));
    }
    flow::ensure_default_tenant(ambient, &*records).await?;
    let bus = flow::bus(config, ambient).await?;
    let settings = access::directory_settings(config, home, ambient, examples).await?;
    let ports = access::directory_ports(config, home, ambient, &records, Arc::clone(&bus)).await?;
    let directory = access::directory(ports, settings).await?;
    let webhook_seed = home.webhook_seed(&*ambient.random)?;
    Ok(PreparedNode { node, records, signer, blobs, checks, bus, directory, counters, address, webhook_seed })
}

/// What a server runs on.
pub(crate) struct Node {
    pub(crate) checks: Vec<ReadinessCheck>,
    pub(crate) blobs: Arc<dyn Blobs>,
    pub(crate) actions: Arc<Actions>,
    pub(crate) schedules: Arc<Schedules>,
    pub(crate) intents: Arc<IntentRouter>,
    running: Option<flow::RunningFlow>,
    records: Arc<dyn Records>,
    ambient: Ambient,
    node: String,
    checkpoints: (watch::Sender<bool>, JoinHandle<()>),
    clock_watch: JoinHandle<()>,
}

/// Begins to run on what was prepared.
pub(crate) async fn begin(config: &Config, ambient: &Ambient, prepared: PreparedNode) -> Outcome<Node> {
    let PreparedNode { node, records, signer, blobs, mut checks, bus, directory, counters, address, webhook_seed } =
        prepared;
    // Not when a command prepares the node: it may be the one that makes the first key.
    if !directory.has_keys() {
        tracing::warn!("nobody has a key, so nobody can sign in; chimera actor add admin makes the first one");
    }
    let (stop, stopped) = watch::channel(false);
    let checkpointer = Checkpointer {
        records: Arc::clone(&records),
        signer: Arc::clone(&signer),
        trusted: config.trusted_keys.clone(),
        clock: Arc::clone(&ambient.clock),
        origin: format!("chimera/{}", signer.public_key().id()),
        pace: Schedule { seconds: seconds(config.checkpoint_interval), entries: limits::CHECKPOINT_DUE_ENTRIES },
        tick: limits::CHECKPOINT_POLL_INTERVAL,
        pulse: Heartbeat::start(ambient.clock.steady()),
    };
    let mut upkeep = LoopHealth::new(Arc::clone(&ambient.clock));
    upkeep.watch_pulse("checkpoints were", &checkpointer.pulse);
    let checkpoints = (stop, tokio::spawn(checkpointer.run(stopped)));
    let voice = flow::NotifierParts {
        base_url: base_url(config, address),
        webhook_seed,
        bus,
        directory: Arc::clone(&directory),
    };
    let mut running = flow::start(config, ambient, &records, &blobs, voice).await?;
    running.watch(&directory);
    upkeep.watch_directory(&directory);
    let authenticator = access::authenticator(config, &directory, counters);
    let access = Arc::new(Access::new(directory, authenticator));
    let actions = Arc::new(Actions::new(Arc::clone(&access), running.flow.clone(), Arc::new(WordPlanner)));
    let schedules = Arc::new(Schedules::new(Arc::clone(&actions)));
    running.run_schedules(&schedules);
    let broken = |error: InvalidSchema| Failure::new(Code::Internal, format!("the schemas of intents: {error}"));
    let intents = Arc::new(IntentRouter::new(Arc::clone(&actions)).map_err(broken)?);
    running.sweep_intents(&intents);
    if let Some(folder) = &config.flow.intents_dir {
        running.watch_intents(IntentFolder::open(folder.clone(), &intents)?, &intents);
    }
    let clock_watch = tokio::spawn(crate::ambient::watch::watch(Arc::clone(&ambient.machine)));
    upkeep.until_stopped(&running.flow);
    upkeep.watch_pulse("runs were", running.flow.pulse());
    upkeep.watch_pulse("schedules were", schedules.pulse());
    access.directory().pulse().iter().for_each(|pulse| upkeep.watch_pulse("actors were", pulse));
    upkeep.watch_loops(running.loops().chain([&checkpoints.1, &clock_watch]));
    checks.push(tools_check(&running.flow));
    checks.push(upkeep.check());
    let ambient = ambient.clone();
    let running = Some(running);
    let parts =
        Node { checks, blobs, running, actions, schedules, intents, records, ambient, node, checkpoints, clock_watch };
    warn_of_local_settings(config);
    match parts.record(signing::STARTED, signing::announcement(&signer)).await {
        // Start anyway: operators must be able to inspect a held store.
        Err(failure) if failure.code == Code::StoreHeld => {}
        other => other?,
    }
    Ok(parts)
}

/// Warns of local settings that several nodes of one database must share.
fn warn_of_local_settings(config: &Config) {
    if config.database_url.is_some() && config.signing_key.is_none() {
        tracing::warn!(
            "the ledger is signed with this folder's own key; several nodes should share ledger.signing_key"
        );
    }
    if config.database_url.is_some() && config.webhook_key.is_none() {
        tracing::warn!("webhooks are signed with this folder's own key; several nodes should share notify.webhook_key");
    }
    if config.database_url.is_some() && (config.access.token_key.is_none() || config.access.seal_key.is_none()) {
        tracing::warn!(
            "tokens and keys are this folder's own; several nodes share access.token_key and access.seal_key"
        );
    }
    if config.database_url.is_some() && config.redis_url.is_none() {
        tracing::warn!("requests are counted by this node alone; several nodes need redis_url");
    }
    if has_local_blobs(config) {
        tracing::warn!("the database can be shared, but blobs and buckets are in this node's data folder; set s3_url");
    }
}

impl Node {
    /// The flow engine, until it is stopped.
    pub(crate) fn flow(&self) -> Option<Flow> {
        self.running.as_ref().map(|running| running.flow.clone())
    }

    async fn record(&self, event_type: &str, data: serde_json::Value) -> Outcome {
        record_node_event(&*self.records, &self.ambient, &self.node, Tx::default(), (event_type, data)).await
    }

    /// Starts no more runs and calls, and waits for calls in flight, up to the grace time.
    pub(crate) async fn drain(&self, grace: Duration) {
        if let Some(running) = &self.running {
            running.drain(grace).await;
        }
    }

    /// Finishes queued work, writes a final checkpoint and closes, within the time left.
    pub(crate) async fn close(self, left: Duration) {
        if tokio::time::timeout(left, self.finish(left / 2)).await.is_err() {
            tracing::warn!(
                "the record store did not answer within the grace time and was left as it is; what was acknowledged is \
                 durable"
            );
        }
    }

    async fn finish(mut self, loops: Duration) {
        if let Some(running) = self.running.take() {
            running.stop(loops).await;
        }
        if let Err(failure) = self.record("node.stopped", serde_json::json!({})).await {
            tracing::warn!(reason = failure.message, "could not record the stop in the ledger");
        }
        let (stop, checkpoints) = self.checkpoints;
        let _ = stop.send(true);
        // A checkpointer that broke has said so itself.
        let _ = checkpoints.await;
        self.clock_watch.abort();
        self.records.close().await;
    }
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}
