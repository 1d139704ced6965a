//! Removing an actor: deletes its entry and ends its keys, sign-ins and approval links in one transaction.
//!
//! Whatever the entry overrode applies again: the configured entry, or a pattern that matches the name.

use super::actors::ActorView;
use super::directory::Directory;
use super::permit::{ACTORS_WRITE, Permit};
use crate::error::EngineError;
use crate::ledger::audit;
use chimera_core::access::registry::Entry;
use chimera_core::access::tables::{ACTOR_KEYS, ACTORS, APPROVAL_LINKS, TOKEN_FAMILIES};
use chimera_core::access::{ADMIN, ANONYMOUS};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::record::{Comparison, Condition, InvalidTx, RowCount, Scope, Select, Step, Tx, Update, Value};
use chimera_core::time::Timestamp;
use serde_json::json;

impl Directory {
    /// Deletes an actor's stored entry and ends its keys and sign-ins. Returns what applies to the name from now on.
    pub async fn remove_actor(&self, permit: &Permit, id: &str) -> Result<ActorView, EngineError> {
        permit.require(ACTORS_WRITE)?;
        let shown = self.actor(permit, id)?;
        self.check_removal(permit, &shown.entry)?;
        let now = self.parts.clock.now();
        let select = Select::from(&ACTORS, Scope::System).with("id", id).take(1);
        let row = self.parts.records.read(select).await?.rows.into_iter().next();
        let mut tx = Tx::default();
        if let Some(row) = &row {
            let conditions = vec![equals("id", id.into()), equals("state_version", row.int("state_version").into())];
            tx.steps.push(Step::Delete { table: &ACTORS, conditions, rows: RowCount::Exactly(1) });
        }
        let keys = self.end_keys(&mut tx, &shown.entry)?;
        if row.is_none() && keys == 0 {
            return Err(nothing_to_remove(&shown));
        }
        tx.steps.push(end_sign_ins(id, now)?);
        tx.steps.push(end_links(id, self.parts.clock.steady())?);
        let told = json!({"entry": row.is_some(), "keys_ended": keys});
        self.record(&mut tx, permit, id, "actor.removed", told.clone())?;
        self.record_for(&mut tx, permit, &shown.entry.tenant, (id, "actor.removed"), told)?;
        audit::commit(&*self.parts.records, tx).await?;
        self.refresh_and_announce().await?;
        Ok(self.view(&self.snapshot(), id))
    }

    /// Refuses to remove `admin`, the caller, or an actor with more rights than the caller's; and to lift a restriction
    /// by removing the entry that imposes it.
    fn check_removal(&self, permit: &Permit, entry: &Entry) -> Result<(), EngineError> {
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
        self.check_rank(permit, entry)?;
        if self.is_operator(permit) {
            return Ok(());
        }
        if entry.id == ANONYMOUS || entry.is_pattern() {
            let message = "only an operator may remove patterns and anonymous";
            return Err(EngineError::refused(Code::RbacForbidden, message));
        }
        self.check_rank(permit, &self.underlying_entry(&entry.id))
    }

    /// What applies to a name without its stored entry.
    fn underlying_entry(&self, id: &str) -> Entry {
        let snapshot = self.snapshot();
        let stored = snapshot.registry.entries().filter(|entry| snapshot.source(&entry.id) == "registry");
        let stored = stored.filter_map(|entry| snapshot.registry.entry(&entry.id));
        let others: Vec<Entry> = stored.filter(|entry| entry.id != id).map(|entry| (**entry).clone()).collect();
        (*self.registry(&others, &self.snapshot()).configured(id)).clone()
    }

    fn end_keys(&self, tx: &mut Tx, entry: &Entry) -> Result<usize, EngineError> {
        let now = self.parts.clock.now();
        let snapshot = self.snapshot();
        let mut ended = 0;
        for key in snapshot.own_keys(&entry.id, now) {
            ended += 1;
            if key.stored {
                let set = vec![("expires_at", now.into()), ("revoked_at", now.into())];
                tx.updates.push(Update::new(&ACTOR_KEYS, vec![key.id.into()], Vec::new(), set)?);
            } else {
                tx.inserts.push(self.key_row(&entry.tenant, &entry.id, key.id, &key.secret, (now, Some(now)))?);
            }
        }
        Ok(ended)
    }
}

fn end_sign_ins(id: &str, now: Timestamp) -> Result<Step, InvalidTx> {
    let conditions = vec![equals("actor_id", id.into()), equals("revoked_at", Value::Null)];
    let set = vec![("revoked_at", now.into()), ("revoked_because", "the actor was removed".into())];
    Step::update(&TOKEN_FAMILIES, conditions, set, RowCount::AtMost(u64::MAX))
}

/// The next actor with this name is somebody else: pending links must not work for them.
fn end_links(id: &str, now: Timestamp) -> Result<Step, InvalidTx> {
    let open = Condition { column: "expires_at", compare: Comparison::Above, value: now.into() };
    let conditions = vec![equals("actor", id.into()), equals("used_at", Value::Null), open];
    Step::update(&APPROVAL_LINKS, conditions, vec![("expires_at", now.into())], RowCount::AtMost(u64::MAX))
}

fn nothing_to_remove(shown: &ActorView) -> EngineError {
    let id = &shown.entry.id;
    let message = match shown.source {
        "config" if shown.matched.as_ref() == Some(id) => {
            format!("{id} has no key, and its entry comes from the configuration: remove it from the file")
        }
        "shipped" if shown.matched.as_ref() == Some(id) => {
            format!("{id} has no key, and its entry is built in: disable it with chimera actor disable")
        }
        _ => format!("{id} has neither an entry nor a key"),
    };
    ErrorBody::new(Code::NotFound, message).into()
}

const fn equals(column: &'static str, value: Value) -> Condition {
    Condition { column, compare: Comparison::Is, value }
}
