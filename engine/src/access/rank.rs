//! Nobody gives what they don't have, and nobody gets at whoever may do more than they may.
//!
//! Whoever has somebody's key, or reads their mail, can be that somebody. So everything that is done to an actor by others asks the one rule
//! here: writing an entry, making a key, removing. An operator may do all of it.

use super::directory::Directory;
use super::permit::Permit;
use crate::error::EngineError;
use chimera_core::access::registry::{Entry, Kind};
use chimera_core::access::{ANONYMOUS, Level, scope};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::ledger::ActorType;

impl Directory {
    /// Refuses an entry for another tenant, for a name that is another tenant's, or that the caller may not write. The operator gives
    /// tenants their names, by patterns.
    pub(super) fn check_reach(&self, permit: &Permit, entry: &Entry) -> Result<(), EngineError> {
        if self.is_operator(permit) {
            return Ok(());
        }
        let now = self.snapshot().registry.resolve(&entry.id);
        if entry.tenant != permit.tenant() {
            return forbidden("the actor belongs to another tenant");
        }
        if now.tenant != permit.tenant() {
            return forbidden(
                "such a name belongs to another tenant: the operator gives each tenant its names, by patterns",
            );
        }
        if entry.id == ANONYMOUS {
            return forbidden("only an operator changes anonymous, who stands for everybody without a token");
        }
        let snapshot = self.snapshot();
        // What a pattern lets others have was given to nobody yet.
        let before = snapshot.registry.entry(&entry.id).filter(|before| !before.is_pattern()).map(|before| &**before);
        let own = snapshot.registry.resolve(permit.actor()).quota_per_minute;
        if entry.quota_per_minute > before.map_or(0, |before| before.quota_per_minute).max(own) {
            let given = entry.quota_per_minute;
            return forbidden(&format!("cannot give a quota of {given} requests a minute: yours is {own}"));
        }
        self.check_scopes(permit, &now)?;
        self.check_change(permit, entry, before)?;
        if entry.is_pattern() {
            return forbidden("patterns are the operator's");
        }
        if entry.kind != now.kind {
            return forbidden("who is a person is the operator's to say");
        }
        Ok(())
    }

    /// Refuses somebody when the other may do more, or is to: has a scope that they lack, itself or by a role, a freer level, a
    /// larger quota, or is a person while they are none, since people decide about approvals.
    pub(super) fn check_rank(&self, permit: &Permit, entry: &Entry) -> Result<(), EngineError> {
        self.check_change(permit, entry, None)
    }

    /// The same for an entry in the place of one that was there: whoever may do more may be held back, but in nothing else changed. What is
    /// lowered, or left as it is, is not given; where their mail goes is, since it carries links by which one decides.
    fn check_change(&self, permit: &Permit, entry: &Entry, before: Option<&Entry>) -> Result<(), EngineError> {
        if self.is_operator(permit) {
            return Ok(());
        }
        self.check_scopes(permit, entry)?;
        self.check_freedom(permit, entry, before)?;
        match before {
            Some(before) if before.notify != entry.notify => self.check_rank(permit, before).map_err(|_| {
                let what = "cannot change where an actor is told who may do more than you: only an operator does";
                ErrorBody::new(Code::RbacForbidden, what).with("pointer", "/notify").into()
            }),
            _ => Ok(()),
        }
    }

    fn check_scopes(&self, permit: &Permit, entry: &Entry) -> Result<(), EngineError> {
        let given = self.snapshot().registry.roles().granted(entry);
        let held = scope::narrowed(permit.scopes(), &given);
        if let Some(scope) = given.iter().find(|scope| !held.contains(scope)) {
            let body = ErrorBody::new(Code::RbacForbidden, format!("nobody gives a scope that they lack: {scope}"));
            return Err(body.with("required_scope", scope.as_str()).into());
        }
        if entry.kind == Kind::Human && permit.kind() != ActorType::Human {
            return forbidden("people are looked after by people");
        }
        Ok(())
    }

    /// Refuses a quota or a level above one's own, unless the other had as much before.
    fn check_freedom(&self, permit: &Permit, entry: &Entry, before: Option<&Entry>) -> Result<(), EngineError> {
        let snapshot = self.snapshot();
        // Without a level the risk decides, which is never L3.
        let level = |entry: &Entry| entry.level.unwrap_or(Level::ExecuteNotify);
        let acts = |entry: &Entry| !entry.disabled && !snapshot.registry.roles().granted(entry).is_empty();
        if snapshot.registry.roles().granted(entry).is_empty() || before.is_some() && !acts(entry) {
            // Whoever may do nothing may do it as freely and as often as they like.
            return Ok(());
        }
        let own = snapshot.registry.resolve(permit.actor());
        let before = before.filter(|before| acts(before));
        if entry.quota_per_minute > before.map_or(0, |before| before.quota_per_minute).max(own.quota_per_minute) {
            return forbidden("nobody gives a larger quota than their own");
        }
        if level(entry) > before.map_or(level(&own), level).max(level(&own)) {
            return forbidden("nobody gives a freer level than their own");
        }
        Ok(())
    }
}

fn forbidden(what: &str) -> Result<(), EngineError> {
    Err(EngineError::refused(Code::RbacForbidden, what))
}
