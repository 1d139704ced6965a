//! Removing an actor: ends its keys, sign-ins and approval links, and retires its name, in one transaction.
//!
//! A removed name is never given to anybody else, because runs, decisions and idempotency keys are recorded under it. Its
//! row stays, disabled and without rights. A name that the configuration holds stays the configuration's: only the
//! stored entry goes, and the configured one applies again.

use super::actors::{
    ActorView, KeyToStore, ensure_tenant, insert_entry, key_row, record_in, show_actor, stored_entry, update_entry,
    view_of,
};
use super::directory::Directory;
use super::permit::{ACTORS_WRITE, Permit};
use super::rank::check_rank;
use super::registry_change::{change_registry, expect_registry};
use super::signing_keys::end_signing_keys;
use crate::error::EngineError;
use crate::ledger::audit;
use crate::rows;
use chimera_core::access::person;
use chimera_core::access::registry::ActorEntry;
use chimera_core::access::tables::{
    ACTOR_KEYS, ACTORS, APPROVAL_LINKS, ActorRow, TOKEN_FAMILIES, actor_keys, actors, approval_links, token_families,
};
use chimera_core::access::{ADMIN, ANONYMOUS, EntrySource};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::limits::REMOVED_ACTORS_MAX;
use chimera_core::record::{Comparison, Condition, InvalidTx, RowCount, Scope, Step, StoredRow, Tx, Update, Value};
use chimera_core::time::Timestamp;
use futures::FutureExt;
use serde_json::json;

/// Removes an actor's stored entry and ends its keys and sign-ins. Returns what applies to the name from now on.
pub async fn remove_actor(directory: &Directory, permit: &Permit, id: &str) -> Result<ActorView, EngineError> {
    change_registry(directory, permit, |permit| async move { try_remove_actor(directory, &permit, id).await }.boxed())
        .await
}

async fn try_remove_actor(directory: &Directory, permit: &Permit, id: &str) -> Result<ActorView, EngineError> {
    permit.require(ACTORS_WRITE)?;
    let seen = directory.snapshot();
    let shown = show_actor(directory, permit, id)?;
    check_removal(directory, permit, &shown.entry)?;
    let now = directory.parts.clock.now();
    let select = ActorRow::select(Scope::System).with(actors::id, id);
    let row: Option<ActorRow> = rows::find(&*directory.parts.records, select).await?;
    let mut tx = Tx::default();
    let keys = end_keys(directory, &mut tx, &shown.entry)?;
    let signing_keys = seen.signing_keys.recent(&shown.entry.tenant, id).filter(|key| key.is_usable(now)).count();
    if row.as_ref().is_some_and(is_retired) || row.is_none() && keys + signing_keys == 0 {
        return Err(nothing_to_remove(&shown));
    }
    ensure_tenant(directory, permit, &shown.entry.tenant).await?;
    expect_registry(&mut tx, &seen, &shown.entry.tenant)?;
    retire(directory, &mut tx, &shown.entry, row.as_ref(), now)?;
    tx.steps.push(end_sign_ins(id, now)?);
    tx.steps.push(end_signing_keys(id, permit.actor(), now)?);
    tx.steps.push(end_links(id, directory.parts.clock.steady())?);
    let data = json!({"entry": row.is_some(), "keys_ended": keys, "signing_keys_ended": signing_keys});
    record_in(directory, &mut tx, permit, &shown.entry.tenant, permit.event(id, "actor.removed", data))?;
    audit::commit(&*directory.parts.records, tx).await?;
    directory.refresh_and_announce().await?;
    Ok(view_of(directory, &directory.snapshot(), id))
}

/// Retires the name of an entry. A pattern is nobody's name, and a configured name keeps its configured entry: of
/// these only the row goes.
fn retire(
    directory: &Directory,
    tx: &mut Tx,
    entry: &ActorEntry,
    row: Option<&ActorRow>,
    now: Timestamp,
) -> Result<(), EngineError> {
    let id = entry.id.as_str();
    if entry.is_pattern() || configured(directory, id).is_some() {
        tx.steps.extend(row.map(|row| {
            let conditions =
                vec![equals(actors::id, id.into()), equals(actors::state_version, row.state_version.into())];
            Step::Delete { table: &ACTORS, conditions, rows: RowCount::Exactly(1) }
        }));
        return Ok(());
    }
    if directory.snapshot().registry.removed_of(&entry.tenant) >= REMOVED_ACTORS_MAX {
        let message = format!(
            "cannot remove {id}: the tenant has {REMOVED_ACTORS_MAX} removed actors, which is the limit; disable it \
             instead"
        );
        return Err(ErrorBody::new(Code::ValidationFailed, message).with("pointer", "/id").into());
    }
    match row {
        Some(row) => tx.updates.push(update_entry(&person::retired(&stored_entry(row)?), row, now)?),
        None => tx.inserts.push(insert_entry(directory, &person::retired(entry), now)?),
    }
    Ok(())
}

/// An actor's exact entry as the store has it at this moment, and a step that fails the transaction if it has
/// changed since.
pub(crate) async fn stored_person(directory: &Directory, id: &str) -> Result<(Option<ActorEntry>, Step), EngineError> {
    let select = ActorRow::select(Scope::System).with(actors::id, id);
    let row: Option<ActorRow> = rows::find(&*directory.parts.records, select).await?;
    let (mut conditions, count) = (vec![equals(actors::id, id.into())], u64::from(row.is_some()));
    conditions.extend(row.iter().map(|row| equals(actors::state_version, row.state_version.into())));
    let unchanged = Step::Lock { table: &ACTORS, conditions, rows: RowCount::Exactly(count) };
    let entry = match row {
        Some(row) => Some(stored_entry(&row)?),
        None => configured(directory, id),
    };
    Ok((entry, unchanged))
}

/// The entry of this name in the shipped registry or the configuration, which applies once the stored one is gone.
fn configured(directory: &Directory, id: &str) -> Option<ActorEntry> {
    directory.registry(&[], &directory.snapshot()).entry(id).map(|entry| (**entry).clone())
}

/// Refuses to remove `admin`, the caller, or an actor with more rights than the caller's; and to lift a restriction
/// by removing the entry that imposes it.
fn check_removal(directory: &Directory, permit: &Permit, entry: &ActorEntry) -> Result<(), EngineError> {
    let refused = |message: &str| {
        let body = ErrorBody::new(Code::ValidationFailed, message).with("pointer", "/id");
        Err(EngineError::from(body))
    };
    if entry.id == ADMIN {
        return refused("cannot remove admin: no operator would be left");
    }
    if entry.id == permit.actor() {
        return refused("you cannot remove yourself; ask another operator");
    }
    check_rank(directory, permit, entry)?;
    if directory.is_operator(permit) {
        return Ok(());
    }
    if entry.id == ANONYMOUS || entry.is_pattern() {
        let message = "only an operator may remove patterns and anonymous";
        return Err(EngineError::refused(Code::RbacForbidden, message));
    }
    configured(directory, &entry.id).map_or(Ok(()), |underlying_entry| check_rank(directory, permit, &underlying_entry))
}

fn end_keys(directory: &Directory, tx: &mut Tx, entry: &ActorEntry) -> Result<usize, EngineError> {
    let now = directory.parts.clock.now();
    let snapshot = directory.snapshot();
    let mut ended = 0;
    for key in snapshot.own_keys(&entry.id, now) {
        ended += 1;
        if key.stored {
            let set = vec![(actor_keys::expires_at, now.into()), (actor_keys::revoked_at, now.into())];
            tx.updates.push(Update::new(&ACTOR_KEYS, vec![key.id.into()], Vec::new(), set)?);
        } else {
            let (tenant, actor) = (entry.tenant.as_str(), entry.id.as_str());
            let (id, secret) = (key.id, &key.secret);
            let ended = KeyToStore { tenant, actor, id, secret, from: now, until: Some(now) };
            tx.inserts.push(key_row(directory, &ended)?);
        }
    }
    Ok(ended)
}

fn end_sign_ins(id: &str, now: Timestamp) -> Result<Step, InvalidTx> {
    let conditions = vec![equals(token_families::actor_id, id.into()), equals(token_families::revoked_at, Value::Null)];
    let set = vec![
        (token_families::revoked_at, now.into()),
        (token_families::revoked_because, "the actor was removed".into()),
    ];
    Step::update(&TOKEN_FAMILIES, conditions, set, RowCount::AtMost(u64::MAX))
}

/// Ends an actor's open links.
pub(super) fn end_links(id: &str, now: Timestamp) -> Result<Step, InvalidTx> {
    let open = Condition { column: approval_links::expires_at, compare: Comparison::Above, value: now.into() };
    let conditions = vec![equals(approval_links::actor, id.into()), equals(approval_links::used_at, Value::Null), open];
    let set = vec![(approval_links::expires_at, now.into())];
    Step::update(&APPROVAL_LINKS, conditions, set, RowCount::AtMost(u64::MAX))
}

fn nothing_to_remove(shown: &ActorView) -> EngineError {
    let id = &shown.entry.id;
    let message = match shown.source {
        EntrySource::Config if shown.matched.as_ref() == Some(id) => {
            format!("{id} has no key, and its entry comes from the configuration: remove it from the file")
        }
        EntrySource::Shipped if shown.matched.as_ref() == Some(id) => {
            format!("{id} has no key, and its entry is built in: disable it with chimera actor disable")
        }
        _ => format!("{id} has neither an entry nor a key"),
    };
    ErrorBody::new(Code::NotFound, message).into()
}

/// Whether a row is that of a removed actor.
pub(super) fn is_retired(row: &ActorRow) -> bool {
    row.removed_at.is_some()
}

const fn equals(column: &'static str, value: Value) -> Condition {
    Condition { column, compare: Comparison::Is, value }
}
