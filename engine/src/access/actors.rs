//! Managing the registry of actors and their keys.
//!
//! A stored entry overrides the configured one. A key is shown once, when it is created; the store holds it sealed.
//! While a new key replaces an old one, both are valid.

use super::directory::{Directory, Snapshot, key_context};
use super::permit::{ACTORS_READ, ACTORS_WRITE, Permit};
use super::rank::{check_entry_write, check_rank};
use super::registry_change::{change_registry, expect_registry};
use super::remove::{end_links, is_retired};
use super::tenants::names_tenant;
use crate::error::EngineError;
use crate::ledger::audit::{self, EventRecord, Writer};
use crate::port::CommitError;
use crate::rows;
use chimera_core::access::registry::{ActorEntry, InvalidActorEntry, Kind, check_new_name, is_actor_name};
use chimera_core::access::tables::{ACTOR_KEYS, ACTORS, ActorRow, TENANTS, actor_keys, actors, tenants};
use chimera_core::access::{ADMIN, EntrySource, Pool, check_mail, person, seal};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::limits::{
    ACTOR_KEY_CHARS_MIN, ACTOR_KEYS_MAX, ACTORS_MAX, ACTORS_OWN_MIN, ADMIN_QUOTA_MIN, FORMER_MAILS_MAX,
    ROLES_NAMED_MAX, TENANT_ACTORS_MAX,
};
use chimera_core::record::{Conflict, DamagedRows, Insert, Json, Scope, Select, StoredRow, Tx, Update, Value};
use chimera_core::secret::Secret;
use chimera_core::text::did_you_mean;
use chimera_core::time::Timestamp;
use futures::FutureExt;
use serde_json::json;
use uuid::Uuid;

/// An actor as it is shown to callers.
#[derive(Clone, Debug, PartialEq)]
pub struct ActorView {
    /// The effective entry, as written.
    pub entry: ActorEntry,
    /// Its own scopes and those of its roles.
    pub effective_scopes: Vec<String>,
    /// The name or pattern of that entry; `None` if nothing matches.
    pub matched: Option<String>,
    pub source: EntrySource,
    /// The number of valid keys.
    pub keys: usize,
    /// The tenant's slug.
    pub tenant: String,
}

/// A new key, shown once.
#[derive(Debug)]
pub struct NewKey {
    pub id: Uuid,
    pub key: String,
    /// When the previous keys expire.
    pub before_until: Option<Timestamp>,
}

/// A key of an actor before it is sealed.
pub(super) struct KeyToStore<'a> {
    pub(super) tenant: &'a str,
    pub(super) actor: &'a str,
    pub(super) id: Uuid,
    pub(super) secret: &'a Secret,
    pub(super) from: Timestamp,
    pub(super) until: Option<Timestamp>,
}

/// The effective entry of an actor.
pub fn show_actor(directory: &Directory, permit: &Permit, id: &str) -> Result<ActorView, EngineError> {
    if id != permit.actor() && !permit.may(ACTORS_WRITE) {
        permit.require(ACTORS_READ)?;
    }
    if !is_actor_name(id) {
        return Err(EngineError::unknown("actor", id));
    }
    let shown = view_of(directory, &directory.snapshot(), id);
    if shown.entry.removed || shown.entry.tenant != permit.tenant() && !directory.is_operator(permit) {
        return Err(EngineError::unknown("actor", id));
    }
    Ok(shown)
}

/// All entries of a tenant, and all actors with a key but without an entry. An operator sees all tenants.
pub fn list_actors(directory: &Directory, permit: &Permit) -> Result<Vec<ActorView>, EngineError> {
    if !permit.may(ACTORS_WRITE) {
        permit.require(ACTORS_READ)?;
    }
    let snapshot = directory.snapshot();
    let all = directory.is_operator(permit);
    let holders = snapshot.key_holders(directory.parts.clock.now());
    let holders = holders.filter(|actor| snapshot.registry.entry(actor).is_none());
    let shown = snapshot.registry.entries().map(|entry| entry.id.as_str()).chain(holders);
    let shown = shown.map(|id| view_of(directory, &snapshot, id));
    Ok(shown.filter(|shown| all || shown.entry.tenant == permit.tenant()).collect())
}

pub(super) fn view_of(directory: &Directory, snapshot: &Snapshot, id: &str) -> ActorView {
    let now = directory.parts.clock.now();
    let entry = match snapshot.registry.entry(id) {
        Some(entry) => (**entry).clone(),
        None => (*snapshot.registry.configured(id)).clone(),
    };
    let known = snapshot.registry.entry(&entry.id).is_some();
    ActorView {
        matched: known.then(|| entry.id.clone()),
        source: if known { snapshot.source(&entry.id) } else { EntrySource::None },
        keys: snapshot.keys(id, now).count(),
        tenant: snapshot.slug_of(&entry.tenant).to_owned(),
        effective_scopes: snapshot.registry.roles().effective_scopes(&entry),
        entry: ActorEntry { id: id.to_owned(), ..entry },
    }
}

/// Creates or replaces an actor's entry. `slug` names the tenant; the default is the caller's.
pub async fn put_actor(
    directory: &Directory,
    permit: &Permit,
    entry: ActorEntry,
    slug: Option<&str>,
) -> Result<ActorView, EngineError> {
    let put = |permit: Permit| {
        let entry = entry.clone();
        async move { try_put_actor(directory, &permit, entry, slug).await }.boxed()
    };
    change_registry(directory, permit, put).await
}

async fn try_put_actor(
    directory: &Directory,
    permit: &Permit,
    entry: ActorEntry,
    slug: Option<&str>,
) -> Result<ActorView, EngineError> {
    permit.require(ACTORS_WRITE)?;
    let seen = directory.snapshot();
    let tenant = slug.map_or_else(|| permit.tenant().to_owned(), |slug| directory.snapshot().id_of(slug));
    let entry = ActorEntry { tenant, ..entry };
    entry.check().map_err(invalid_entry)?;
    check_spelling(directory, &entry.id)?;
    check_retired(directory, permit, &entry.id)?;
    check_entry_write(directory, permit, &entry)?;
    // Only now: these refusals reveal the tenant's roles and the owner of an address.
    check_roles(directory, &entry)?;
    check_mails(directory, &entry)?;
    check_admin(directory, &entry)?;
    let now = directory.parts.clock.now();
    let select = ActorRow::select(Scope::System).with(actors::id, entry.id.as_str());
    let row: Option<ActorRow> = rows::find(&*directory.parts.records, select).await?;
    if row.as_ref().is_some_and(|row| row.tenant_id != entry.tenant) {
        return Err(EngineError::refused(Code::RbacForbidden, "the actor belongs to another tenant"));
    }
    if row.as_ref().is_some_and(is_retired) {
        return Err(retired(&entry.id));
    }
    if row.is_none() {
        check_actor_limits(directory, &entry.tenant)?;
    }
    let before = match &row {
        Some(row) => Some(stored_entry(row)?),
        None => directory.snapshot().registry.entry(&entry.id).map(|entry| (**entry).clone()),
    };
    let entry = known_by(entry, before.as_ref())?;
    ensure_tenant(directory, permit, &entry.tenant).await?;
    let mut tx = Tx::default();
    expect_registry(&mut tx, &seen, &entry.tenant)?;
    if row.is_none() {
        expect_actor_limits(directory, &mut tx, permit, &seen, &entry.tenant).await?;
    }
    if before.is_some_and(|before| person::person_mail(&before) != person::person_mail(&entry)) {
        // Open links went to the earlier address.
        tx.steps.push(end_links(&entry.id, directory.parts.clock.steady())?);
    }
    match &row {
        None => tx.inserts.push(insert_entry(directory, &entry, now)?),
        Some(row) => tx.updates.push(update_entry(&entry, row, now)?),
    }
    let data = serde_json::to_value(&entry).unwrap_or_default();
    let event = permit.event(entry.id.as_str(), "actor.changed", data);
    record_in(directory, &mut tx, permit, &entry.tenant, event)?;
    audit::commit(&*directory.parts.records, tx).await?;
    directory.refresh_and_announce().await?;
    Ok(view_of(directory, &directory.snapshot(), &entry.id))
}

/// Refuses to take from `admin` what nobody else could restore.
fn check_admin(directory: &Directory, entry: &ActorEntry) -> Result<(), EngineError> {
    let whole = |entry: &ActorEntry| {
        let everything = entry.scopes.iter().any(|scope| scope == "*");
        everything && !entry.disabled && entry.kind == Kind::Human && entry.quota_per_minute >= ADMIN_QUOTA_MIN
    };
    if entry.id == ADMIN && entry.tenant != directory.settings.tenant {
        let message =
            format!("cannot move admin out of the tenant {}: no operator would be left", directory.settings.tenant);
        return Err(ErrorBody::new(Code::ValidationFailed, message).with("pointer", "/tenant").into());
    }
    if entry.id == ADMIN && !whole(entry) {
        let body = ErrorBody::new(
            Code::ValidationFailed,
            format!(
                "admin must stay a person with every scope and a quota of at least {ADMIN_QUOTA_MIN} requests a \
                 minute: nobody else could restore it"
            ),
        );
        return Err(body.with("pointer", "/scopes").into());
    }
    Ok(())
}

/// Refuses a new entry, or the first key of an actor without one, beyond the limits. No tenant can use up another's share, nor the default tenant's.
fn check_actor_limits(directory: &Directory, tenant: &str) -> Result<(), EngineError> {
    let (snapshot, own) = (directory.snapshot(), directory.settings.tenant.as_str());
    let now = directory.parts.clock.now();
    let is_known = |actor: &str| snapshot.registry.entry(actor).is_some();
    let holders = || snapshot.key_holders(now).filter(|actor| !is_known(actor));
    let count = |counts: &dyn Fn(&str) -> bool| {
        let entries = snapshot.registry.entries().filter(|entry| counts(&entry.tenant)).count();
        entries + holders().filter(|actor| counts(&snapshot.registry.resolve(actor).tenant)).count()
    };
    if count(&|_| true) >= ACTORS_MAX {
        return Err(EngineError::refused(
            Code::ValidationFailed,
            "the registry is full; remove actors that are not used",
        ));
    }
    if tenant == own {
        return Ok(());
    }
    let (taken, held) = (count(&|of| of != own), count(&|of| of == tenant));
    let pool = Pool { total: ACTORS_MAX - ACTORS_OWN_MIN, taken, held };
    if held < TENANT_ACTORS_MAX && pool.may_take_slot(true) {
        return Ok(());
    }
    let slug = snapshot.slug_of(tenant);
    let message = format!("the tenant {slug} has {held} actors, which is its limit; remove some that are not used");
    Err(EngineError::refused(Code::ValidationFailed, message))
}

/// Makes a transaction that adds an actor conflict if other tenants added some: there is a limit for all together.
pub(super) async fn expect_actor_limits(
    directory: &Directory,
    tx: &mut Tx,
    permit: &Permit,
    seen: &Snapshot,
    tenant: &str,
) -> Result<(), EngineError> {
    let own = directory.settings.tenant.as_str();
    if tenant == own {
        return Ok(());
    }
    ensure_tenant(directory, permit, own).await?;
    expect_registry(tx, seen, own)
}

/// Refuses a new name that people could confuse with another.
pub(super) fn check_spelling(directory: &Directory, actor: &str) -> Result<(), EngineError> {
    let snapshot = directory.snapshot();
    let known = snapshot.registry.entry(actor).is_some()
        || snapshot.own_keys(actor, directory.parts.clock.now()).next().is_some();
    if known { Ok(()) } else { check_new_name(actor).map_err(invalid_entry) }
}

/// Refuses the name of a removed actor of the caller's tenant. That of another tenant is refused as not the
/// caller's.
pub(super) fn check_retired(directory: &Directory, permit: &Permit, id: &str) -> Result<(), EngineError> {
    let snapshot = directory.snapshot();
    let seen = |entry: &ActorEntry| entry.tenant == permit.tenant() || directory.is_operator(permit);
    match snapshot.registry.removed(id).filter(|entry| seen(entry)) {
        Some(_) => Err(retired(id)),
        None => Ok(()),
    }
}

/// Refuses a new mail address that is not plain, or that another person has or had: both would count as one person,
/// and one could receive the other's mail. Entries with such an address may be changed in other ways.
fn check_mails(directory: &Directory, entry: &ActorEntry) -> Result<(), EngineError> {
    let refused = |message: String| ErrorBody::new(Code::ValidationFailed, message).with("pointer", "/notify/email");
    let snapshot = directory.snapshot();
    let before = snapshot.registry.configured(&entry.id);
    let mail = |entry: &ActorEntry| entry.notify.as_ref()?.get("email")?.as_str().map(str::to_owned);
    if let Some(mail) = mail(entry).filter(|_| mail(entry) != mail(&before)) {
        check_mail(&mail).map_err(|invalid_entry| refused(invalid_entry.to_string()))?;
    }
    let changed = person::person_mail(&before) != person::person_mail(entry);
    let Some(other) = snapshot.registry.find_mail_duplicate(entry).filter(|_| changed) else { return Ok(()) };
    let message = format!("{} has or had this mail address; two people cannot share one", other.id);
    let hint = "give each person their own address; people with one address count as one person";
    Err(refused(message).with("reason", "address_taken").with("hint", hint).into())
}

/// Refuses roles that the entry's tenant lacks, and lists those it has.
fn check_roles(directory: &Directory, entry: &ActorEntry) -> Result<(), EngineError> {
    let snapshot = directory.snapshot();
    let (roles, before) = (snapshot.registry.roles(), snapshot.registry.configured(&entry.id));
    roles.check(entry, Some(&before)).map_err(|reason| {
        let InvalidActorEntry::Role(name) = &reason else { return invalid_entry(reason) };
        let names = || roles.names(&entry.tenant);
        let message = format!("{reason}{}", did_you_mean(name, names()));
        let hint = match names().next() {
            Some(_) => format!("its roles are {}", names().take(ROLES_NAMED_MAX).collect::<Vec<_>>().join(", ")),
            None => "the tenant has no roles; define one with [[role]] in the file of access.actors_file".to_owned(),
        };
        ErrorBody::new(Code::ValidationFailed, message).with("pointer", "/roles").with("hint", hint).into()
    })
}

/// Stores a tenant that the configuration names. Any other has to be added by an operator.
pub(super) async fn ensure_tenant(directory: &Directory, permit: &Permit, tenant: &str) -> Result<(), EngineError> {
    let select = Select::from(&TENANTS, Scope::System).with(tenants::id, tenant).take(1);
    if !directory.parts.records.read(select).await?.rows.is_empty() {
        return Ok(());
    }
    if tenant != directory.settings.tenant && !names_tenant(directory, tenant) {
        let what =
            format!("there is no tenant {tenant}: an operator has to add it first, with chimera tenant add {tenant}");
        return Err(ErrorBody::new(Code::ValidationFailed, what).with("pointer", "/tenant").into());
    }
    let now = directory.parts.clock.now();
    let cells = vec![
        (tenants::id, tenant.into()),
        (tenants::slug, tenant.into()),
        (tenants::name, tenant.into()),
        (tenants::created_at, now.into()),
        (tenants::updated_at, now.into()),
    ];
    let mut tx = Tx { inserts: vec![Insert::new(&TENANTS, cells)?], ..Tx::default() };
    let added = json!({"slug": tenant, "name": tenant, "configured": true});
    let event = permit.event(tenant, "tenant.created", added);
    add_entry(directory, &mut tx, permit.recorded_in(&directory.settings.tenant, event))?;
    match audit::commit(&*directory.parts.records, tx).await {
        Ok(_) | Err(CommitError::Conflict(Conflict::Exists(_))) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn insert_entry(directory: &Directory, entry: &ActorEntry, now: Timestamp) -> Result<Insert, EngineError> {
    let mut cells = vec![
        (actors::id, entry.id.as_str().into()),
        (actors::tenant_id, entry.tenant.as_str().into()),
        (actors::identity_id, directory.parts.random.row_id(now).into()),
        (actors::created_at, now.into()),
    ];
    cells.extend(entry_cells(entry, now)?);
    Ok(Insert::new(&ACTORS, cells)?)
}

/// Adds a key. The previous keys expire after `overlap_seconds`; without it they stay valid.
pub async fn add_key(
    directory: &Directory,
    permit: &Permit,
    actor: &str,
    given: Option<String>,
    overlap_seconds: Option<i64>,
) -> Result<NewKey, EngineError> {
    let add = |permit: Permit| {
        let given = given.clone();
        async move { try_add_key(directory, &permit, actor, given, overlap_seconds).await }.boxed()
    };
    change_registry(directory, permit, add).await
}

async fn try_add_key(
    directory: &Directory,
    permit: &Permit,
    actor: &str,
    given: Option<String>,
    overlap_seconds: Option<i64>,
) -> Result<NewKey, EngineError> {
    permit.require(ACTORS_WRITE)?;
    let snapshot = directory.snapshot();
    check_retired(directory, permit, actor)?;
    let shown = show_actor(directory, permit, actor)?;
    // Whoever adds a key for an actor can act as that actor.
    check_rank(directory, permit, &shown.entry)?;
    check_spelling(directory, actor)?;
    if actor.contains('*') {
        return Err(EngineError::refused(
            Code::ValidationFailed,
            "a pattern cannot have a stored key: give each actor its own, or set access.hmac_actor to the pattern",
        ));
    }
    let now = directory.parts.clock.now();
    let (key, id) = (new_secret(directory, given)?, directory.parts.random.row_id(now));
    let tenant = shown.entry.tenant.as_str();
    let secret = Secret::new(key.as_str());
    let row = key_row(directory, &KeyToStore { tenant, actor, id, secret: &secret, from: now, until: None })?;
    ensure_tenant(directory, permit, tenant).await?;
    let mut tx = Tx { inserts: vec![row], ..Tx::default() };
    expect_registry(&mut tx, &snapshot, tenant)?;
    if snapshot.registry.entry(actor).is_none() && snapshot.own_keys(actor, now).next().is_none() {
        check_actor_limits(directory, tenant)?;
        expect_actor_limits(directory, &mut tx, permit, &snapshot, tenant).await?;
    }
    let before_until = overlap_seconds.map(|seconds| now.plus_seconds(seconds.max(0)));
    let mut held = 0;
    for key in snapshot.own_keys(actor, now) {
        held += 1;
        let Some(until) = before_until.filter(|until| key.until.is_none_or(|before| *until < before)) else {
            continue;
        };
        if key.stored {
            let set = vec![(actor_keys::expires_at, until.into())];
            tx.updates.push(Update::new(&ACTOR_KEYS, vec![key.id.into()], Vec::new(), set)?);
        } else {
            // The row stores the expiry; without one the configured key never expires.
            let (id, secret) = (key.id, &key.secret);
            let expiring = KeyToStore { tenant, actor, id, secret, from: now, until: Some(until) };
            tx.inserts.push(key_row(directory, &expiring)?);
        }
    }
    if held >= ACTOR_KEYS_MAX && before_until.is_none_or(|until| until > now) {
        return Err(EngineError::refused(
            Code::ValidationFailed,
            format!("an actor can have at most {ACTOR_KEYS_MAX} keys"),
        ));
    }
    let data = json!({"key_id": id, "before_until": before_until.map(|until| until.to_string())});
    record_in(directory, &mut tx, permit, tenant, permit.event(actor, "actor.key_created", data))?;
    audit::commit(&*directory.parts.records, tx).await?;
    directory.refresh_and_announce().await?;
    Ok(NewKey { id, key, before_until })
}

/// The row of a sealed key.
pub(super) fn key_row(directory: &Directory, key: &KeyToStore<'_>) -> Result<Insert, EngineError> {
    let KeyToStore { tenant, actor, id, secret, from, until } = *key;
    let mut nonce = [0; 24];
    directory.parts.random.fill(&mut nonce);
    let sealing = directory.parts.seal.expose().try_into().ok();
    let sealed = sealing.and_then(|sealing| seal::seal(sealing, &key_context(actor, id), nonce, secret));
    let sealed = sealed.ok_or_else(|| EngineError::refused(Code::Internal, "the key can't be sealed"))?;
    let cells = vec![
        (actor_keys::id, id.into()),
        (actor_keys::actor_id, actor.into()),
        (actor_keys::tenant_id, tenant.into()),
        (actor_keys::sealed_key, sealed.into()),
        (actor_keys::not_before, from.into()),
        (actor_keys::expires_at, until.into()),
        (actor_keys::created_at, from.into()),
    ];
    Ok(Insert::new(&ACTOR_KEYS, cells)?)
}

fn new_secret(directory: &Directory, given: Option<String>) -> Result<String, EngineError> {
    let Some(key) = given else {
        let mut bytes = [0; 32];
        directory.parts.random.fill(&mut bytes);
        return Ok(hex::encode(bytes));
    };
    if key.chars().count() < ACTOR_KEY_CHARS_MIN {
        let message = format!("a key must have at least {ACTOR_KEY_CHARS_MIN} characters");
        return Err(EngineError::refused(Code::ValidationFailed, message));
    }
    Ok(key)
}

/// Records a change of something that belongs to `tenant` there and, if that is another tenant, in the caller's own
/// ledger.
pub(super) fn record_in(
    directory: &Directory,
    tx: &mut Tx,
    permit: &Permit,
    tenant: &str,
    event: EventRecord,
) -> Result<(), EngineError> {
    record(directory, tx, permit, permit.recorded_in(tenant, event))
}

pub(super) fn record(
    directory: &Directory,
    tx: &mut Tx,
    permit: &Permit,
    event: EventRecord,
) -> Result<(), EngineError> {
    add_entry(directory, tx, event)?;
    permit.add_alongside(tx);
    Ok(())
}

pub(super) fn add_entry(directory: &Directory, tx: &mut Tx, event: EventRecord) -> Result<(), EngineError> {
    Writer { random: &*directory.parts.random, clock: &*directory.parts.clock }.event(tx, event)?;
    Ok(())
}

/// The entry with the mail addresses that its person had before.
fn known_by(entry: ActorEntry, before: Option<&ActorEntry>) -> Result<ActorEntry, EngineError> {
    let Some(before) = before else { return Ok(entry) };
    let entry = person::replacing(entry, before);
    if entry.former_mails.len() > FORMER_MAILS_MAX {
        let message = format!(
            "{} has had {FORMER_MAILS_MAX} mail addresses, which is the limit; remove it and register the person \
             under another name",
            entry.id
        );
        return Err(ErrorBody::new(Code::ValidationFailed, message).with("pointer", "/notify/email").into());
    }
    Ok(entry)
}

pub(super) fn update_entry(entry: &ActorEntry, row: &ActorRow, now: Timestamp) -> Result<Update, EngineError> {
    Ok(Update::versioned(&ACTORS, vec![entry.id.as_str().into()], row.state_version, entry_cells(entry, now)?)?)
}

/// The entry of a row.
pub fn stored_entry(row: &ActorRow) -> Result<ActorEntry, DamagedRows> {
    Ok(ActorEntry {
        id: row.id.clone(),
        tenant: row.tenant_id.clone(),
        kind: row.kind,
        scopes: row.scopes.clone(),
        roles: row.roles.clone(),
        quota_per_minute: row.quota_per_minute,
        level: row.autonomy_level,
        notify: row.notify.as_ref().map(Json::value).transpose()?,
        disabled: row.disabled,
        former_mails: row.former_mails.clone().unwrap_or_default(),
        removed: row.removed_at.is_some(),
    })
}

fn entry_cells(entry: &ActorEntry, now: Timestamp) -> Result<Vec<(&'static str, Value)>, EngineError> {
    let notify = entry.notify.as_ref().map(Json::encode).transpose()?;
    Ok(vec![
        (actors::kind, entry.kind.into()),
        (actors::scopes, entry.scopes.clone().into()),
        (actors::roles, entry.roles.clone().into()),
        (actors::quota_per_minute, entry.quota_per_minute.into()),
        (actors::autonomy_level, entry.level.into()),
        (actors::notify, notify.into()),
        (actors::disabled, entry.disabled.into()),
        (actors::updated_at, now.into()),
        (actors::former_mails, entry.former_mails.clone().into()),
        (actors::removed_at, entry.removed.then_some(now).into()),
    ])
}

fn retired(id: &str) -> EngineError {
    let message = format!("`{id}` was removed and its name is retired; choose another name");
    let body = ErrorBody::new(Code::ValidationFailed, message).with("pointer", "/id");
    body.with("reason", "name_retired").into()
}

fn invalid_entry(reason: InvalidActorEntry) -> EngineError {
    let pointer = match &reason {
        InvalidActorEntry::Name | InvalidActorEntry::Spelling(_) => "/id",
        InvalidActorEntry::Everything | InvalidActorEntry::Scope(_) => "/scopes",
        InvalidActorEntry::TooMany { member, .. } => member,
        InvalidActorEntry::Role(_) => "/roles",
        InvalidActorEntry::Tenant(_) => "/tenant",
        InvalidActorEntry::Silent => "/autonomy_level",
    };
    let code =
        if matches!(reason, InvalidActorEntry::Tenant(_)) { Code::SchemaInvalid } else { Code::ValidationFailed };
    ErrorBody::new(code, reason.to_string()).with("pointer", pointer).into()
}
