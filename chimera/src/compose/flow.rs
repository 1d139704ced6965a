//! Wires the flow engine: tools, rules, limits, notifiers and background loops.

use super::intent_folder::IntentFolder;
use super::tool_folder::ToolFolder;
use super::traced::TracedBus;
use super::{Ambient, FolderBlobs, LinkSigner, Redis, resolve_setting, s3_place, secrets};
use crate::config::{Config, FlowConfig, MailConfig, line_of};
use crate::failure::{Failure, Outcome};
use crate::mask::Mask;
use async_trait::async_trait;
use chimera_connect::flow::notify::NotificationChannels;
use chimera_connect::flow::webhook::{SigningKeySource, WebhookSender, own_key};
use chimera_connect::flow::{MailSettings, MailTls, ToolDependencies, http_tools, local_tools, mail_tool, s3_tool};
use chimera_connect::http::{Client, ClientSettings, Egress};
use chimera_core::access::tables::{TENANTS, tenants};
use chimera_core::error::{Code, io_reason};
use chimera_core::flow::policy::Policy;
use chimera_core::flow::work::NoJobs;
use chimera_core::job::executions::ExecutionLog;
use chimera_core::limits::{DECLARED_FILE_BYTES_MAX, STOP_LOOPS_TIMEOUT, STOP_POLL_INTERVAL, STOP_TURNS_TIMEOUT};
use chimera_core::record::{Insert, Scope, Select, Tx};
use chimera_core::secret::{Secret, SecretName};
use chimera_engine::access::port::{OneTenant, Tenancy};
use chimera_engine::access::{Directory, Permit, TenantSecrets, local_operator};
use chimera_engine::act::rules::{Rule, Rules};
use chimera_engine::act::{AccessPolicy, DirectoryRecipients, Schedules, schedule};
use chimera_engine::flow::call_slots::CallLimits;
use chimera_engine::flow::port::{Blobs, Buckets, Notifier, Tool};
use chimera_engine::flow::{
    self, Asking, Flow, FlowPorts, LinkSeal, ProcessLog, RunLimits, TenantBlobs, TenantBuckets, ToolRegistry,
};
use chimera_engine::intent::{self, IntentRouter};
use chimera_engine::port::{Blocked, Bus, CommitError, Records, SecretError, Secrets};
use chimera_storage::bucket::{FolderBuckets, S3Buckets};
use chimera_storage::bus::{LocalBus, RedisBus};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The default tenant.
pub(super) const TENANT: &str = "default";

/// A flow engine with its loops.
pub(crate) struct RunningFlow {
    pub(crate) flow: Flow,
    loops: Vec<JoinHandle<()>>,
    stop: Option<watch::Sender<bool>>,
}

impl RunningFlow {
    /// Keeps up with what other nodes change in the registry of actors, until it is stopped.
    pub(super) fn watch(&mut self, directory: &Arc<Directory>) {
        let directory = Arc::clone(directory);
        let (stop, stopped) = watch::channel(false);
        self.stop = Some(stop);
        self.loops.push(tokio::spawn(async move { directory.keep(stopped).await }));
    }

    /// Starts what is due by the clock, until it is stopped.
    pub(super) fn run_schedules(&mut self, schedules: &Arc<Schedules>) {
        let schedules = Arc::clone(schedules);
        let stopped = self.stop.get_or_insert_with(|| watch::channel(false).0).subscribe();
        self.loops.push(tokio::spawn(async move { schedule::run_ticker(&schedules, stopped).await }));
    }

    /// Deletes what intents no longer need, until it is stopped.
    pub(super) fn sweep_intents(&mut self, router: &Arc<IntentRouter>) {
        let router = Arc::clone(router);
        let stopped = self.stop.get_or_insert_with(|| watch::channel(false).0).subscribe();
        self.loops.push(tokio::spawn(async move { intent::run_sweeper(&router, stopped).await }));
    }

    /// Follows the folder of intents, until it is stopped.
    pub(super) fn watch_intents(&mut self, folder: IntentFolder, router: &Arc<IntentRouter>) {
        let router = Arc::clone(router);
        let stopped = self.stop.get_or_insert_with(|| watch::channel(false).0).subscribe();
        self.loops.push(tokio::spawn(folder.keep(router, stopped)));
    }

    /// What runs until it is stopped.
    pub(super) fn loops(&self) -> impl Iterator<Item = &JoinHandle<()>> {
        self.loops.iter()
    }

    /// Starts nothing new, and lets calls in flight end and be recorded.
    pub(super) async fn drain(&self, grace: Duration) {
        self.flow.drain();
        let calls = self.flow.calls_under_way();
        if calls > 0 {
            tracing::info!(calls, "stopping: waiting for calls in flight");
        }
        if !self.wait_idle(grace).await {
            let (runs, calls) = (self.flow.active_runs(), self.flow.calls_under_way());
            tracing::warn!(runs, calls, "calls were aborted; the next start determines their outcome");
        }
    }

    /// Lets every run finish its turn and every loop its current work. Unfinished runs are durable and continue
    /// with the next start.
    pub(super) async fn stop(self, patience: Duration) {
        let until = Instant::now() + patience.min(STOP_LOOPS_TIMEOUT);
        self.flow.stop();
        self.wait_idle(patience.min(STOP_TURNS_TIMEOUT)).await;
        self.stop.iter().for_each(|stop| {
            let _ = stop.send_replace(true);
        });
        for mut task in self.loops {
            // An aborted message is retried later.
            if tokio::time::timeout_at(until, &mut task).await.is_err() {
                task.abort();
            }
        }
    }

    /// Waits until no run is driven. Returns false on timeout.
    async fn wait_idle(&self, patience: Duration) -> bool {
        let quiet = async {
            while self.flow.active_runs() > 0 {
                tokio::time::sleep(STOP_POLL_INTERVAL).await;
            }
        };
        tokio::time::timeout(patience, quiet).await.is_ok()
    }
}

/// What notifications need.
pub(super) struct NotifierParts {
    /// Where the links in them lead.
    pub(super) base_url: String,
    /// What signs webhooks unless a secret is named.
    pub(super) webhook_seed: [u8; 32],
    pub(super) bus: Arc<dyn Bus>,
    pub(super) directory: Arc<Directory>,
}

/// Everything that workflows run on, and the loops that keep them going.
pub(super) async fn start(
    config: &Config,
    ambient: &Ambient,
    records: &Arc<dyn Records>,
    blobs: &Arc<dyn Blobs>,
    voice: NotifierParts,
) -> Outcome<RunningFlow> {
    let tenancy: Arc<dyn Tenancy> = Arc::clone(&voice.directory) as Arc<dyn Tenancy>;
    let toolbox = toolbox(config, ambient, &tenancy)?;
    let mail = mail(config, &toolbox)?;
    let owned = TenantBlobs::new(Arc::clone(blobs), Arc::clone(records));
    let buckets = TenantBuckets::new(buckets(config).await?, Arc::clone(&tenancy));
    let tools = built_in_tools(&toolbox, mail.clone(), &owned, buckets)?;
    let registry = registry(config, &toolbox, tools, (tenancy, true))?;
    check_tool_files(config, &registry)?;
    for problem in registry.problems() {
        tracing::warn!(file = problem.file, "a tool file can't be used: {}", problem.reason);
    }
    let key = match &config.webhook_key {
        Some(name) => SigningKeySource::Secret(parse_secret_name(name)?),
        None => {
            let own = own_key(&voice.webhook_seed);
            config.mask.learn(&own);
            SigningKeySource::Own(own)
        }
    };
    let sender = WebhookSender::new(toolbox.client.clone(), Arc::clone(&toolbox.secrets));
    let channels = NotificationChannels { webhook: Some((sender, key)), mail, clock: Arc::clone(&ambient.clock) };
    let base_url = voice.base_url.trim_end_matches('/').to_owned();
    let recipients = Arc::new(DirectoryRecipients::new(Arc::clone(&voice.directory)));
    let asking = Asking { base_url, recipients, seal: LinkSeal::new(voice.directory.seal().clone()) };
    let outlets = EngineOutputs { bus: voice.bus, notifier: Arc::new(channels), asking };
    let policy = Arc::new(AccessPolicy::new(voice.directory, rules(config)?));
    let flow = engine(config, ambient, records, GovernedTools { registry, policy }, outlets);
    // What declares a tool is stored before a run begins with it. Runs of a store that accepts nothing begin later.
    if let Err(error) = flow::reload_tools(&flow).await {
        tracing::warn!(error = %error, "the declared tools could not be recorded");
    }
    let (keeper, messenger, meter, tools) = (flow.clone(), flow.clone(), flow.clone(), flow.clone());
    let loops = vec![
        tokio::spawn(async move { flow::keep_tools(&tools).await }),
        tokio::spawn(async move { flow::run_keeper(&keeper).await }),
        tokio::spawn(async move { flow::run_delivery(&messenger).await }),
        tokio::spawn(async move { flow::run_gauges(&meter).await }),
    ];
    Ok(RunningFlow { flow, loops, stop: None })
}

/// An engine that only reads and checks, for a command beside the server, and the operator's permit.
pub(crate) async fn reader(config: &Config, ambient: &Ambient) -> Outcome<(Flow, Permit)> {
    let records = super::records_to_read(config, ambient).await?;
    let tools = GovernedTools::described(config, ambient)?;
    let flow = engine(config, ambient, &records, tools, EngineOutputs::closed(ambient));
    Ok((flow, local_operator(TENANT)))
}

/// An engine that drives no run, on a writable store, to resume it.
pub(crate) fn resumer(config: &Config, ambient: &Ambient, records: &Arc<dyn Records>) -> Outcome<Flow> {
    let tools = GovernedTools::described(config, ambient)?;
    Ok(engine(config, ambient, records, tools, EngineOutputs::closed(ambient)))
}

/// How many tools and rules the configuration gives, and what is wrong with the tool files of tenants.
pub(crate) fn workflow_facts(config: &Config, ambient: &Ambient) -> Outcome<(usize, usize, Vec<String>)> {
    let tools = describe_tools(config, ambient)?;
    check_tool_files(config, &tools)?;
    let problems = tools.problems().into_iter().map(|problem| problem.reason);
    Ok((tools.specs().len(), rules(config)?.0.len(), problems.collect()))
}

/// The tool registry for validation only: no tool is called.
fn describe_tools(config: &Config, ambient: &Ambient) -> Outcome<ToolRegistry> {
    let links = LinkSigner::new("http://localhost", &Secret::new("none"));
    let links = links.ok_or_else(|| Failure::new(Code::Internal, "no key for links"))?;
    let folder = config.data_dir.join("blobs");
    let blobs = FolderBlobs::open(folder, links, Arc::clone(&ambient.random));
    let blobs = TenantBlobs::described(Arc::new(blobs));
    let tenancy: Arc<dyn Tenancy> = Arc::new(OneTenant);
    let buckets = Arc::new(FolderBuckets::new(config.data_dir.join("buckets")));
    let buckets = TenantBuckets::new(buckets, Arc::clone(&tenancy));
    let toolbox = toolbox(config, ambient, &tenancy)?;
    let tools = built_in_tools(&toolbox, mail(config, &toolbox)?, &blobs, buckets)?;
    registry(config, &toolbox, tools, (tenancy, false))
}

/// The local operator's permit.
pub(crate) fn operator() -> Permit {
    local_operator(TENANT)
}

/// The tools, and what decides about their calls.
struct GovernedTools {
    registry: ToolRegistry,
    policy: Arc<dyn Policy>,
}

impl GovernedTools {
    /// For an engine that calls none of them.
    fn described(config: &Config, ambient: &Ambient) -> Outcome<Self> {
        Ok(Self { registry: describe_tools(config, ambient)?, policy: Arc::new(Rules::default()) })
    }
}

struct EngineOutputs {
    bus: Arc<dyn Bus>,
    notifier: Arc<dyn Notifier>,
    asking: Asking,
}

impl EngineOutputs {
    /// Notifies nobody outside this process.
    fn closed(ambient: &Ambient) -> Self {
        Self { bus: Arc::new(LocalBus::new()), notifier: silent_notifier(ambient), asking: Asking::default() }
    }
}

/// A notifier without channels.
pub(super) fn silent_notifier(ambient: &Ambient) -> Arc<dyn Notifier> {
    Arc::new(NotificationChannels { webhook: None, mail: None, clock: Arc::clone(&ambient.clock) })
}

fn engine(
    config: &Config,
    ambient: &Ambient,
    records: &Arc<dyn Records>,
    tools: GovernedTools,
    outlets: EngineOutputs,
) -> Flow {
    let parts = FlowPorts {
        call_log: Arc::new(ProcessLog),
        records: Arc::clone(records),
        clock: Arc::clone(&ambient.clock),
        random: Arc::clone(&ambient.random),
        bus: outlets.bus,
        notifier: outlets.notifier,
        spans: Arc::clone(&ambient.spans),
        jobs: Arc::new(NoJobs),
        asking: outlets.asking,
        registry: Arc::new(tools.registry),
        projection: Arc::new(ExecutionLog),
        policy: tools.policy,
        slots: slots(&config.flow),
        alone: config.database_url.is_none(),
    };
    let [total, per_tenant, _] = config.flow.runs_max;
    let memory_bytes = config.flow.runs_memory_bytes_max;
    Flow::bounded(parts, RunLimits { total, per_tenant, memory_bytes })
}

fn slots(flow: &FlowConfig) -> CallLimits {
    let ([total, per_tenant, per_tool, per_host], [_, _, in_memory_per_tool]) = (flow.calls_max, flow.runs_max);
    CallLimits {
        total,
        per_tenant,
        per_tool,
        per_host,
        tools: flow.calls_of.clone(),
        hosts: flow.calls_to.iter().map(|(host, calls)| (host.to_ascii_lowercase(), *calls)).collect(),
        in_memory_per_tool,
        waiting: flow.calls_waiting_max,
        ..CallLimits::default()
    }
}

pub(super) fn invalid(setting: &str, why: impl std::fmt::Display) -> Failure {
    Failure::new(Code::ConfigInvalid, format!("`{setting}`: {why}"))
}

fn parse_secret_name(name: &str) -> Outcome<SecretName> {
    name.parse().map_err(|error| invalid("notify.webhook_key", error))
}

/// Registers every resolved secret with the mask.
struct MaskingSecrets {
    inner: Box<dyn Secrets>,
    mask: Mask,
}

#[async_trait]
impl Secrets for MaskingSecrets {
    async fn resolve(&self, name: &SecretName) -> Result<Secret, SecretError> {
        let found = self.inner.resolve(name).await?;
        self.mask.learn(&found);
        Ok(found)
    }
}

fn toolbox(config: &Config, ambient: &Ambient, tenancy: &Arc<dyn Tenancy>) -> Outcome<ToolDependencies> {
    let egress = Egress::new(&config.egress_allow).map_err(|error| invalid("egress_allow", error))?;
    let settings = ClientSettings { egress, clock: Arc::clone(&ambient.clock), names: BTreeMap::new() };
    let client = Client::new(settings).map_err(|error| Failure::new(Code::Internal, error.to_string()))?;
    let masked = MaskingSecrets { inner: Box::new(secrets(config)), mask: config.mask.clone() };
    let secrets = Arc::new(TenantSecrets::new(Arc::new(masked), Arc::clone(tenancy)));
    Ok(ToolDependencies { client, secrets, base_urls: config.flow.base_urls.clone() })
}

/// The tools that are part of the program.
fn built_in_tools(
    toolbox: &ToolDependencies,
    mail: Option<Arc<dyn Tool>>,
    blobs: &TenantBlobs,
    buckets: TenantBuckets,
) -> Outcome<Vec<Arc<dyn Tool>>> {
    let broken = |error: &dyn std::fmt::Display| Failure::new(Code::Internal, format!("a built-in tool: {error}"));
    let mut tools = local_tools(blobs.clone()).map_err(|error| broken(&error))?;
    tools.push(s3_tool(buckets, blobs.clone()).map_err(|error| broken(&error))?);
    tools.extend(http_tools(toolbox).map_err(|error| invalid("flow.base_urls", error))?);
    tools.extend(mail);
    Ok(tools)
}

/// Refuses a broken tool file of the default tenant. One of another tenant must not keep the others from starting.
fn check_tool_files(config: &Config, registry: &ToolRegistry) -> Outcome {
    let problems = registry.problems();
    let Some(problem) = problems.iter().find(|problem| !ToolFolder::is_of_tenant(problem)) else { return Ok(()) };
    let path = config.flow.tools_dir.clone().unwrap_or_default().join(&problem.file);
    Err(invalid("flow.tools_dir", format!("{}: {}", path.display(), problem.reason)))
}

/// All tools: the built-in ones, and what the tool files declare now. A command beside a server reads the store whatever
/// is wrong with a file: the server goes on with what the file said before.
fn registry(
    config: &Config,
    toolbox: &ToolDependencies,
    tools: Vec<Arc<dyn Tool>>,
    (tenancy, with_tenants): (Arc<dyn Tenancy>, bool),
) -> Outcome<ToolRegistry> {
    let mut registry = ToolRegistry::default();
    if config.mail.is_none() {
        registry
            .add_absent("email_send", "set `mail.server` and `mail.from` (CHIMERA_MAIL__SERVER, CHIMERA_MAIL__FROM)");
    }
    let names = tools.iter().map(|tool| tool.spec().name.clone()).collect();
    for tool in tools {
        registry.add(tool).map_err(|twice| Failure::new(Code::Internal, twice.to_string()))?;
    }
    let folder = ToolFolder::new(config.flow.tools_dir.clone(), toolbox.clone(), names);
    let mut declared = folder.look(true);
    if !with_tenants {
        declared.tools.retain(|tool| tool.tenant.is_none());
    }
    let registry = registry.shared_by(tenancy).declared_by(Arc::new(folder), TENANT);
    registry.set_declarations(declared);
    Ok(registry)
}

pub(super) fn read(path: &Path, bytes_max: usize) -> Result<String, String> {
    let size = path.metadata().map_err(|error| io_reason(&error))?.len();
    if size > bytes_max as u64 {
        return Err(format!("it has more than {bytes_max} bytes"));
    }
    std::fs::read_to_string(path).map_err(|error| io_reason(&error))
}

fn mail(config: &Config, toolbox: &ToolDependencies) -> Outcome<Option<Arc<dyn Tool>>> {
    let Some(mail) = &config.mail else { return Ok(None) };
    let MailConfig { server, port, tls, from, user, password, roots_file } = mail.clone();
    let from = from.ok_or_else(|| invalid("mail.from", "required when `mail.server` is set"))?;
    let password = password.map(|name| name.parse()).transpose().map_err(|error| invalid("mail.password", error))?;
    let roots = |path: &PathBuf| std::fs::read(path).map_err(|error| invalid("mail.roots_file", io_reason(&error)));
    let settings = MailSettings {
        server,
        port,
        tls: match tls.as_str() {
            "implicit" => MailTls::Implicit,
            "none" => MailTls::None,
            _ => MailTls::StartTls,
        },
        user,
        password,
        from,
        roots_pem: roots_file.as_ref().map(roots).transpose()?,
    };
    mail_tool(settings, Arc::clone(&toolbox.secrets)).map(Some).map_err(|error| invalid("mail", error))
}

/// A file of rules.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    #[serde(default)]
    rule: Vec<Rule>,
}

fn rules(config: &Config) -> Outcome<Rules> {
    let Some(path) = &config.flow.policy_file else { return Ok(Rules::default()) };
    let refused = |why: &dyn std::fmt::Display| invalid("flow.policy_file", format!("{}: {why}", path.display()));
    let text = read(path, DECLARED_FILE_BYTES_MAX).map_err(|error| refused(&error))?;
    let file: RuleFile = toml::from_str(&text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(&text, span.start));
        refused(&format!("line {line}: {}", error.message()))
    })?;
    let rules = Rules(file.rule);
    rules.check().map_err(|error| refused(&error))?;
    Ok(rules)
}

pub(super) async fn bus(config: &Config, ambient: &Ambient) -> Outcome<Arc<dyn Bus>> {
    let Some(url) = &config.redis_url else { return Ok(Arc::new(LocalBus::new())) };
    let redis =
        Redis::new(&resolve_setting(config, "redis_url", url).await?).map_err(|error| invalid("redis_url", error))?;
    let bus: Arc<dyn Bus> = Arc::new(RedisBus::new(redis));
    Ok(if ambient.spans.enabled() { Arc::new(TracedBus(bus)) } else { bus })
}

async fn buckets(config: &Config) -> Outcome<Arc<dyn Buckets>> {
    match s3_place(config).await? {
        None => Ok(Arc::new(FolderBuckets::new(config.data_dir.join("buckets")))),
        Some((url, credentials)) => {
            Ok(Arc::new(S3Buckets::new(url, credentials).map_err(|error| invalid("s3_url", error))?))
        }
    }
}

/// Creates the default tenant if it is missing.
pub(super) async fn ensure_default_tenant(ambient: &Ambient, records: &dyn Records) -> Outcome {
    let select = Select::from(&TENANTS, Scope::System).with(tenants::id, TENANT).take(1);
    if !records.read(select).await?.rows.is_empty() {
        return Ok(());
    }
    let now = ambient.clock.now();
    let cells = vec![
        (tenants::id, TENANT.into()),
        (tenants::slug, TENANT.into()),
        (tenants::name, "Default".into()),
        (tenants::created_at, now.into()),
        (tenants::updated_at, now.into()),
    ];
    let row = Insert::new(&TENANTS, cells).map_err(|error| Failure::new(Code::Internal, error.to_string()))?;
    match records.commit(Tx { inserts: vec![row], ..Tx::default() }).await {
        // Another node was faster, or the store is held: `chimera resume` creates it then.
        Ok(_) | Err(CommitError::Conflict(_) | CommitError::Blocked(Blocked::Held(_))) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
