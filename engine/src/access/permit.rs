//! The permit: proof that a caller may act. Only this room creates them:
//!
//! * the authenticator (`authenticator.rs`) for a request with a valid token;
//! * sign-in and refresh (`tokens.rs`) without scopes, to count the request;
//! * `Directory::current_permit` for what is done in an actor's name after its request;
//! * [`local_operator`] for whoever can run commands on the data folder;
//! * [`link_holder`] for the person to whom a decision link was sent.
//!
//! A permit says who acts, for which tenant, and with which scopes: those of the registry, narrowed by the token. An
//! actor needs no scope for what is its own: its runs, and decisions on its drafts.

use super::alongside::Alongside;
use super::nonces::RequestNonces;
use crate::ledger::audit::EventRecord;
use crate::port::{CommitError, Records};
use chimera_core::access::{ADMIN, Actor, ActorEntry, Claimant, Kind, Level, scope};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::ledger::{ActorType, SubjectType};
use chimera_core::record::Tx;
use chimera_core::tool::Spec;
use serde_json::Value;
use std::sync::Arc;
use uuid::Uuid;

/// Reading runs of others.
pub const RUNS_READ: &str = "runs.read";
/// Stopping, undoing and changing runs of others.
pub const RUNS_MANAGE: &str = "runs.manage";
/// Deciding about what others asked for.
pub const APPROVALS_DECIDE: &str = "approvals.decide";
/// Publishing events that runs wait for.
pub const EVENTS_PUBLISH: &str = "events.publish";
/// Reading workflows.
pub const WORKFLOWS_READ: &str = "workflows.read";
/// Changing workflows and what they remember.
pub const WORKFLOWS_WRITE: &str = "workflows.write";
/// Reading the registry of actors.
pub const ACTORS_READ: &str = "actors.read";
/// Changing the registry of actors, and their keys.
pub const ACTORS_WRITE: &str = "actors.write";
/// Reading the ledger.
pub const AUDIT_READ: &str = "audit.read";
/// Choosing the level of a run.
pub const AUTONOMY_OVERRIDE: &str = "autonomy.override";

/// Claiming calls from a queue, whose name is appended.
pub const WORK_CLAIM: &str = "work.claim";

/// What a caller proved who they are with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credential {
    /// The key that signed the request.
    pub key: Option<Uuid>,
    /// The pattern whose shared key the token was obtained with.
    pub key_of: Option<String>,
}

/// Authorization of one caller for one tenant.
#[derive(Clone, Debug)]
pub struct Permit {
    entry: Arc<ActorEntry>,
    actor: Arc<str>,
    scopes: Arc<[String]>,
    once: Option<Arc<RequestNonces>>,
    credential: Arc<Credential>,
    alongside: Alongside,
    /// The tenant for which an operator acts, if that is not their own.
    acts_for: Option<Arc<str>>,
    /// The entry comes from the registry, which may change while the request waits.
    registered: bool,
    /// Scopes match exactly as the specification says.
    strict: bool,
}

impl Permit {
    /// For an authenticated caller.
    pub(super) fn new(entry: Arc<ActorEntry>, actor: &str, scopes: Vec<String>, strict: bool) -> Self {
        let (actor, scopes) = (actor.into(), scopes.into());
        let (credential, alongside) = (Arc::default(), Alongside::default());
        Self { entry, actor, scopes, once: None, credential, alongside, acts_for: None, registered: true, strict }
    }

    /// A permit without a credential check, with everything that the entry grants. Outside this room only tests
    /// may call it.
    #[must_use]
    pub fn for_entry(entry: ActorEntry) -> Self {
        let (actor, scopes) = (entry.id.clone(), entry.scopes.clone());
        Self { registered: false, ..Self::new(Arc::new(entry), &actor, scopes, false) }
    }

    /// The same actor with a token narrowed to these scopes.
    #[must_use]
    pub fn narrowed(self, scopes: &[&str]) -> Self {
        Self { scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(), ..self }
    }

    /// The same request of an actor whose entry is `entry` now. It never has more scopes than before.
    pub(super) fn renewed(&self, entry: Arc<ActorEntry>) -> Self {
        let scopes = scope::narrowed(&entry.scopes, &self.scopes).into();
        Self { entry, scopes, ..self.clone() }
    }

    pub(super) fn is_registered(&self) -> bool {
        self.registered
    }

    /// The same caller, with what they proved who they are with.
    #[must_use]
    pub(super) fn with_credential(self, credential: Credential) -> Self {
        Self { credential: Arc::new(credential), ..self }
    }

    /// What the caller proved who they are with; empty for what is done without a request.
    pub(crate) fn credential(&self) -> &Credential {
        &self.credential
    }

    /// Binds the permit to a single-use request.
    #[must_use]
    pub(super) fn with_nonces(self, once: Option<RequestNonces>) -> Self {
        let alongside = once.as_ref().map_or_else(Alongside::default, |once| Alongside::rows(once.rows().to_vec()));
        Self { once: once.map(Arc::new), alongside, ..self }
    }

    /// The same caller, for side effects that take nothing of the request along.
    #[must_use]
    pub(crate) fn for_side_effects(&self) -> Self {
        Self { once: None, alongside: Alongside::default(), ..self.clone() }
    }

    /// The same request with rows and ledger entries that commit with what it changes, or not at all. Only inserts,
    /// compare-and-set updates and entries count.
    #[must_use]
    pub fn with_alongside(&self, more: Tx) -> Self {
        Self { alongside: self.alongside.with(more), ..self.clone() }
    }

    /// Adds what commits with the request to a transaction: the transaction of its change.
    pub(crate) fn add_alongside(&self, tx: &mut Tx) {
        self.alongside.add_to(tx);
    }

    /// Whether a transaction failed because of what was to commit with it. Retrying the change does not help then.
    #[must_use]
    pub fn is_alongside_conflict(&self, error: &CommitError) -> bool {
        self.alongside.is_conflict(error)
    }

    /// The ledger event of something that the caller does.
    pub(crate) fn event(&self, subject: impl Into<String>, event_type: &str, data: Value) -> EventRecord {
        EventRecord {
            tenant_id: self.tenant().to_owned(),
            subject_type: SubjectType::Other,
            subject_id: subject.into(),
            event_type: event_type.to_owned(),
            actor_type: self.kind(),
            actor_id: Some(self.actor().to_owned()),
            data,
            run_id: None,
            run_seq: None,
            trace_id: None,
            operator_of: self.operator_of().map(str::to_owned),
        }
    }

    /// The same event, recorded in the ledger of this tenant instead, and in that of the caller's own.
    pub(super) fn recorded_in(&self, tenant: &str, event: EventRecord) -> EventRecord {
        let home = &*self.entry.tenant;
        let operator_of = (tenant != home).then(|| home.to_owned());
        EventRecord { tenant_id: tenant.to_owned(), operator_of, ..event }
    }

    pub(super) async fn check_nonces(&self, records: &dyn Records) -> Result<(), ErrorBody> {
        match &self.once {
            Some(once) => once.check(records).await,
            None => Ok(()),
        }
    }

    pub(super) async fn consume_nonces(&self, records: &dyn Records) -> Result<(), ErrorBody> {
        match &self.once {
            Some(once) if !self.alongside.is_taken() => once.consume(records).await,
            Some(_) => Ok(()),
            None => Ok(()),
        }
    }

    #[must_use]
    pub fn tenant(&self) -> &str {
        self.acts_for.as_deref().unwrap_or(&self.entry.tenant)
    }

    /// The tenant for which an operator acts, if that is not their own.
    pub(crate) fn acts_for(&self) -> Option<&str> {
        self.acts_for.as_deref()
    }

    /// The operator's own tenant, if they act for another.
    pub(crate) fn operator_of(&self) -> Option<&str> {
        self.acts_for.as_ref().map(|_| self.entry.tenant.as_str())
    }

    /// The same operator, acting for another tenant.
    #[must_use]
    pub(super) fn acting_for(self, tenant: &str) -> Self {
        Self { acts_for: Some(tenant.into()), ..self }
    }

    #[must_use]
    pub fn actor(&self) -> &str {
        &self.actor
    }

    pub(super) fn shared_actor(&self) -> Arc<str> {
        Arc::clone(&self.actor)
    }

    /// The claimant of a slot that all tenants share.
    #[must_use]
    pub fn claimant(&self) -> Claimant {
        Claimant { tenant: self.tenant().into(), actor: Arc::clone(&self.actor) }
    }

    /// The ledger's actor type.
    #[must_use]
    pub fn kind(&self) -> ActorType {
        self.entry.kind.actor_type()
    }

    /// The actor and its type, as recorded in the ledger.
    #[must_use]
    pub fn by(&self) -> Actor {
        Actor::new(self.actor(), self.kind())
    }

    #[must_use]
    pub fn scopes(&self) -> &[String] {
        &self.scopes
    }

    /// Whether the token grants less than the actor's entry.
    #[must_use]
    pub fn is_narrowed(&self) -> bool {
        *self.scopes != *self.entry.scopes
    }

    /// The scope that the actor lacks for a tool, if any.
    pub(crate) fn missing_scope<'t>(&self, tool: &'t Spec) -> Option<&'t str> {
        scope::missing(&self.scopes, tool, self.strict)
    }

    /// Refuses a caller who may not call a tool directly.
    pub fn require_tool(&self, tool: &Spec) -> Result<(), ErrorBody> {
        self.missing_scope(tool).map_or(Ok(()), |missing| Err(missing_scope_error(missing).with("tool", &*tool.name)))
    }

    pub(super) fn quota(&self) -> u32 {
        self.entry.quota_per_minute
    }

    /// The actor's default autonomy level.
    #[must_use]
    pub fn level(&self) -> Option<Level> {
        self.entry.level
    }

    /// Where the actor is notified when its runs end.
    #[must_use]
    pub fn notify(&self) -> Option<&Value> {
        self.entry.notify.as_ref()
    }

    /// Whether the actor holds a scope.
    #[must_use]
    pub fn may(&self, capability: &str) -> bool {
        scope::check_scope(&self.scopes, capability)
    }

    /// Refuses a caller without the scope.
    pub fn require(&self, capability: &'static str) -> Result<(), ErrorBody> {
        if self.may(capability) { Ok(()) } else { Err(missing_scope_error(capability)) }
    }

    /// Whether the caller may read what belongs to `owner`.
    #[must_use]
    pub fn sees(&self, owner: &str) -> bool {
        *owner == *self.actor || [RUNS_READ, RUNS_MANAGE, APPROVALS_DECIDE].iter().any(|scope| self.may(scope))
    }

    /// Whether the caller may stop, undo or change what belongs to `owner`.
    #[must_use]
    pub fn may_manage(&self, owner: &str) -> bool {
        *owner == *self.actor || self.may(RUNS_MANAGE)
    }
}

/// The permit of the operator at the machine itself, who can read the data folder anyway.
#[must_use]
pub fn local_operator(tenant: &str) -> Permit {
    Permit::for_entry(ActorEntry {
        scopes: vec!["*".to_owned()],
        level: None,
        ..ActorEntry::default_for(ADMIN, tenant)
    })
}

/// The permit of the person to whom a decision link was sent. The caller has read the link's row and found it
/// valid. It allows decisions and nothing else.
pub(crate) fn link_holder(tenant: &str, actor: &str) -> Permit {
    let scopes = vec![APPROVALS_DECIDE.to_owned()];
    Permit::for_entry(ActorEntry { kind: Kind::Human, scopes, ..ActorEntry::default_for(actor, tenant) })
}

/// The refusal of whoever lacks a capability.
#[must_use]
pub fn missing_scope_error(capability: &str) -> ErrorBody {
    ErrorBody::new(Code::RbacForbidden, format!("the actor lacks the scope {capability}"))
        .with("required_scope", capability)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ones_own_needs_no_scope() {
        let plain = Permit::for_entry(ActorEntry::default_for("user_ann", "acme"));
        assert!(plain.sees("user_ann") && plain.may_manage("user_ann"));
        assert!(!plain.sees("user_bob") && !plain.may_manage("user_bob"));
        let reader = ActorEntry { scopes: vec!["runs.read".to_owned()], ..ActorEntry::default_for("user_ann", "acme") };
        let reader = Permit::for_entry(reader);
        assert!(reader.sees("user_bob") && !reader.may_manage("user_bob"));
        let refused = plain.require(WORKFLOWS_WRITE).unwrap_err();
        assert_eq!(
            (refused.code.as_str(), &refused.details["required_scope"]),
            ("RBAC_FORBIDDEN", &"workflows.write".into())
        );
        assert!(local_operator("acme").require(WORKFLOWS_WRITE).is_ok());
    }
}
