//! Wires access control: the actor directory, keys, tokens and rate counters.

use super::flow::{TENANT, invalid};
use super::traced::TracedCounters;
use super::{Ambient, Redis, resolve_setting, secret, secrets};
use crate::config::{AccessConfig, Config, SensitiveText, Token};
use crate::data_folder::{self, DataFolder};
use crate::failure::{Failure, Outcome};
use chimera_core::access::registry::{ActorEntry, Kind, Registry, is_actor_name, shipped};
use chimera_core::access::tables::{ActorKeyRow, ActorRow, actors};
use chimera_core::access::tenant::{TenantSettings, is_domain};
use chimera_core::access::token::TokenKey;
use chimera_core::access::{Level, Role, Roles, SharedResources, check_mail, overlap};
use chimera_core::error::Code;
use chimera_core::limits::{
    ACTORS_MAX, DECLARED_FILE_BYTES_MAX, IDEMPOTENCY_TTL_SECONDS, RATE_HITS_MAX, ROLES_MAX, SHARED_SECRET_CHARS_MIN,
    SHARED_SECRET_CHARS_RECOMMENDED,
};
use chimera_core::record::{Scope, StoredRow, Tx, Value};
use chimera_core::secret::Secret;
use chimera_engine::EngineError;
use chimera_engine::access::port::Counters;
use chimera_engine::access::{
    Authenticator, CounterFallback, Directory, DirectoryPorts, Rates, SealedKeys, Settings, stored_entry,
};
use chimera_engine::port::{Bus, Records};
use chimera_storage::bus::LocalBus;
use chimera_storage::counter::{LocalCounters, RedisCounters};
use chimera_storage::secret::LayeredSecrets;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// An actor with the key that `chimera dev` made for it.
#[derive(Clone)]
pub(crate) struct ExampleActor {
    pub(crate) actor: String,
    pub(crate) hmac_key: String,
}

/// Example actors of `chimera dev`, one of each kind.
const EXAMPLES: [&str; 4] = ["admin", "user_ada", "n8n_workflow_demo", "service_chatbot"];

/// The actors of `chimera dev`, with their keys.
pub(crate) fn examples(config: &Config, home: &DataFolder, ambient: &Ambient) -> Outcome<Vec<ExampleActor>> {
    let example = |actor: &&str| {
        let hmac_key = home.actor_key(actor, &*ambient.random)?;
        config.mask.learn(&Secret::new(hmac_key.as_bytes()));
        Ok(ExampleActor { actor: (*actor).to_owned(), hmac_key })
    };
    EXAMPLES.iter().map(example).collect()
}

/// What the configuration says about actors.
pub(super) async fn directory_settings(
    config: &Config,
    home: &DataFolder,
    ambient: &Ambient,
    examples: &[ExampleActor],
) -> Outcome<Settings> {
    let access = &config.access;
    let mut keys: Vec<(String, Secret)> =
        examples.iter().map(|example| (example.actor.clone(), Secret::new(example.hmac_key.as_bytes()))).collect();
    let ActorsConfig { entries, roles, tenants } = read_actors_file(access)?;
    if let Some(key) = &access.hmac_secret {
        check_key_holder(&access.hmac_actor, &entries)?;
        keys.push((access.hmac_actor.clone(), resolve_shared_secret(config, "access.hmac_secret", key).await?));
    }
    Ok(Settings {
        tenant: TENANT.to_owned(),
        entries,
        roles,
        tenants,
        keys,
        token_keys: token_keys(config, home, ambient).await?,
        audience: access.audience.clone(),
        strict_scopes: access.strict_scopes,
        cautious: access.cautious,
        idempotency_ttl: access.idempotency_ttl,
        counter_fallback: redis_fallback(access),
    })
}

/// What the actor directory works with.
pub(super) async fn directory_ports(
    config: &Config,
    home: &DataFolder,
    ambient: &Ambient,
    records: &Arc<dyn Records>,
    bus: Arc<dyn Bus>,
) -> Outcome<DirectoryPorts> {
    Ok(DirectoryPorts {
        records: Arc::clone(records),
        clock: Arc::clone(&ambient.clock),
        random: Arc::clone(&ambient.random),
        bus,
        secrets: Arc::new(secrets(config)),
        seal: Secret::new(seal_key(config, home, ambient, &**records).await?.to_vec()),
        alone: config.database_url.is_none(),
    })
}

/// The actor directory, with the actors of the store.
pub(super) async fn directory(ports: DirectoryPorts, settings: Settings) -> Outcome<Arc<Directory>> {
    let directory = Arc::new(Directory::new(ports, settings));
    directory.refresh().await.map_err(|error| Failure::from_body(error.body()))?;
    Ok(directory)
}

/// Rejects an invalid name, and a pattern that matches people: whoever holds a shared key could approve as any of
/// them. Entries added to the store later are checked when the key is used.
fn check_key_holder(holder: &str, registered: &[ActorEntry]) -> Outcome<()> {
    let refused = |why: &str| Err(invalid("access.hmac_actor", format!("{holder:?} {why}")));
    if !is_actor_name(holder) {
        return refused("is not the name of an actor");
    }
    let registry = Registry::new(TENANT, shipped(TENANT).into_iter().chain(registered.iter().cloned()));
    let person = registry.entries().find(|entry| entry.kind == Kind::Human && overlap(holder, &entry.id));
    match person.filter(|_| holder.contains('*')) {
        Some(entry) => refused(&format!(
            "matches people ({}), who never share a key: name a pattern of services, such as n8n_workflow_*",
            entry.id
        )),
        None => Ok(()),
    }
}

/// The actor registry in the store, opened directly. Holds the data folder's lock.
pub(crate) struct ActorStore {
    pub(crate) directory: Arc<Directory>,
    records: Arc<dyn Records>,
    _home: DataFolder,
}

impl ActorStore {
    /// Closes the store.
    pub(crate) async fn close(self) {
        self.records.close().await;
    }
}

/// Opens the registry in the store itself.
pub(crate) async fn actor_store(config: &Config, home: DataFolder, ambient: &Ambient) -> Outcome<ActorStore> {
    super::database::require_plausible_clock(config, ambient).await?;
    let records = super::records(config, ambient, &ambient.random.opaque_id()).await?;
    super::flow::ensure_default_tenant(ambient, &*records).await?;
    let bus = super::flow::bus(config, ambient).await?;
    let settings = directory_settings(config, &home, ambient, &[]).await?;
    let directory = directory(directory_ports(config, &home, ambient, &records, bus).await?, settings).await?;
    Ok(ActorStore { directory, records, _home: home })
}

/// The roles of the configuration, in the order of their tenants and names.
pub(crate) fn roles(config: &Config) -> Outcome<Vec<Role>> {
    let mut roles = read_actors_file(&config.access)?.roles;
    roles.sort_by(|one, other| (&one.tenant, &one.name).cmp(&(&other.tenant, &other.name)));
    Ok(roles)
}

#[derive(Debug, Default)]
pub(crate) struct ActorFacts {
    pub(crate) entries: usize,
    /// Keys at hand: in the store, and in the configuration.
    pub(crate) keys: usize,
    /// Keys that `chimera dev` keeps in the data folder; they count nowhere else.
    pub(crate) dev_keys: usize,
    /// People who count as one person by their mail address, as `one and another`.
    pub(crate) namesakes: Vec<String>,
    /// Actors whose mail address is not plain.
    pub(crate) misspelled: Vec<String>,
    /// Actors of the configuration that were removed, so that their entry there does not count.
    pub(crate) retired: Vec<String>,
}

pub(crate) async fn actor_facts(config: &Config, ambient: &Ambient) -> Outcome<ActorFacts> {
    let mut entries = shipped(TENANT);
    let configured = read_actors_file(&config.access)?.entries;
    let names: Vec<String> = configured.iter().map(|entry| entry.id.clone()).collect();
    entries.extend(configured);
    let dev_keys = data_folder::existing_actor_keys(&config.data_dir);
    let mut keys = usize::from(config.access.hmac_secret.is_some());
    match super::records_to_read(config, ambient).await {
        Ok(records) => {
            let all = || ActorRow::select(Scope::System);
            let living = all().with(actors::removed_at, Value::Null);
            let mut stored = records.first(living, ACTORS_MAX).await?.0;
            for name in &names {
                stored.extend(records.read(all().with(actors::id, name.as_str()).take(1)).await?.rows);
            }
            for row in stored {
                let row = ActorRow::decode(row).map_err(EngineError::from)?;
                entries.push(stored_entry(&row).map_err(EngineError::from)?);
            }
            let now = ambient.clock.now();
            for row in records.first(ActorKeyRow::select(Scope::System), ACTORS_MAX).await?.0 {
                let row = ActorKeyRow::decode(row).map_err(EngineError::from)?;
                let is_valid = row.revoked_at.is_none() && row.expires_at.is_none_or(|until| now < until);
                keys += usize::from(is_valid);
            }
            records.close().await;
        }
        // A store that does not exist yet has no actors.
        Err(failure) if failure.code == Code::NotFound => {}
        Err(failure) => return Err(failure),
    }
    let registry = Registry::new(TENANT, entries);
    let namesakes = registry.mail_duplicates().into_iter().map(|(one, other)| format!("{one} and {other}")).collect();
    let is_misspelled = |entry: &&Arc<ActorEntry>| {
        let mail = entry.notify.as_ref().and_then(|notify| notify["email"].as_str());
        mail.is_some_and(|mail| check_mail(mail).is_err())
    };
    let misspelled = registry.entries().filter(is_misspelled).map(|entry| entry.id.clone()).collect();
    let retired = names.into_iter().filter(|name| registry.removed(name).is_some()).collect();
    Ok(ActorFacts { entries: registry.entries().count(), keys, dev_keys, namesakes, misspelled, retired })
}

/// Counters shared by all nodes (Redis), if configured.
pub(super) async fn counters(config: &Config, ambient: &Ambient) -> Outcome<Option<Arc<dyn Counters>>> {
    let Some(url) = &config.redis_url else { return Ok(None) };
    let redis = Redis::new(&resolve_setting(config, "redis_url", url).await?);
    let redis = redis.map_err(|error| invalid("redis_url", error))?;
    let counters: Arc<dyn Counters> = Arc::new(RedisCounters::new(redis));
    Ok(Some(if ambient.spans.enabled() { Arc::new(TracedCounters(counters)) } else { counters }))
}

/// Authenticates callers; `claims` are the counters shared by all nodes.
pub(super) fn authenticator(
    config: &Config,
    directory: &Arc<Directory>,
    claims: Option<Arc<dyn Counters>>,
) -> Authenticator {
    let own: Arc<dyn Counters> = Arc::new(LocalCounters::new());
    let shared = claims.clone().unwrap_or_else(|| Arc::clone(&own));
    let rates = Rates { shared, own, without: redis_fallback(&config.access) };
    Authenticator::new(Arc::clone(directory), rates, claims)
}

const fn redis_fallback(access: &AccessConfig) -> CounterFallback {
    if access.refuse_without_redis { CounterFallback::Refuse } else { CounterFallback::Database }
}

/// The value of a setting that is a secret or names one.
async fn resolve_shared_secret(config: &Config, setting: &str, value: &Token) -> Outcome<Secret> {
    let text = resolve_setting(config, setting, &SensitiveText(value.0.clone())).await?;
    if text.chars().count() < SHARED_SECRET_CHARS_MIN {
        return Err(invalid(setting, format!("the secret must have at least {SHARED_SECRET_CHARS_MIN} characters")));
    }
    if text.chars().count() < SHARED_SECRET_CHARS_RECOMMENDED {
        tracing::warn!(
            setting,
            "the secret is short and could be guessed; use at least {SHARED_SECRET_CHARS_RECOMMENDED} characters"
        );
    }
    Ok(Secret::new(text))
}

async fn token_keys(config: &Config, home: &DataFolder, ambient: &Ambient) -> Outcome<Vec<TokenKey>> {
    let access = &config.access;
    if access.hs256 {
        let secret = access.jwt_secret.as_ref();
        let secret = secret.ok_or_else(|| invalid("access.jwt_secret", "`HS256` needs a secret (JWT_SECRET_KEY)"))?;
        let restricted_to = access.hmac_secret.is_some().then(|| access.hmac_actor.clone());
        return Ok(vec![TokenKey::Hs256 {
            secret: resolve_shared_secret(config, "access.jwt_secret", secret).await?,
            restricted_to,
        }]);
    }
    let seed = match &access.token_key {
        None => home.token_seed(&*ambient.random)?,
        Some(name) => named_seed(config, "access.token_key", name).await?,
    };
    config.mask.learn(&Secret::new(hex::encode(seed)));
    let before = access.token_keys_before.iter().filter_map(|key| TokenKey::from_public(&key.to_bytes()));
    Ok(std::iter::once(TokenKey::from_seed(&seed)).chain(before).collect())
}

/// The key that encrypts actors' keys. Created only if the store has no encrypted keys yet.
async fn seal_key(config: &Config, home: &DataFolder, ambient: &Ambient, records: &dyn Records) -> Outcome<[u8; 32]> {
    let existing = existing_seal_key(config).await?;
    let sealed = SealedKeys::read(records, ambient.clock.now()).await?;
    let count = sealed.count();
    if count > 0 && sealed.undecryptable_with(existing.as_ref()).count() == count {
        records.close().await;
        return Err(seal_lost(config, existing.is_some(), count));
    }
    match existing {
        Some(key) => Ok(key),
        None => {
            let key = home.seal_key(&*ambient.random)?;
            config.mask.learn(&Secret::new(hex::encode(key)));
            Ok(key)
        }
    }
}

/// The existing key that encrypts actors' keys.
async fn existing_seal_key(config: &Config) -> Outcome<Option<[u8; 32]>> {
    let key = match &config.access.seal_key {
        None => data_folder::existing_seal_key(&config.data_dir)?,
        Some(name) => Some(named_seed(config, "access.seal_key", name).await?),
    };
    key.iter().for_each(|key| config.mask.learn(&Secret::new(hex::encode(key))));
    Ok(key)
}

/// No stored key can be decrypted, so nobody could sign in.
fn seal_lost(config: &Config, exists: bool, count: usize) -> Failure {
    let what = match (&config.access.seal_key, exists) {
        (Some(_), _) => "the secret that `access.seal_key` names is not the one that sealed them".to_owned(),
        (None, true) => {
            format!("{} is not the key that sealed them", data_folder::seal_key(&config.data_dir).display())
        }
        (None, false) => format!("{} is missing", data_folder::seal_key(&config.data_dir).display()),
    };
    let message =
        format!("none of the {count} actors' keys in the store can be decrypted, so nobody could sign in: {what}");
    Failure::new(Code::ConfigInvalid, message).hint(
        "restore keys/seal.key from a backup, or set `access.seal_key` to the secret that all nodes share; if the key is \
         lost for good, chimera resume --accept-lost-keys revokes what it sealed",
    )
}

/// Number of stored actors' keys, and how many of them can't be decrypted. An error if none can.
pub(crate) async fn seal_facts(config: &Config, ambient: &Ambient) -> Outcome<(usize, usize)> {
    let existing = existing_seal_key(config).await?;
    let records = match super::records_to_read(config, ambient).await {
        Ok(records) => records,
        Err(failure) if failure.code == Code::NotFound => return Ok((0, 0)),
        Err(failure) => return Err(failure),
    };
    let sealed = SealedKeys::read(&*records, ambient.clock.now()).await?;
    records.close().await;
    let count = sealed.count();
    let closed = sealed.undecryptable_with(existing.as_ref()).count();
    if count > 0 && closed == count {
        return Err(seal_lost(config, existing.is_some(), count));
    }
    Ok((count, closed))
}

/// Revokes the actors' keys that can't be decrypted. Returns the actors.
pub(crate) async fn revoke_lost_keys(config: &Config, ambient: &Ambient) -> Outcome<Vec<String>> {
    let _home = DataFolder::lock(&config.data_dir)?;
    super::database::require_plausible_clock(config, ambient).await?;
    let node = ambient.random.opaque_id();
    let records = super::untraced_records(config, ambient, &node).await?;
    let given_up = revoke_sealed(config, ambient, &node, &*records).await;
    records.close().await;
    given_up
}

async fn revoke_sealed(config: &Config, ambient: &Ambient, node: &str, records: &dyn Records) -> Outcome<Vec<String>> {
    let (existing, now) = (existing_seal_key(config).await?, ambient.clock.now());
    let closed = SealedKeys::read(records, now).await?.undecryptable_with(existing.as_ref());
    let actors: Vec<String> = closed.actors().into_iter().map(str::to_owned).collect();
    if actors.is_empty() {
        return Ok(actors);
    }
    let updates = closed.revoke(now).map_err(|error| Failure::new(Code::Internal, error.to_string()))?;
    let data = serde_json::json!({"actors": &actors, "keys": updates.len()});
    super::record_node_event(records, ambient, node, Tx { updates, ..Tx::default() }, ("actor.keys_revoked", data))
        .await?;
    Ok(actors)
}

async fn named_seed(config: &Config, setting: &str, name: &str) -> Outcome<[u8; 32]> {
    let found = secret(config, setting, name).await?;
    data_folder::seed(found.expose_text().unwrap_or_default().trim())
        .map_err(|_| invalid(setting, "the secret is not 64 hex digits"))
}

/// The actors file. Unknown fields are rejected.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ActorFile {
    #[serde(default)]
    actor: Vec<ActorSection>,
    #[serde(default)]
    role: Vec<RoleSection>,
    #[serde(default)]
    tenant: Vec<TenantSection>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RoleSection {
    name: String,
    scopes: Vec<String>,
    tenant: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TenantSection {
    id: Option<String>,
    #[serde(default)]
    domains: Vec<String>,
    notify: Option<Notify>,
    /// Tools, buckets and secrets of the default tenant that this one may use.
    #[serde(default)]
    tools: Vec<String>,
    #[serde(default)]
    buckets: Vec<String>,
    #[serde(default)]
    secrets: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ActorSection {
    id: String,
    #[serde(default)]
    scopes: Vec<String>,
    #[serde(default)]
    roles: Vec<String>,
    quota_per_minute: Option<u32>,
    autonomy_level: Option<Level>,
    kind: Option<Kind>,
    tenant: Option<String>,
    notify: Option<Notify>,
    #[serde(default)]
    disabled: bool,
}

#[derive(Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
struct Notify {
    #[serde(skip_serializing_if = "Option::is_none")]
    webhook: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    email: Option<String>,
}

/// The contents of the actors file.
#[derive(Default)]
pub(super) struct ActorsConfig {
    /// Actors, which override the built-in ones.
    pub(super) entries: Vec<ActorEntry>,
    pub(super) roles: Vec<Role>,
    /// By tenant id.
    pub(super) tenants: BTreeMap<String, TenantSettings>,
}

impl Notify {
    fn value(self) -> Option<serde_json::Value> {
        serde_json::to_value(self).ok()
    }
}

/// The actors and tenants of the configuration.
pub(super) fn read_actors_file(access: &AccessConfig) -> Outcome<ActorsConfig> {
    let Some(path) = &access.actors_file else { return Ok(ActorsConfig::default()) };
    let refused = |why: &dyn std::fmt::Display| invalid("access.actors_file", format!("{}: {why}", path.display()));
    let text = super::flow::read(path, DECLARED_FILE_BYTES_MAX).map_err(|error| refused(&error))?;
    let file: ActorFile = toml::from_str(&text).map_err(|error| refused(&error.message()))?;
    if file.actor.len() > ACTORS_MAX {
        return Err(Failure::new(Code::ConfigInvalid, format!("{}: more than {ACTORS_MAX} actors", path.display())));
    }
    let roles = check_roles(file.role, &refused)?;
    let known: Roles = roles.iter().cloned().collect();
    let entry = |written: ActorSection| {
        let plain = ActorEntry::default_for(&written.id, TENANT);
        let entry = ActorEntry {
            tenant: written.tenant.unwrap_or_else(|| plain.tenant.clone()),
            kind: written.kind.unwrap_or(plain.kind),
            scopes: written.scopes,
            roles: written.roles,
            quota_per_minute: written.quota_per_minute.unwrap_or(plain.quota_per_minute),
            level: written.autonomy_level,
            notify: written.notify.and_then(Notify::value),
            disabled: written.disabled,
            ..plain
        };
        let checked = entry.check().and_then(|()| known.check(&entry, None));
        checked.map_err(|error| refused(&format!("{}: {error}", entry.id)))?;
        Ok(entry)
    };
    let entries = file.actor.into_iter().map(entry).collect::<Outcome<_>>()?;
    let mut tenants = BTreeMap::new();
    for written in file.tenant {
        let id = written.id.unwrap_or_else(|| TENANT.to_owned());
        if let Some(domain) = written.domains.iter().find(|domain| !is_domain(domain)) {
            return Err(refused(&format!("{domain:?} is not a domain: write names in lower case, like acme.example")));
        }
        let shared = SharedResources { tools: written.tools, buckets: written.buckets, secrets: written.secrets };
        if id == TENANT && shared != SharedResources::default() {
            return Err(refused(&format!(
                "the tenant {TENANT} already has every tool, bucket and secret; list shares under another tenant"
            )));
        }
        let tenant =
            TenantSettings { domains: written.domains, notify: written.notify.and_then(Notify::value), shared };
        if tenants.insert(id.clone(), tenant).is_some() {
            return Err(refused(&format!("the tenant {id} is listed twice")));
        }
    }
    Ok(ActorsConfig { entries, roles, tenants })
}

/// The roles of the configuration.
fn check_roles(written: Vec<RoleSection>, refused: &dyn Fn(&dyn std::fmt::Display) -> Failure) -> Outcome<Vec<Role>> {
    if written.len() > ROLES_MAX {
        return Err(refused(&format!("more than {ROLES_MAX} roles")));
    }
    let mut seen = BTreeSet::new();
    let role = |written: RoleSection| {
        let tenant = written.tenant.unwrap_or_else(|| TENANT.to_owned());
        let role = Role { name: written.name, tenant, scopes: written.scopes };
        role.check().map_err(|error| refused(&format!("role {}: {error}", role.name)))?;
        if !seen.insert((role.tenant.clone(), role.name.clone())) {
            return Err(refused(&format!("the role {} of the tenant {} is listed twice", role.name, role.tenant)));
        }
        Ok(role)
    };
    written.into_iter().map(role).collect()
}

/// The actor that a benchmark acts as.
pub(super) fn bench_actor(ambient: &Ambient) -> ExampleActor {
    let hmac_key = ambient.random.opaque_id();
    ExampleActor { actor: "n8n_workflow_bench".to_owned(), hmac_key }
}

/// A directory with that actor, which may call local tools without a rate limit.
pub(super) async fn bench_directory(
    ambient: &Ambient,
    records: &Arc<dyn Records>,
    actor: &ExampleActor,
    alone: bool,
) -> Outcome<Arc<Directory>> {
    let mut bytes = [0; 32];
    ambient.random.fill(&mut bytes);
    let entry = ActorEntry {
        scopes: vec!["local.*".to_owned()],
        quota_per_minute: RATE_HITS_MAX,
        level: Some(Level::ExecuteNotify),
        ..ActorEntry::default_for(&actor.actor, TENANT)
    };
    let operator = ActorEntry {
        quota_per_minute: RATE_HITS_MAX,
        scopes: vec!["*".to_owned()],
        ..ActorEntry::default_for("admin", TENANT)
    };
    let settings = Settings {
        tenant: TENANT.to_owned(),
        entries: vec![entry, operator],
        roles: Vec::new(),
        tenants: BTreeMap::new(),
        keys: vec![(actor.actor.clone(), Secret::new(actor.hmac_key.as_bytes()))],
        token_keys: vec![TokenKey::from_seed(&bytes)],
        audience: "chimera".to_owned(),
        strict_scopes: false,
        cautious: false,
        idempotency_ttl: Duration::from_secs(IDEMPOTENCY_TTL_SECONDS.unsigned_abs()),
        counter_fallback: CounterFallback::Refuse,
    };
    let parts = DirectoryPorts {
        records: Arc::clone(records),
        clock: Arc::clone(&ambient.clock),
        random: Arc::clone(&ambient.random),
        bus: Arc::new(LocalBus::new()),
        secrets: Arc::new(LayeredSecrets::new(Vec::new())),
        seal: Secret::new(bytes.to_vec()),
        alone,
    };
    let directory = Arc::new(Directory::new(parts, settings));
    directory.refresh().await.map_err(|error| Failure::from_body(error.body()))?;
    Ok(directory)
}
