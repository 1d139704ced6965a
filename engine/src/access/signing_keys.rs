//! Managing the signing keys of actors: add, list, rotate, revoke.
//!
//! An actor manages its own keys, and whoever may change the registry those of actors with no more rights. A public key
//! belongs to one actor for good: nobody else can add it, and once it was revoked, nobody can.

use super::actors::{check_retired, check_spelling, ensure_tenant, expect_actor_limits, record_in, show_actor};
use super::directory::{Directory, Snapshot};
use super::permit::{ACTORS_WRITE, Permit};
use super::rank::check_rank;
use super::registry_change::{change_registry, expect_registry};
use super::signing_key_cache::has_credential;
use super::signing_key_limits::{check_limits, check_period, check_words, overlap_end};
use crate::error::EngineError;
use crate::ledger::audit;
use crate::rows;
use chimera_core::access::tables::{SIGNING_KEYS, SigningKeyRow, signing_keys};
use chimera_core::access::{ANONYMOUS, Ed25519PublicKey, SigningKey, SigningKeyStanding, is_kid};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::limits::SIGNING_KEY_REASON_CHARS_MAX;
use chimera_core::record::{
    Comparison, Condition, Insert, InvalidTx, RowCount, Scope, Step, StoredRow, Tx, Update, Value,
};
use chimera_core::time::Timestamp;
use futures::FutureExt;
use serde_json::json;

/// A key that somebody wants to add.
#[derive(Clone, Debug, Default)]
pub struct NewSigningKey {
    /// In one of the forms that [`Ed25519PublicKey::parse`] reads.
    pub public_key: String,
    pub label: Option<String>,
    /// Now if absent.
    pub not_before: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
}

/// A key and what it counts as now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SigningKeyView {
    pub key: SigningKey,
    pub standing: SigningKeyStanding,
    /// The tenant's slug.
    pub tenant: String,
}

/// A key after it was added.
#[derive(Clone, Debug)]
pub struct AddedSigningKey {
    pub added: SigningKeyView,
    /// False if the actor had it before.
    pub is_new: bool,
}

/// A key that replaces another.
#[derive(Clone, Debug)]
pub struct RotatedSigningKey {
    pub added: SigningKeyView,
    pub replaced: SigningKeyView,
}

/// The keys of an actor: those that are valid, will be, or ended lately, in the order of their creation.
pub fn list_signing_keys(
    directory: &Directory,
    permit: &Permit,
    actor: &str,
) -> Result<Vec<SigningKeyView>, EngineError> {
    let shown = show_actor(directory, permit, actor)?;
    let snapshot = directory.snapshot();
    let keys = snapshot.signing_keys.recent(&shown.entry.tenant, actor);
    let mut views: Vec<_> = keys.map(|key| view_of(directory, &snapshot, key)).collect();
    views.sort_by(|one, other| (one.key.created_at, &one.key.kid).cmp(&(other.key.created_at, &other.key.kid)));
    Ok(views)
}

/// Adds a key. If the actor has it already, nothing changes.
pub async fn add_signing_key(
    directory: &Directory,
    permit: &Permit,
    actor: &str,
    new: NewSigningKey,
) -> Result<AddedSigningKey, EngineError> {
    let add = |permit: Permit| {
        let new = new.clone();
        async move { try_add(directory, &permit, actor, &new).await }.boxed()
    };
    change_registry(directory, permit, add).await
}

async fn try_add(
    directory: &Directory,
    permit: &Permit,
    actor: &str,
    new: &NewSigningKey,
) -> Result<AddedSigningKey, EngineError> {
    let snapshot = directory.snapshot();
    let tenant = check_holder(directory, permit, &snapshot, actor)?;
    let public = parse_public_key(&new.public_key)?;
    if let Some(held) = find_held(directory, &tenant, actor, &public).await? {
        return Ok(AddedSigningKey { added: view_of(directory, &snapshot, &held), is_new: false });
    }
    let now = directory.parts.clock.now();
    let key = new_key(permit, new, (&tenant, actor), public, now)?;
    check_limits(directory, &snapshot, &tenant, actor, None)?;
    let mut tx = insert(directory, permit, &snapshot, &key).await?;
    let event = permit.event(actor, "actor.signing_key_created", entry_data(&key));
    record_in(directory, &mut tx, permit, &tenant, event)?;
    audit::commit(&*directory.parts.records, tx).await?;
    directory.refresh_and_announce().await?;
    Ok(AddedSigningKey { added: view_of(directory, &directory.snapshot(), &key), is_new: true })
}

/// Adds a key that replaces another, which expires after an overlap: a day if none is given.
pub async fn rotate_signing_key(
    directory: &Directory,
    permit: &Permit,
    kid: &str,
    new: NewSigningKey,
    overlap_seconds: Option<u32>,
) -> Result<RotatedSigningKey, EngineError> {
    let rotate = |permit: Permit| {
        let new = new.clone();
        async move { try_rotate(directory, &permit, kid, &new, overlap_seconds).await }.boxed()
    };
    change_registry(directory, permit, rotate).await
}

async fn try_rotate(
    directory: &Directory,
    permit: &Permit,
    kid: &str,
    new: &NewSigningKey,
    overlap_seconds: Option<u32>,
) -> Result<RotatedSigningKey, EngineError> {
    let snapshot = directory.snapshot();
    let old = find_managed(directory, permit, &snapshot, kid).await?;
    let (tenant, actor) = (old.tenant.as_str(), old.actor.as_str());
    check_holder(directory, permit, &snapshot, actor)?;
    let public = parse_public_key(&new.public_key)?;
    if public == old.public {
        let message = "the new key is the one that it replaces; generate another";
        return Err(ErrorBody::new(Code::ValidationFailed, message).with("pointer", "/public_key").into());
    }
    let now = directory.parts.clock.now();
    let held = find_held(directory, tenant, actor, &public).await?;
    // Once it has expired, only a repeated request finds it replaced.
    if !old.is_usable(now) && (held.is_none() || old.revocation.is_some()) {
        return Err(ended(&old, now));
    }
    let end = overlap_end(overlap_seconds, now)?;
    let until = old.expires_at.map_or(end, |until| until.min(end));
    let replaced = SigningKey { expires_at: Some(until), ..old.clone() };
    let key = match &held {
        Some(held) => held.clone(),
        None => new_key(permit, new, (tenant, actor), public, now)?,
    };
    if held.is_some() && old.expires_at == Some(until) {
        return Ok(rotated(directory, &snapshot, &key, &replaced));
    }
    let mut tx = match held {
        Some(_) => {
            let mut tx = Tx::default();
            expect_registry(&mut tx, &snapshot, tenant)?;
            tx
        }
        None => {
            check_limits(directory, &snapshot, tenant, actor, Some(&replaced))?;
            insert(directory, permit, &snapshot, &key).await?
        }
    };
    tx.updates.push(change_unrevoked(kid, vec![(signing_keys::expires_at, until.into())])?);
    let mut data = entry_data(&key);
    data["replaced"] = kid.into();
    data["replaced_until"] = until.to_string().into();
    record_in(directory, &mut tx, permit, tenant, permit.event(actor, "actor.signing_key_rotated", data))?;
    audit::commit(&*directory.parts.records, tx).await?;
    directory.refresh_and_announce().await?;
    Ok(rotated(directory, &directory.snapshot(), &key, &replaced))
}

/// Revokes a key at once and for good. If it was revoked before, nothing changes.
pub async fn revoke_signing_key(
    directory: &Directory,
    permit: &Permit,
    kid: &str,
    reason: Option<&str>,
) -> Result<SigningKeyView, EngineError> {
    let revoke = |permit: Permit| async move { try_revoke(directory, &permit, kid, reason).await }.boxed();
    change_registry(directory, permit, revoke).await
}

async fn try_revoke(
    directory: &Directory,
    permit: &Permit,
    kid: &str,
    reason: Option<&str>,
) -> Result<SigningKeyView, EngineError> {
    let snapshot = directory.snapshot();
    let key = find_managed(directory, permit, &snapshot, kid).await?;
    if permit.actor() != key.actor {
        check_rank(directory, permit, &show_actor(directory, permit, &key.actor)?.entry)?;
    }
    check_words("/reason", "a reason", reason, SIGNING_KEY_REASON_CHARS_MAX)?;
    if key.revocation.is_some() {
        return Ok(view_of(directory, &snapshot, &key));
    }
    let now = directory.parts.clock.now();
    let set = vec![
        (signing_keys::revoked_at, now.into()),
        (signing_keys::revoked_by, permit.actor().into()),
        (signing_keys::reason, reason.map(str::to_owned).into()),
    ];
    let mut tx = Tx { updates: vec![change_unrevoked(kid, set)?], ..Tx::default() };
    let data = json!({"kid": kid, "reason": reason});
    let event = permit.event(key.actor.as_str(), "actor.signing_key_revoked", data);
    record_in(directory, &mut tx, permit, &key.tenant, event)?;
    audit::commit(&*directory.parts.records, tx).await?;
    directory.refresh_and_announce().await?;
    let revoked = stored(directory, kid).await?.unwrap_or(key);
    Ok(view_of(directory, &directory.snapshot(), &revoked))
}

/// Revokes all keys of an actor, which is removed.
pub(super) fn end_signing_keys(actor: &str, by: &str, now: Timestamp) -> Result<Step, InvalidTx> {
    let is = |column, value| Condition { column, compare: Comparison::Is, value };
    let conditions = vec![is(signing_keys::actor, actor.into()), is(signing_keys::revoked_at, Value::Null)];
    let set = vec![
        (signing_keys::revoked_at, now.into()),
        (signing_keys::revoked_by, by.into()),
        (signing_keys::reason, "the actor was removed".into()),
    ];
    Step::update(&SIGNING_KEYS, conditions, set, RowCount::AtMost(u64::MAX))
}

/// Refuses a caller who may not give this actor a key. Returns the actor's tenant.
fn check_holder(
    directory: &Directory,
    permit: &Permit,
    snapshot: &Snapshot,
    actor: &str,
) -> Result<String, EngineError> {
    let is_own = actor == permit.actor();
    if !is_own {
        permit.require(ACTORS_WRITE)?;
    }
    check_retired(directory, permit, actor)?;
    let shown = show_actor(directory, permit, actor)?;
    let refused = |message: &str| Err(ErrorBody::new(Code::ValidationFailed, message).with("pointer", "/id").into());
    match actor {
        ANONYMOUS => return refused("anonymous stands for every caller without a token and has no keys"),
        pattern if pattern.contains('*') => {
            return refused("a pattern cannot have a signing key: give each actor its own");
        }
        _ => {}
    }
    match is_own {
        true => check_own_credential(directory, permit, snapshot)?,
        false => {
            // Whoever adds a key for an actor can act as that actor.
            check_rank(directory, permit, &shown.entry)?;
            check_spelling(directory, actor)?;
        }
    }
    Ok(shown.entry.tenant)
}

/// Refuses a caller who proved who they are with something that others have too. A key of its own would outlast it, also
/// when the actor gets more rights than the others.
fn check_own_credential(directory: &Directory, permit: &Permit, snapshot: &Snapshot) -> Result<(), EngineError> {
    let (actor, now) = (permit.actor(), directory.parts.clock.now());
    let is_own = |id| snapshot.own_keys(actor, now).any(|key| key.id == id) || has_credential(snapshot, actor, id, now);
    let credential = permit.credential();
    if !permit.is_registered() || credential.key_of.is_none() && credential.key.is_some_and(is_own) {
        return Ok(());
    }
    let message =
        "you signed in with a key that others share, which can't add a key of your own; ask an admin to add it";
    Err(ErrorBody::new(Code::RbacForbidden, message).with("reason", "shared key").into())
}

/// The key with this id, if the caller may manage it.
async fn find_managed(
    directory: &Directory,
    permit: &Permit,
    snapshot: &Snapshot,
    kid: &str,
) -> Result<SigningKey, EngineError> {
    let found = match snapshot.signing_key(kid) {
        Some(key) => Some((**key).clone()),
        None if is_kid(kid) => stored(directory, kid).await?,
        None => None,
    };
    let is_seen = |key: &SigningKey| key.tenant == permit.tenant() || directory.is_operator(permit);
    let found = found.filter(is_seen);
    if found.as_ref().is_none_or(|key| key.actor != permit.actor()) {
        permit.require(ACTORS_WRITE)?;
    }
    found.ok_or_else(|| EngineError::unknown("signing key", kid))
}

/// The key as the actor has it already. Somebody else's, and one that has ended, is refused.
async fn find_held(
    directory: &Directory,
    tenant: &str,
    actor: &str,
    public: &Ed25519PublicKey,
) -> Result<Option<SigningKey>, EngineError> {
    let Some(key) = stored(directory, &public.kid()).await? else { return Ok(None) };
    if key.actor != actor || key.tenant != tenant {
        let message = "the public key is already registered; generate another";
        return Err(conflict(message, "key_taken"));
    }
    let now = directory.parts.clock.now();
    if key.is_usable(now) { Ok(Some(key)) } else { Err(ended(&key, now)) }
}

async fn stored(directory: &Directory, kid: &str) -> Result<Option<SigningKey>, EngineError> {
    let select = SigningKeyRow::select(Scope::System).with(signing_keys::kid, kid);
    let row: Option<SigningKeyRow> = rows::find(&*directory.parts.records, select).await?;
    let read = |row| SigningKey::from_row(row, None);
    row.map(read).transpose().map_err(|error| {
        tracing::warn!(kid, %error, "a signing key can't be read");
        EngineError::refused(Code::StoreDamaged, "the stored signing key can't be read")
    })
}

fn ended(key: &SigningKey, now: Timestamp) -> EngineError {
    match key.standing(now) {
        SigningKeyStanding::Revoked => {
            conflict("the key was revoked and can't be used again; generate another", "key_revoked")
        }
        _ => conflict("the key has expired; generate another", "key_expired"),
    }
}

fn conflict(message: &str, reason: &str) -> EngineError {
    ErrorBody::new(Code::InvalidTransition, message).with("pointer", "/public_key").with("reason", reason).into()
}

fn parse_public_key(text: &str) -> Result<Ed25519PublicKey, EngineError> {
    Ed25519PublicKey::parse(text)
        .map_err(|why| ErrorBody::new(Code::ValidationFailed, why.to_string()).with("pointer", "/public_key").into())
}

fn new_key(
    permit: &Permit,
    new: &NewSigningKey,
    (tenant, actor): (&str, &str),
    public: Ed25519PublicKey,
    now: Timestamp,
) -> Result<SigningKey, EngineError> {
    let not_before = check_period(new, now)?;
    Ok(SigningKey {
        kid: public.kid(),
        tenant: tenant.to_owned(),
        actor: actor.to_owned(),
        public,
        label: new.label.clone(),
        created_at: now,
        created_by: permit.actor().to_owned(),
        not_before,
        expires_at: new.expires_at,
        revocation: None,
    })
}

/// A transaction that adds a key.
async fn insert(
    directory: &Directory,
    permit: &Permit,
    snapshot: &Snapshot,
    key: &SigningKey,
) -> Result<Tx, EngineError> {
    ensure_tenant(directory, permit, &key.tenant).await?;
    let cells = vec![
        (signing_keys::kid, key.kid.as_str().into()),
        (signing_keys::tenant_id, key.tenant.as_str().into()),
        (signing_keys::actor, key.actor.as_str().into()),
        (signing_keys::public_key, key.public.to_bytes().to_vec().into()),
        (signing_keys::label, key.label.clone().into()),
        (signing_keys::created_at, key.created_at.into()),
        (signing_keys::created_by, key.created_by.as_str().into()),
        (signing_keys::not_before, key.not_before.into()),
        (signing_keys::expires_at, key.expires_at.into()),
    ];
    let mut tx = Tx { inserts: vec![Insert::new(&SIGNING_KEYS, cells)?], ..Tx::default() };
    expect_registry(&mut tx, snapshot, &key.tenant)?;
    expect_actor_limits(directory, &mut tx, permit, snapshot, &key.tenant).await?;
    Ok(tx)
}

/// A change of a key that conflicts once the key is revoked.
fn change_unrevoked(kid: &str, set: Vec<(&'static str, Value)>) -> Result<Update, InvalidTx> {
    Update::new(&SIGNING_KEYS, vec![kid.into()], vec![(signing_keys::revoked_at, Value::Null)], set)
}

/// What the ledger keeps of a key: enough to verify old signatures with it.
fn entry_data(key: &SigningKey) -> serde_json::Value {
    json!({
        "kid": key.kid,
        "x": key.public.x(),
        "label": key.label,
        "not_before": key.not_before.to_string(),
        "expires_at": key.expires_at.map(|at| at.to_string()),
    })
}

fn view_of(directory: &Directory, snapshot: &Snapshot, key: &SigningKey) -> SigningKeyView {
    let standing = key.standing(directory.parts.clock.now());
    SigningKeyView { key: key.clone(), standing, tenant: snapshot.slug_of(&key.tenant).to_owned() }
}

fn rotated(directory: &Directory, snapshot: &Snapshot, added: &SigningKey, replaced: &SigningKey) -> RotatedSigningKey {
    let view = |key| view_of(directory, snapshot, key);
    RotatedSigningKey { added: view(added), replaced: view(replaced) }
}
