//! The directory: this process's cache of the registry, actors' keys and revocations.
//!
//! The store is the source of truth. The cache is read at the start, after every local change, when another node
//! announces a change, and once a second where other nodes can write. So a revocation on another node takes effect at
//! once with a shared bus, and within a second without.

use super::actors::stored_entry;
use super::expired_keys::{self, is_replaced, sweep_keys};
use super::flood::{Floods, record_floods};
use super::permit::{APPROVALS_DECIDE, Credential, Permit};
use super::settings::{CounterFallback, Settings};
use super::signing_key_cache::{SigningKeyCache, has_credential};
use super::strangers::Strangers;
use super::tenants::TenantView;
use crate::access::port::Tenancy;
use crate::error::EngineError;
use crate::fair_slots::FairSlots;
use crate::heartbeat::Heartbeat;
use crate::port::{Bus, BusEvent, Clock, Random, Records, Secrets};
use crate::rows;
use bytes::Bytes;
use chimera_core::access::registry::{ActorEntry, Kind, Registry, check_new_name, shipped};
use chimera_core::access::tables::{
    ActorKeyRow, ActorRow, NONCES, REFRESH_TOKENS, REVOKED_TOKENS, RevokedTokenRow, TOKEN_FAMILIES, TenantRow,
    TokenFamilyRow, nonces, refresh_tokens, revoked_tokens, token_families,
};
use chimera_core::access::token::TokenKey;
use chimera_core::access::{
    DeciderRefusal, EntrySource, Guest, Role, SharedResources, SigningKey, TenantSettings, scope, seal,
};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::limits;
use chimera_core::record::{Comparison, Condition, RowCount, Scope, Select, Step, StoredRow, Table, Tx};
use chimera_core::secret::{Secret, SecretName};
use chimera_core::time::Timestamp;
use futures::StreamExt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::{Mutex, watch};
use uuid::Uuid;

/// The bus topic for changes.
const TOPIC: &str = "access.changed";

/// The ports of a directory.
#[derive(Clone)]
pub struct DirectoryPorts {
    pub records: Arc<dyn Records>,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    /// Announces changes to other processes.
    pub bus: Arc<dyn Bus>,
    /// Resolves keys that the store references by name.
    pub secrets: Arc<dyn Secrets>,
    /// Decrypts sealed keys.
    pub seal: Secret,
    /// No other process can write to this store.
    pub alone: bool,
}

pub struct Directory {
    pub(crate) parts: DirectoryPorts,
    pub(crate) settings: Settings,
    held: RwLock<Arc<Snapshot>>,
    pulse: Heartbeat,
    /// The last refresh failed.
    behind: AtomicBool,
    /// The number of refresh requests.
    asked: AtomicU64,
    /// The number of refresh requests that are done. Only one refresh runs at a time, so that older data never replaces
    /// newer.
    answered: Mutex<u64>,
    /// One slot, held during a change of the registry. Tenants take turns.
    pub(super) changes: FairSlots,
    pub(super) floods: Floods,
    pub(super) strangers: Strangers,
}

/// The state at one moment.
#[derive(Default)]
pub struct Snapshot {
    pub registry: Registry,
    keys: BTreeMap<String, Vec<ActorKey>>,
    /// Configured keys that are shared by a pattern.
    shared: BTreeMap<String, Vec<ActorKey>>,
    pub(super) signing_keys: SigningKeyCache,
    /// Actors of whom a stored key can't be opened by this process.
    unopened: BTreeSet<String>,
    revoked: BTreeSet<String>,
    /// There are more revocations than are cached.
    more_revoked: bool,
    /// The origin of entries that are not built in.
    sources: BTreeMap<String, EntrySource>,
    /// Stored tenants by id.
    pub(crate) tenants: BTreeMap<String, TenantView>,
    /// There are tenants besides the default one.
    shared_by_tenants: bool,
}

/// A key with its validity period.
pub(crate) struct ActorKey {
    pub(crate) id: Uuid,
    /// The actor, or the pattern whose members share it.
    pub(crate) of: String,
    /// Whether it has a row; otherwise it is configured.
    pub(crate) stored: bool,
    pub(crate) secret: Secret,
    pub(crate) from: Timestamp,
    pub(crate) until: Option<Timestamp>,
}

/// Whether an actor may authenticate with the key that a pattern shares, or with a token obtained with it. An actor
/// with its own entry may have more rights than the pattern, so it may not.
pub(crate) fn shares_key_of(pattern: &str, entry: &ActorEntry, actor: &str) -> bool {
    entry.is_pattern() && entry.id == pattern && may_use_shared_key(entry, actor)
}

/// Whether an actor may use a credential that others hold too. Its holders could decide as any person, or pick a name
/// that looks like another's.
pub(crate) fn may_use_shared_key(entry: &ActorEntry, actor: &str) -> bool {
    entry.kind != Kind::Human && check_new_name(actor).is_ok()
}

impl Snapshot {
    /// An actor's valid keys: its own, and the one that its pattern shares.
    pub(crate) fn keys(&self, actor: &str, now: Timestamp) -> impl Iterator<Item = &ActorKey> {
        let entry = self.registry.resolve(actor);
        let shared = self.shared.get(&entry.id).filter(|_| shares_key_of(&entry.id, &entry, actor));
        self.own_keys(actor, now).chain(shared.into_iter().flatten())
    }

    /// An actor's own valid keys.
    pub(crate) fn own_keys(&self, actor: &str, now: Timestamp) -> impl Iterator<Item = &ActorKey> {
        let counts = move |key: &&ActorKey| key.from <= now && key.until.is_none_or(|until| now < until);
        self.keys.get(actor).into_iter().flatten().filter(counts)
    }

    /// Whether an actor may hold a key that this process can't open: then nothing can be said about a signature that
    /// none of the others made.
    pub(crate) fn has_unopened(&self, actor: &str) -> bool {
        self.unopened.contains(actor)
    }

    /// All actors with a valid key that were not removed.
    pub(crate) fn key_holders(&self, now: Timestamp) -> impl Iterator<Item = &str> {
        self.keys
            .keys()
            .map(String::as_str)
            .filter(move |actor| self.registry.removed(actor).is_none() && self.keys(actor, now).next().is_some())
    }

    /// Whether a token or sign-in was revoked; `None` if only the store knows.
    pub(crate) fn is_revoked(&self, id: &str) -> Option<bool> {
        let held = self.revoked.contains(id);
        (held || !self.more_revoked).then_some(held)
    }

    /// The origin of an entry.
    #[must_use]
    pub fn source(&self, id: &str) -> EntrySource {
        self.sources.get(id).copied().unwrap_or(EntrySource::Shipped)
    }

    /// The signing key with this id, valid or not; `None` if there is none or it ended long ago.
    #[must_use]
    pub fn signing_key(&self, kid: &str) -> Option<&Arc<SigningKey>> {
        self.signing_keys.get(kid)
    }

    /// The signing keys of an actor in a tenant that are valid now.
    pub fn signing_keys_of(&self, tenant: &str, actor: &str, now: Timestamp) -> impl Iterator<Item = &Arc<SigningKey>> {
        self.signing_keys.recent(tenant, actor).filter(move |key| key.is_valid(now))
    }

    /// A tenant's slug; for a tenant that is not stored, its id.
    pub(crate) fn slug_of<'a>(&'a self, tenant: &'a str) -> &'a str {
        self.tenants.get(tenant).map_or(tenant, |tenant| tenant.slug.as_str())
    }

    /// The tenant with this slug.
    pub(super) fn find_by_slug(&self, slug: &str) -> Option<&TenantView> {
        self.tenants.values().find(|tenant| tenant.slug == slug)
    }

    /// The id for a slug; a slug that is not stored is its own id.
    pub(super) fn id_of(&self, slug: &str) -> String {
        self.find_by_slug(slug).map_or_else(|| slug.to_owned(), |tenant| tenant.id.clone())
    }
}

impl Directory {
    /// A directory that knows only the configuration until it is refreshed.
    #[must_use]
    pub fn new(parts: DirectoryPorts, settings: Settings) -> Self {
        let pulse = Heartbeat::start(parts.clock.steady());
        let (held, floods, strangers) = (RwLock::default(), Floods::default(), Strangers::default());
        let (behind, asked, answered) = (AtomicBool::new(false), AtomicU64::new(0), Mutex::default());
        let changes = FairSlots::new(1, || false);
        let directory = Self { parts, settings, held, pulse, behind, asked, answered, changes, floods, strangers };
        let known = Snapshot { registry: directory.registry(&[], &Snapshot::default()), ..Snapshot::default() };
        directory.set(known);
        directory
    }

    #[must_use]
    pub fn kind(&self, id: &str) -> Kind {
        self.snapshot().registry.resolve(id).kind
    }

    /// Whether the caller is an operator, who manages all tenants.
    pub(super) fn is_operator(&self, permit: &Permit) -> bool {
        permit.may("*") && permit.tenant() == self.settings.tenant
    }

    /// What decides when the shared counters can't be reached.
    #[must_use]
    pub const fn counter_fallback(&self) -> CounterFallback {
        self.settings.counter_fallback
    }

    /// When changes of other nodes were last read; `None` where no other node can write.
    #[must_use]
    pub fn pulse(&self) -> Option<&Heartbeat> {
        (!self.parts.alone).then_some(&self.pulse)
    }

    /// Whether the last refresh failed: a disabled actor or revoked token may still be accepted here.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.behind.load(Ordering::Relaxed)
    }

    /// A tenant's configuration.
    pub(crate) fn tenant(&self, id: &str) -> &TenantSettings {
        static NOTHING: TenantSettings = TenantSettings {
            domains: Vec::new(),
            notify: None,
            shared: SharedResources { tools: Vec::new(), buckets: Vec::new(), secrets: Vec::new() },
        };
        let registered = &self.settings.tenants;
        let found =
            if id == self.settings.tenant { registered.get(id) } else { registered.get(self.snapshot().slug_of(id)) };
        found.unwrap_or(&NOTHING)
    }

    /// Refuses whatever is done for a disabled tenant, whoever does it.
    pub(crate) fn check_enabled(&self, tenant: &str) -> Result<(), ErrorBody> {
        let snapshot = self.snapshot();
        match snapshot.tenants.get(tenant).filter(|tenant| tenant.disabled) {
            None => Ok(()),
            Some(disabled) => {
                let message = format!("the tenant {} is disabled; an operator can enable it", disabled.slug);
                Err(ErrorBody::new(Code::RbacForbidden, message).with("reason", "tenant_disabled"))
            }
        }
    }

    /// Whether an entry is valid in a tenant: it belongs there, or to an operator, who may act for every tenant.
    pub(crate) fn is_valid_in(&self, entry: &ActorEntry, tenant: &str) -> bool {
        entry.tenant == tenant || entry.tenant == self.settings.tenant && scope::check_scope(&entry.scopes, "*")
    }

    /// What an actor may do at this moment in a tenant, for what is done in its name after its request.
    pub(crate) fn current_permit(&self, tenant: &str, actor: &str) -> Result<Permit, ErrorBody> {
        let entry = self.snapshot().registry.resolve(actor);
        let refused = |why: &str| Err(ErrorBody::new(Code::RbacForbidden, format!("{actor} {why}")));
        self.check_enabled(tenant)?;
        match () {
            () if entry.removed => refused("was removed"),
            () if entry.disabled => refused("is disabled"),
            () if !self.is_valid_in(&entry, tenant) => refused("belongs to another tenant"),
            () => {
                let scopes = entry.scopes.clone();
                let own = entry.tenant == tenant;
                let permit = Permit::new(entry, actor, scopes, self.settings.strict_scopes);
                Ok(if own { permit } else { permit.acting_for(tenant) })
            }
        }
    }

    /// Whether an actor may use a token that was obtained with the shared key of a pattern, or with none.
    pub(super) fn may_share_key(&self, entry: &ActorEntry, actor: &str, key_of: Option<&str>) -> bool {
        let shared = self.settings.token_keys.iter().any(TokenKey::is_shared);
        key_of.is_none_or(|of| shares_key_of(of, entry, actor)) && (!shared || may_use_shared_key(entry, actor))
    }

    /// Refuses what an actor asked for earlier with a credential that would be refused now.
    pub(crate) fn check_credential(&self, actor: &str, credential: &Credential) -> Result<(), ErrorBody> {
        let snapshot = self.snapshot();
        let entry = snapshot.registry.resolve(actor);
        let now = self.parts.clock.now();
        let is_valid =
            |id: Uuid| snapshot.keys(actor, now).any(|key| key.id == id) || has_credential(&snapshot, actor, id, now);
        if credential.key.is_none_or(is_valid) && self.may_share_key(&entry, actor, credential.key_of.as_deref()) {
            return Ok(());
        }
        if snapshot.has_unopened(actor) {
            let message = format!("a key of {actor} can't be opened by the server");
            return Err(ErrorBody::new(Code::NotReady, message).with("reason", "key_unreadable"));
        }
        let message = format!("the key that {actor} made this with is no longer valid");
        Err(ErrorBody::new(Code::Unauthenticated, message).with("reason", "key_ended"))
    }

    /// The same, with no scope beyond those that the actor had used a token for.
    pub(crate) fn permit_within(&self, tenant: &str, actor: &str, scopes: &[String]) -> Result<Permit, ErrorBody> {
        let permit = self.current_permit(tenant, actor)?;
        let both = scope::narrowed(permit.scopes(), scopes);
        Ok(permit.narrowed(&both.iter().map(String::as_str).collect::<Vec<_>>()))
    }

    /// What the caller of a request may do at this moment: the registry may have changed since it was let in.
    pub(super) fn renew(&self, permit: &Permit) -> Result<Permit, ErrorBody> {
        if !permit.is_registered() {
            return Ok(permit.clone());
        }
        self.current_permit(permit.tenant(), permit.actor())?;
        Ok(permit.renewed(self.snapshot().registry.resolve(permit.actor())))
    }

    /// Why a person may not decide on requests of `requester`; `None` if they may.
    pub(crate) fn exclusion_reason(&self, tenant: &str, person: &str, requester: &str) -> Option<DeciderRefusal> {
        self.refusal_of(&self.snapshot().registry.resolve(person), tenant, person == requester)
    }

    /// Why the person with this entry may not decide; `None` if they may.
    pub(crate) fn refusal_of(&self, entry: &ActorEntry, tenant: &str, is_requester: bool) -> Option<DeciderRefusal> {
        let decides = is_requester || scope::check_scope(&entry.scopes, APPROVALS_DECIDE);
        match () {
            () if entry.kind != Kind::Human => Some(DeciderRefusal::NotAPerson),
            () if entry.disabled || entry.removed => Some(DeciderRefusal::Disabled),
            () if !self.is_valid_in(entry, tenant) => Some(DeciderRefusal::OtherTenant),
            () => (!decides).then_some(DeciderRefusal::LacksScope),
        }
    }

    /// A stored entry with the scopes of its roles.
    pub(crate) fn with_effective_scopes(&self, entry: ActorEntry) -> ActorEntry {
        let scopes = self.snapshot().registry.roles().effective_scopes(&entry);
        ActorEntry { scopes, ..entry }
    }

    /// Whether anybody could sign in.
    #[must_use]
    pub fn has_keys(&self) -> bool {
        let snapshot = self.snapshot();
        !snapshot.shared.is_empty() || snapshot.key_holders(self.parts.clock.now()).next().is_some()
    }

    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.held.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn set(&self, mut snapshot: Snapshot) {
        let of_entries = snapshot.registry.entries().map(|entry| &entry.tenant);
        snapshot.shared_by_tenants = of_entries.chain(snapshot.tenants.keys()).any(|id| *id != self.settings.tenant);
        *self.held.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(snapshot);
    }

    /// The entries of all layers with the roles. Configured entries name tenants by slug.
    pub(crate) fn registry(&self, stored: &[ActorEntry], known: &Snapshot) -> Registry {
        let tenant = &self.settings.tenant;
        let written = self
            .settings
            .entries
            .iter()
            .map(|entry| ActorEntry { tenant: known.id_of(&entry.tenant), ..entry.clone() });
        let layers = shipped(tenant).into_iter().chain(written).chain(stored.iter().cloned());
        let suspended = known.tenants.values().filter(|tenant| tenant.disabled).map(|tenant| tenant.id.clone());
        let role = |role: &Role| Role { tenant: known.id_of(&role.tenant), ..role.clone() };
        let roles = self.settings.roles.iter().map(role).collect();
        Registry::new(tenant, layers).with_roles(roles).with_suspended(suspended.collect())
    }

    /// Reads everything again, unless a refresh that started after this call has done so.
    pub async fn refresh(&self) -> Result<(), EngineError> {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let mut answered = self.answered.lock().await;
        if *answered >= asked {
            return Ok(());
        }
        let covered = self.asked.load(Ordering::SeqCst);
        let read = self.reload().await;
        self.behind.store(read.is_err(), Ordering::Relaxed);
        if read.is_ok() {
            *answered = covered;
        }
        read
    }

    async fn reload(&self) -> Result<(), EngineError> {
        // What is omitted here is not looked up again when the clock is set back.
        let now = self.parts.clock.earlier();
        // First, so that no version is newer than the entries and keys that it stands for.
        let rows: Vec<TenantRow> = self.rows(TenantRow::select(Scope::System)).await?;
        let tenants = rows.into_iter().map(TenantView::from).map(|tenant| (tenant.id.clone(), tenant)).collect();
        let rows = self.rows(ActorRow::select(Scope::System)).await?;
        let entries = rows.iter().map(stored_entry).collect::<Result<Vec<_>, _>>()?;
        let mut sources: BTreeMap<String, EntrySource> =
            self.settings.entries.iter().map(|entry| (entry.id.clone(), EntrySource::Config)).collect();
        sources.extend(entries.iter().map(|entry| (entry.id.clone(), EntrySource::Registry)));
        let (keys, unopened) = self.keys().await?;
        let signing_keys = SigningKeyCache::read(&*self.parts.records, now, &self.snapshot().signing_keys).await?;
        let (revoked, more_revoked) = self.revoked(now).await?;
        let (shared, keys) = keys.into_iter().partition(|(actor, _)| actor.contains('*'));
        let known = Snapshot { keys, shared, signing_keys, unopened, ..Snapshot::default() };
        let known = Snapshot { revoked, more_revoked, sources, tenants, ..known };
        self.set(Snapshot { registry: self.registry(&entries, &known), ..known });
        self.pulse.beat(self.parts.clock.steady());
        Ok(())
    }

    /// All rows. Without a limit: stopping at one would leave the previous state in place.
    async fn rows<R: StoredRow>(&self, select: Select) -> Result<Vec<R>, EngineError> {
        rows::list(&*self.parts.records, select, usize::MAX).await
    }

    /// The keys by their actors, and the actors of whom one can't be opened.
    async fn keys(&self) -> Result<(BTreeMap<String, Vec<ActorKey>>, BTreeSet<String>), EngineError> {
        let (mut keys, mut unopened) = (BTreeMap::<String, Vec<ActorKey>>::new(), BTreeSet::new());
        let now = self.parts.clock.earlier();
        let mut rows: Vec<ActorKeyRow> = Vec::new();
        for select in expired_keys::select_valid_keys(now) {
            rows.extend(self.rows(select).await?);
        }
        let stored: BTreeSet<Uuid> = rows.iter().map(|row| row.id).collect();
        for (actor, secret) in &self.settings.keys {
            // A configured key that was replaced has a row, which says when it expires.
            let id = expired_keys::configured_id(actor, secret);
            if !stored.contains(&id) && !is_replaced(self, id).await? {
                keys.entry(actor.clone()).or_default().push(ActorKey {
                    id,
                    of: actor.clone(),
                    stored: false,
                    secret: secret.clone(),
                    from: Timestamp::from_micros(0),
                    until: None,
                });
            }
        }
        for row in rows {
            let Some(secret) = self.open(&row).await else {
                tracing::warn!(actor = row.actor_id, "an actor's key can't be decrypted and is ignored");
                unopened.insert(row.actor_id);
                continue;
            };
            keys.entry(row.actor_id.clone()).or_default().push(ActorKey {
                id: row.id,
                of: row.actor_id,
                stored: true,
                secret,
                from: row.not_before,
                until: row.expires_at,
            });
        }
        Ok((keys, unopened))
    }

    pub(crate) async fn open(&self, row: &ActorKeyRow) -> Option<Secret> {
        if let Some(name) = &row.secret_ref {
            let name: SecretName = name.parse().ok()?;
            return self.parts.secrets.resolve(&name).await.ok();
        }
        let sealing = self.parts.seal.expose().try_into().ok()?;
        seal::open(sealing, &key_context(&row.actor_id, row.id), row.sealed_key.as_deref()?)
    }

    /// Revoked tokens and sign-ins that may still be presented, and whether there are more.
    async fn revoked(&self, now: Timestamp) -> Result<(BTreeSet<String>, bool), EngineError> {
        let most = limits::REVOKED_CACHED_MAX;
        let select = RevokedTokenRow::select(Scope::System);
        let select = select.filter(revoked_tokens::expires_at, Comparison::Above, now);
        let (tokens, more_tokens) = self.parts.records.first(select, most).await?;
        let since = now.plus_seconds(-limits::TOKEN_SECONDS - limits::CLOCK_SKEW_SECONDS);
        let select = TokenFamilyRow::select(Scope::System);
        let select = select.filter(token_families::revoked_at, Comparison::Above, since);
        let (families, more_families) = self.parts.records.first(select, most).await?;
        let mut ids = BTreeSet::new();
        for row in tokens {
            ids.insert(RevokedTokenRow::decode(row)?.token_id);
        }
        for row in families {
            ids.insert(TokenFamilyRow::decode(row)?.id.to_string());
        }
        Ok((ids, more_tokens || more_families))
    }

    /// The key that seals secrets in the store.
    #[must_use]
    pub const fn seal(&self) -> &Secret {
        &self.parts.seal
    }

    /// Refreshes after a local change and announces it to other nodes.
    pub(crate) async fn refresh_and_announce(&self) -> Result<(), EngineError> {
        self.refresh().await?;
        // A node that misses the message polls.
        let _ = self.parts.bus.publish(TOPIC, Bytes::from_static(b"changed")).await;
        Ok(())
    }

    /// Deletes expired nonces, tokens, sign-ins and keys.
    pub async fn delete_expired_rows(&self) -> Result<(), EngineError> {
        // A nonce that is deleted too early can be used again.
        let now = self.parts.clock.earlier();
        let over = |(table, column): (&'static Table, &'static str)| Step::Delete {
            table,
            conditions: vec![Condition { column, compare: Comparison::AtMost, value: now.into() }],
            rows: RowCount::AtMost(u64::MAX),
        };
        // Delete tokens before the sign-ins they belong to.
        let expiring: [(&'static Table, &'static str); 4] = [
            (&NONCES, nonces::expires_at),
            (&REVOKED_TOKENS, revoked_tokens::expires_at),
            (&REFRESH_TOKENS, refresh_tokens::expires_at),
            (&TOKEN_FAMILIES, token_families::expires_at),
        ];
        let steps = expiring.map(over).to_vec();
        self.parts.records.commit(Tx { steps, ..Tx::default() }).await?;
        sweep_keys(self, now).await
    }

    /// Follows other nodes' changes and deletes what has expired, until stopped.
    pub async fn keep(&self, mut stopped: watch::Receiver<bool>) {
        let mut swept = self.parts.clock.steady();
        let mut looked = swept;
        let mut changes = match self.parts.bus.subscribe(TOPIC).await {
            Ok(heard) => heard,
            Err(_) => futures::stream::pending::<BusEvent>().boxed(),
        };
        loop {
            tokio::select! {
                biased;
                _ = stopped.wait_for(|stopped| *stopped) => break,
                Some(_) = changes.next() => {}
                () = tokio::time::sleep(limits::DIRECTORY_POLL_INTERVAL) => {}
            }
            let now = self.parts.clock.steady();
            record_floods(self, Some(now)).await;
            if now >= swept.plus_seconds(limits::EXPIRED_SWEEP_SECONDS) {
                swept = now;
                if let Err(error) = self.delete_expired_rows().await {
                    tracing::warn!(error = %error, "expired rows could not be deleted");
                }
            }
            // No other process writes here. But a local change may have been cancelled before it was read back.
            if self.parts.alone
                && !self.is_stale()
                && now < looked.plus_seconds(limits::DIRECTORY_SINGLE_NODE_POLL_SECONDS)
            {
                continue;
            }
            looked = now;
            if let Err(error) = self.refresh().await {
                tracing::warn!(error = %error, "the registry of actors could not be refreshed");
            }
        }
        record_floods(self, None).await;
    }
}

impl Tenancy for Directory {
    fn guest(&self, tenant: &str) -> Option<Arc<Guest>> {
        let guest = || {
            let shared = self.tenant(tenant).shared.clone();
            let slug = self.snapshot().slug_of(tenant).to_owned();
            Arc::new(Guest { id: tenant.to_owned(), slug, shared })
        };
        (tenant != self.settings.tenant).then(guest)
    }

    fn id_of_slug(&self, slug: &str) -> Option<String> {
        let id = self.snapshot().find_by_slug(slug)?.id.clone();
        (id != self.settings.tenant).then_some(id)
    }

    fn is_shared(&self) -> bool {
        self.snapshot().shared_by_tenants
    }
}

/// The associated data of a sealed key.
pub(crate) fn key_context(actor: &str, key: Uuid) -> String {
    format!("{actor}:{key}")
}
