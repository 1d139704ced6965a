//! Rank: nobody grants what they do not hold, and nobody changes an actor with more rights than their own.
//!
//! Whoever has an actor's key, or reads its mail, can act as that actor. So everything that others do to an actor
//! checks the one rule here: writing an entry, adding a key, removing. An operator may do all of it.

use super::directory::Directory;
use super::permit::Permit;
use crate::error::EngineError;
use chimera_core::access::registry::{ActorEntry, Kind};
use chimera_core::access::{ANONYMOUS, Level, scope};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::ledger::ActorType;

/// Refuses an entry for another tenant, for a name that belongs to another tenant, or that the caller may not
/// write. Operators assign names to tenants with patterns.
pub(super) fn check_entry_write(directory: &Directory, permit: &Permit, entry: &ActorEntry) -> Result<(), EngineError> {
    if directory.is_operator(permit) {
        return Ok(());
    }
    let now = directory.snapshot().registry.resolve(&entry.id);
    if entry.tenant != permit.tenant() {
        return forbidden("the actor belongs to another tenant");
    }
    if now.tenant != permit.tenant() {
        return forbidden("the name belongs to another tenant; an operator assigns names to tenants with patterns");
    }
    if entry.id == ANONYMOUS {
        return forbidden("only an operator may change `anonymous`, which stands for every caller without a token");
    }
    let snapshot = directory.snapshot();
    // A pattern's rights were not yet granted to this name.
    let before = snapshot.registry.entry(&entry.id).filter(|before| !before.is_pattern()).map(|before| &**before);
    let own = snapshot.registry.resolve(permit.actor()).quota_per_minute;
    if entry.quota_per_minute > before.map_or(0, |before| before.quota_per_minute).max(own) {
        let given = entry.quota_per_minute;
        return forbidden(&format!("cannot grant a quota of {given} requests a minute: yours is {own}"));
    }
    check_scopes(directory, permit, &now)?;
    check_change(directory, permit, entry, before)?;
    if entry.is_pattern() {
        return forbidden("only an operator may write patterns");
    }
    if entry.kind != now.kind {
        return forbidden("only an operator may change the kind of an actor");
    }
    Ok(())
}

/// Refuses the caller if the other actor has, or would get, more rights: a scope that the caller lacks (its own or
/// from a role), a higher level, a larger quota, or kind human while the caller is not, since people decide on
/// approvals.
pub(super) fn check_rank(directory: &Directory, permit: &Permit, entry: &ActorEntry) -> Result<(), EngineError> {
    check_change(directory, permit, entry, None)
}

/// The same for replacing an entry. An actor with more rights may be restricted, but not changed otherwise.
/// Lowering a right, or leaving it unchanged, is not a grant. Changing the mail address is, since mails carry links
/// for deciding.
fn check_change(
    directory: &Directory,
    permit: &Permit,
    entry: &ActorEntry,
    before: Option<&ActorEntry>,
) -> Result<(), EngineError> {
    if directory.is_operator(permit) {
        return Ok(());
    }
    check_scopes(directory, permit, entry)?;
    check_quota_and_level(directory, permit, entry, before)?;
    match before {
        Some(before) if before.notify != entry.notify => check_rank(directory, permit, before).map_err(|_| {
            let what = "cannot change the notify address of an actor with more rights than yours: only an operator may";
            ErrorBody::new(Code::RbacForbidden, what).with("pointer", "/notify").into()
        }),
        _ => Ok(()),
    }
}

fn check_scopes(directory: &Directory, permit: &Permit, entry: &ActorEntry) -> Result<(), EngineError> {
    let given = directory.snapshot().registry.roles().effective_scopes(entry);
    let held = scope::narrowed(permit.scopes(), &given);
    if let Some(scope) = given.iter().find(|scope| !held.contains(scope)) {
        let body = ErrorBody::new(Code::RbacForbidden, format!("cannot grant `{scope}`: you do not hold it"));
        return Err(body.with("required_scope", scope.as_str()).into());
    }
    if entry.kind == Kind::Human && permit.kind() != ActorType::Human {
        return forbidden("only a person may manage a person");
    }
    Ok(())
}

/// Refuses a quota or level above the caller's own, unless the actor already had it.
fn check_quota_and_level(
    directory: &Directory,
    permit: &Permit,
    entry: &ActorEntry,
    before: Option<&ActorEntry>,
) -> Result<(), EngineError> {
    let snapshot = directory.snapshot();
    // Without a level the risk decides, and it never chooses L3.
    let level = |entry: &ActorEntry| entry.level.unwrap_or(Level::ExecuteNotify);
    let acts = |entry: &ActorEntry| !entry.disabled && !snapshot.registry.roles().effective_scopes(entry).is_empty();
    if snapshot.registry.roles().effective_scopes(entry).is_empty() || before.is_some() && !acts(entry) {
        // Level and quota don't matter for an actor without scopes.
        return Ok(());
    }
    let own = snapshot.registry.resolve(permit.actor());
    let before = before.filter(|before| acts(before));
    if entry.quota_per_minute > before.map_or(0, |before| before.quota_per_minute).max(own.quota_per_minute) {
        return forbidden("cannot grant a larger quota than your own");
    }
    if level(entry) > before.map_or(level(&own), level).max(level(&own)) {
        return forbidden("cannot grant a higher level than your own");
    }
    Ok(())
}

fn forbidden(what: &str) -> Result<(), EngineError> {
    Err(EngineError::refused(Code::RbacForbidden, what))
}
