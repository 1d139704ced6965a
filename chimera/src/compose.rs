//! Wires adapters to ports: only this module and its submodules name adapters.
//!
//! Settings select the adapter of a port: a URL selects the server that it names, otherwise the data folder
//! or this process is used.

mod access;
mod artifacts;
mod bench;
mod checks;
mod database;
mod flow;
mod intent_folder;
mod node;
mod restore;
mod server;
mod signing;
mod tool_folder;
mod traced;

pub(crate) use access::{
    ActorFacts, ActorStore, ExampleActor, actor_facts, actor_store, examples, revoke_lost_keys, roles, seal_facts,
};
pub(crate) use artifacts::{find_missing, missing_message, referenced_blobs};
pub(crate) use bench::{FlowBench, bench_subject};
pub(crate) use database::{ClockComparison, compare_clocks, disagreement, while_responsive};
pub(crate) use flow::{operator, reader, workflow_facts};
pub(crate) use node::{Node, PreparedNode, begin, prepare};
pub(crate) use restore::{
    RECORDS_FILE, Resumer, accept_clock, backup_key, check_database_empty, copy_records, fill_database,
    inspect_records, resumer, stage_data, store_hold, store_kind,
};
pub(crate) use server::{server, unready};

use crate::ambient::{SystemClock, SystemRandom};
use crate::backup::staging::refuse_unfinished;
use crate::config::{Config, SensitiveText};
use crate::data_folder::{self, DataFolder};
use crate::doctor::deep::Progress;
use crate::doctor::{RunFacts, StoreFacts};
use crate::failure::{Failure, Outcome};
use checks::{blobs_check, counters_check};
use chimera_api::ReadinessCheck;
use chimera_core::error::{Code, io_reason};
use chimera_core::ledger::checkpoint::{CheckpointFault, Signer};
use chimera_core::record::Tx;
use chimera_core::secret::{Secret, SecretName};
use chimera_core::time::Timestamp;
use chimera_engine::flow::port::Blobs;
use chimera_engine::ledger::audit::{EventRecord, Writer};
use chimera_engine::ledger::checkpoint::known_keys;
use chimera_engine::ledger::{LedgerError, last_checkpoint};
use chimera_engine::port::{Clock, NoSpans, Random, Records, SchemaMismatch, Secrets, Spans};
use chimera_storage::Redis;
use chimera_storage::blob::{FolderBlobs, InvalidS3Url, LinkSigner, S3Blobs, S3Credentials, S3Url};
use chimera_storage::migrate::{MigrateError, newest};
use chimera_storage::records::{
    self, AccessMode, MARK_FILE, OpenError, PostgresOptions, PostgresRecords, SqliteRecords, StoreSurvey,
    marked_entries,
};
use chimera_storage::secret::{DirectorySecrets, EnvironmentSecrets, FileSecrets, LayeredSecrets};
use serde::Serialize;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use traced::TracedRecords;

/// Mark file for a shared database, in each node's data folder.
const POSTGRES_MARK_FILE: &str = "ledger.postgres.mark";
pub(crate) const MARK_HINT: &str = "make it readable and writable for the user that runs chimera, or move it away: it is \
    created again, but only the original file can tell whether the data is the newest";
/// Tenant of the system's own ledger entries.
const SYSTEM_TENANT: &str = "system";

/// Clock, randomness and span exporter of this process.
#[derive(Clone)]
pub(crate) struct Ambient {
    pub(crate) clock: Arc<dyn Clock>,
    /// The same clock, for the clock watcher.
    pub(crate) machine: Arc<SystemClock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) spans: Arc<dyn Spans>,
}

impl Ambient {
    pub(crate) fn new() -> Self {
        let machine = Arc::new(SystemClock::default());
        let clock = Arc::clone(&machine) as Arc<dyn Clock>;
        Self { clock, machine, random: Arc::new(SystemRandom), spans: Arc::new(NoSpans) }
    }
}

/// Where secrets come from: environment before directory before file.
fn secrets(config: &Config) -> LayeredSecrets {
    let variables = config.secret_variables.clone();
    let environment = EnvironmentSecrets::new(Config::SECRET_PREFIX, move |name| variables.0.get(name).cloned());
    let mut sources: Vec<Box<dyn Secrets>> = vec![Box::new(environment)];
    sources.extend(config.secrets_dir.iter().map(|dir| Box::new(DirectorySecrets::new(dir)) as Box<dyn Secrets>));
    sources.extend(config.secrets_file.iter().map(|file| Box::new(FileSecrets::new(file)) as Box<dyn Secrets>));
    LayeredSecrets::new(sources)
}

async fn secret(config: &Config, setting: &str, name: &str) -> Outcome<Secret> {
    let refused = |error: String| Failure::new(Code::ConfigInvalid, format!("`{setting}`: {error}"));
    let name: SecretName = name.parse().map_err(|_| refused(format!("{name} is not a secret's name")))?;
    let found = secrets(config).resolve(&name).await.map_err(|error| refused(error.to_string()))?;
    config.mask.learn(&found);
    Ok(found)
}

/// Resolves a setting that may be the name of a secret.
async fn resolve_setting(config: &Config, setting: &str, value: &SensitiveText) -> Outcome<String> {
    if !value.0.starts_with("secret://") {
        return Ok(value.0.clone());
    }
    let found = secret(config, setting, &value.0).await?;
    let text = found.expose_text().map(|text| text.trim().to_owned());
    text.ok_or_else(|| Failure::new(Code::ConfigInvalid, format!("`{setting}`: the secret is not text")))
}

/// The ledger's signing key: the configured secret, else the folder's own.
pub(crate) async fn signer(config: &Config, home: &DataFolder, ambient: &Ambient) -> Outcome<Signer> {
    let seed = match &config.signing_key {
        None => home.ledger_seed(&*ambient.random)?,
        Some(_) => named_seed(config).await?.unwrap_or_default(),
    };
    config.mask.learn(&Secret::new(hex::encode(seed)));
    Ok(Signer::from_seed(&seed))
}

/// The existing signing key, for commands that only read.
pub(crate) async fn existing_signer(config: &Config) -> Outcome<Option<Signer>> {
    let seed = match &config.signing_key {
        None => data_folder::existing_ledger_seed(&config.data_dir)?,
        Some(_) => named_seed(config).await?,
    };
    seed.iter().for_each(|seed| config.mask.learn(&Secret::new(hex::encode(seed))));
    Ok(seed.map(|seed| Signer::from_seed(&seed)))
}

async fn named_seed(config: &Config) -> Outcome<Option<[u8; 32]>> {
    let Some(name) = &config.signing_key else { return Ok(None) };
    let found = secret(config, "ledger.signing_key", name).await?;
    data_folder::seed(found.expose_text().unwrap_or_default().trim()).map(Some)
}

/// Whether the database may be shared but the blobs are local.
pub(crate) const fn has_local_blobs(config: &Config) -> bool {
    config.database_url.is_some() && config.s3_url.is_none()
}

/// Rejects a key if the ledger was signed with a key that is unknown here: verification would report a broken
/// ledger. The checkpointer reports other problems.
async fn check_signing_key(config: &Config, signer: Option<&Signer>, records: &dyn Records, was_here: bool) -> Outcome {
    let last = match last_checkpoint(records).await {
        Ok(last) => last,
        Err(LedgerError::Read(error)) => return Err(error.into()),
        Err(_) => None,
    };
    let keys: Vec<_> = match signer {
        Some(signer) => known_keys(signer, &config.trusted_keys),
        None => config.trusted_keys.clone(),
    };
    let unknown = match last {
        Some(last) => (last.verify(&keys) == Err(CheckpointFault::UnknownKey)).then_some((last.key_id, "is signed")),
        None if was_here => {
            signing::unknown_announced_key(records, &keys).await?.map(|key_id| (key_id, "is to be signed"))
        }
        None => None,
    };
    let Some((theirs, signs)) = unknown else { return Ok(()) };
    records.close().await;
    let ours = signer.map_or("keys/ledger.key is missing".to_owned(), |signer| signer.key_id().to_string());
    Err(Failure::new(
        Code::ConfigInvalid,
        format!("the ledger {signs} with key {theirs}, which is neither this node's ({ours}) nor trusted"),
    )
    .hint(
        "set `ledger.signing_key` to the secret that all nodes share, or list the other public key in \
         `ledger.trusted_keys`; if keys/ledger.key was lost, restore it from a backup",
    ))
}

/// Commits a change with a ledger entry about this process, which includes its version.
async fn record_node_event(
    records: &dyn Records,
    ambient: &Ambient,
    node: &str,
    mut tx: Tx,
    (event_type, mut data): (&str, serde_json::Value),
) -> Outcome {
    data["version"] = env!("CARGO_PKG_VERSION").into();
    let event = EventRecord::by_system(SYSTEM_TENANT, node, event_type, data);
    let audit = Writer { random: &*ambient.random, clock: &*ambient.clock };
    let written = audit.event(&mut tx, event);
    written.map_err(|error| Failure::new(Code::Internal, error.to_string()))?;
    records.commit(tx).await?;
    Ok(())
}

/// Opens the record store for writing; the caller holds the folder's lock.
async fn records(config: &Config, ambient: &Ambient, node: &str) -> Outcome<Arc<dyn Records>> {
    let inner = untraced_records(config, ambient, node).await?;
    if !ambient.spans.enabled() {
        return Ok(inner);
    }
    let system = if config.database_url.is_some() { "postgresql" } else { "sqlite" };
    Ok(Arc::new(TracedRecords { inner, system }))
}

async fn untraced_records(config: &Config, ambient: &Ambient, node: &str) -> Outcome<Arc<dyn Records>> {
    let Some(url) = &config.database_url else {
        let (marks, clock) = (marks(config), Arc::clone(&ambient.clock));
        let opened = SqliteRecords::open_marked(&config.data_dir, &marks, AccessMode::Write, clock);
        return Ok(Arc::new(opened?));
    };
    let url = resolve_setting(config, "database_url", url).await?;
    let (lanes, node, marks) = (config.lanes, node.to_owned(), Some(marks(config)));
    let options = PostgresOptions { lanes, node, marks, ..PostgresOptions::new(url) };
    Ok(Arc::new(PostgresRecords::open(options).await?))
}

/// The mark file; each store has its own.
fn marks(config: &Config) -> PathBuf {
    let name = if config.database_url.is_some() { POSTGRES_MARK_FILE } else { MARK_FILE };
    config.mark_file.clone().unwrap_or_else(|| config.data_dir.join(name))
}

/// Number of ledger entries according to the mark file.
pub(crate) fn entries_marked(config: &Config) -> Outcome<u64> {
    Ok(marked_entries(&marks(config))?)
}

/// Opens the record store for reading; a server may be writing to it.
pub(crate) async fn records_to_read(config: &Config, ambient: &Ambient) -> Outcome<Arc<dyn Records>> {
    refuse_unfinished(&config.data_dir)?;
    let Some(url) = &config.database_url else {
        let opened = SqliteRecords::open(&config.data_dir, AccessMode::Read, Arc::clone(&ambient.clock));
        return Ok(Arc::new(opened?));
    };
    Ok(Arc::new(PostgresRecords::open_read_only(&resolve_setting(config, "database_url", url).await?).await?))
}

/// Base URL of links to this server.
pub(crate) fn base_url(config: &Config, address: SocketAddr) -> String {
    config.public_url.clone().unwrap_or_else(|| format!("http://{address}"))
}

async fn blobs(config: &Config, home: &DataFolder, ambient: &Ambient, address: SocketAddr) -> Outcome<Arc<dyn Blobs>> {
    let random = Arc::clone(&ambient.random);
    let Some((url, credentials)) = s3_place(config).await? else {
        let key = Secret::new(home.link_key(&*ambient.random)?.into_bytes());
        config.mask.learn(&key);
        let links = LinkSigner::new(&base_url(config, address), &key);
        let links = links.ok_or_else(|| Failure::new(Code::ConfigInvalid, "the key of signed links is empty"))?;
        return Ok(Arc::new(FolderBlobs::open(config.data_dir.join("blobs"), links, random)));
    };
    let blobs = S3Blobs::new(&url, credentials.as_ref(), random);
    Ok(Arc::new(blobs.map_err(|error| Failure::new(Code::ConfigInvalid, format!("`s3_url`: {error}")))?))
}

/// The S3 server and the credentials for it, if one is set.
async fn s3_place(config: &Config) -> Outcome<Option<(S3Url, Option<S3Credentials>)>> {
    let Some(url) = &config.s3_url else { return Ok(None) };
    let invalid = |error: InvalidS3Url| Failure::new(Code::ConfigInvalid, format!("`s3_url`: {error}"));
    let url: S3Url = resolve_setting(config, "s3_url", url).await?.parse().map_err(invalid)?;
    let credentials = match &config.s3_credentials {
        None => None,
        Some(name) => Some(s3_credentials(config, &secret(config, "s3_credentials", name).await?)?),
    };
    Ok(Some((url, credentials)))
}

fn s3_credentials(config: &Config, secret: &Secret) -> Outcome<S3Credentials> {
    let parts = secret.expose_text().and_then(|text| text.trim().split_once(':'));
    let invalid = || Failure::new(Code::ConfigInvalid, "`s3_credentials`: the secret is not `ID:KEY`");
    let (id, key) = parts.ok_or_else(invalid)?;
    let secret_access_key = Secret::new(key.as_bytes().to_vec());
    config.mask.learn(&secret_access_key);
    Ok(S3Credentials { access_key_id: id.to_owned(), secret_access_key, session_token: None })
}

/// Checks for the external services other than the record store. The data folder has checks of its own.
pub(crate) async fn services(config: &Config, ambient: &Ambient) -> Outcome<Vec<ReadinessCheck>> {
    let counters = access::counters(config, ambient).await?;
    let mut checks: Vec<ReadinessCheck> = counters.iter().map(counters_check).collect();
    if config.s3_url.is_some() {
        let home = DataFolder::unlocked(&config.data_dir);
        // S3 signs links to itself, so this address is not used.
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        checks.push(blobs_check(&blobs(config, &home, ambient, nowhere).await?));
    }
    Ok(checks)
}

#[derive(Serialize)]
pub(crate) struct MigrationSummary {
    /// Names of migrations.
    pub(crate) applied: Vec<&'static str>,
    /// Descriptions of restored schema objects.
    pub(crate) put_back: Vec<String>,
    pub(crate) version: i64,
}

/// Applies pending migrations and restores missing schema objects.
pub(crate) async fn migrate(config: &Config) -> Outcome<MigrationSummary> {
    let applied = match &config.database_url {
        Some(url) => records::migrate_postgres(&resolve_setting(config, "database_url", url).await?).await?,
        None => records::migrate_sqlite(&config.data_dir)?,
    };
    Ok(MigrationSummary { applied: applied.names, put_back: applied.restored, version: applied.version })
}

/// Pending migrations and the current schema version.
pub(crate) async fn pending(config: &Config) -> Outcome<(Vec<String>, i64)> {
    let schema = facts(config, Ambient::new().clock.now()).await?.schema;
    let (found, known) = (schema.version, newest());
    if found > known {
        return Err(SchemaMismatch { found, known }.into());
    }
    Ok((schema.pending.into_iter().map(str::to_owned).collect(), found))
}

/// Verifies the whole record store. Returns a summary.
pub(crate) async fn verify_records(config: &Config, progress: &mut Progress) -> Outcome<String> {
    if let Some(url) = &config.database_url {
        let url = resolve_setting(config, "database_url", url).await?;
        let begins = |table: &str, at: usize, of: usize| progress.show(&format!("table {table}, {at} of {of}"));
        let tables = records::check_postgres(&url, begins).await?;
        return Ok(format!("intact, tables with their indexes: {tables}"));
    }
    progress.show("the data file");
    let folder = config.data_dir.clone();
    let looked = tokio::task::spawn_blocking(move || records::check_sqlite(&folder)).await;
    looked.map_err(|_| Failure::new(Code::Internal, "the check did not finish"))??;
    Ok("intact: every page, index and reference".to_owned())
}

/// Opens the blobs for reading.
pub(crate) async fn blobs_to_read(config: &Config, ambient: &Ambient) -> Outcome<Arc<dyn Blobs>> {
    let random = Arc::clone(&ambient.random);
    let Some((url, credentials)) = s3_place(config).await? else {
        // No links are signed, so no key is created.
        let links = LinkSigner::new("http://localhost", &Secret::new("none"));
        let links = links.ok_or_else(|| Failure::new(Code::Internal, "no key for links"))?;
        return Ok(Arc::new(FolderBlobs::open(config.data_dir.join("blobs"), links, random)));
    };
    let blobs = S3Blobs::new(&url, credentials.as_ref(), random);
    Ok(Arc::new(blobs.map_err(|error| Failure::new(Code::ConfigInvalid, format!("`s3_url`: {error}")))?))
}

/// Like `check_signing_key`, for a command that only reads.
pub(crate) async fn check_existing_signing_key(config: &Config, ambient: &Ambient) -> Outcome {
    let existing = existing_signer(config).await?;
    let records = match records_to_read(config, ambient).await {
        Ok(records) => records,
        Err(failure) if failure.code == Code::NotFound => return Ok(()),
        Err(failure) => return Err(failure),
    };
    check_signing_key(config, existing.as_ref(), &*records, signing::used_this_store(config)).await?;
    records.close().await;
    Ok(())
}

pub(crate) async fn store_facts(config: &Config) -> Outcome<StoreFacts> {
    let kind = if config.database_url.is_some() { "PostgreSQL" } else { "SQLite" };
    let facts = facts(config, Ambient::new().clock.now()).await?;
    let schema_known = newest();
    let schema_version = facts.schema.version;
    let (fsync, writable, clock) = (facts.durable, facts.writable, facts.clock);
    let runs = RunFacts {
        unfinished: facts.runs.driven + facts.runs.parked + facts.runs.unattended,
        overdue: facts.runs.overdue,
        overdue_signals: facts.runs.overdue_signals,
        long_rollbacks: facts.runs.long_rollbacks,
        unattended: facts.runs.unattended,
        in_doubt: facts.runs.in_doubt,
    };
    let (held, mark_missed) = (facts.hold.map(|hold| hold.reason), facts.mark_problem);
    let lacks = facts.missing.map(|why| why.reason);
    Ok(StoreFacts { kind, schema_version, schema_known, fsync, writable, clock, runs, held, lacks, mark_missed })
}

async fn facts(config: &Config, now: Timestamp) -> Outcome<StoreSurvey> {
    refuse_unfinished(&config.data_dir)?;
    facts_during_restore(config, now).await
}

/// Like `facts`, but accepts an unfinished restore.
async fn facts_during_restore(config: &Config, now: Timestamp) -> Outcome<StoreSurvey> {
    Ok(match &config.database_url {
        Some(url) => {
            records::survey_postgres(&resolve_setting(config, "database_url", url).await?, &marks(config), now).await?
        }
        None => records::survey_sqlite(&config.data_dir, &marks(config), now)?,
    })
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Unavailable(unavailable) => unavailable.into(),
            OpenError::Absent => {
                Self::new(Code::NotFound, error.to_string()).hint("chimera dev creates it; --data names another folder")
            }
            OpenError::Url { reason } => Self::new(Code::ConfigInvalid, format!("`database_url`: {reason}")),
            OpenError::Marks { path, source } => {
                Self::file("the ledger's mark can't be used:", &path, &source).hint(MARK_HINT)
            }
            OpenError::Schema(mismatch) => mismatch.into(),
            OpenError::NotEmpty => Self::new(Code::OccConflict, error.to_string())
                .hint("--force moves the existing tables to another schema and reports its name"),
            OpenError::Migrate(reason) => reason.into(),
            OpenError::Folder(reason) => {
                Self::from_io(format!("the data folder can't be used: {}", io_reason(&reason)), &reason)
            }
        }
    }
}

impl From<MigrateError> for Failure {
    fn from(error: MigrateError) -> Self {
        let causes = std::iter::successors(std::error::Error::source(&error), |cause| cause.source());
        let why = causes.last().map_or(String::new(), |cause| format!(": {cause}"));
        match error {
            MigrateError::Newer { found, known } => SchemaMismatch { found, known }.into(),
            MigrateError::Changed { .. } => Self::new(Code::SchemaMismatch, error.to_string())
                .hint("the database was migrated by another build of Chimera; use that one"),
            MigrateError::Failed { .. } if !error.is_transient() => {
                Self::new(Code::SchemaMismatch, format!("{error}{why}"))
                    .hint("it left nothing behind; correct what the database refused and start again")
            }
            MigrateError::Failed { .. } => Self::new(Code::StoreUnavailable, format!("{error}{why}"))
                .hint("it left nothing behind and can be tried again"),
            MigrateError::Busy => {
                Self::new(Code::StoreUnavailable, error.to_string()).hint("wait until it has ended, and start again")
            }
            MigrateError::Database(_) => match error.outage() {
                Some(unavailable) => unavailable.into(),
                None => Self::new(Code::StoreUnavailable, error.to_string())
                    .hint("chimera doctor says which part is missing"),
            },
        }
    }
}
