//! Who is notified about a run: the addresses it names, and people who decide on or manage runs.
//!
//! A person decides on their own drafts, so nobody else is notified, unless somebody else must decide. Requests of a
//! service go to everybody who may decide: by mail if the registry has an address, otherwise to their inbox. A call in
//! doubt goes to everybody who manages runs.
//!
//! The registry decides who owns an address, never the request: mail to somebody who may decide contains their link,
//! whoever named the address.

use crate::access::{self, APPROVALS_DECIDE, Directory, Permit, RUNS_MANAGE};
use crate::error::EngineError;
use crate::flow::RunRecipients;
use crate::flow::port::{Recipient, Recipients, StoredDecider};
use async_trait::async_trait;
use chimera_core::access::person;
use chimera_core::access::{ActorEntry, DeciderRefusal, Kind, Level, Registry, normalize_mail_address, scope};
use chimera_core::error::ErrorBody;
use chimera_core::flow::run::RunHead;
use std::sync::Arc;

/// Resolves recipients from the directory.
pub struct DirectoryRecipients {
    directory: Arc<Directory>,
}

impl DirectoryRecipients {
    #[must_use]
    pub const fn new(directory: Arc<Directory>) -> Self {
        Self { directory }
    }

    /// The people of a tenant whom a test selects: those with an entry, then those with a key who match a pattern.
    /// The latter have no address of their own.
    fn people(&self, tenant: &str, selects: impl Fn(&str, &ActorEntry) -> bool) -> Vec<Recipient> {
        let snapshot = self.directory.snapshot();
        let registry = &snapshot.registry;
        let entries = registry.entries().filter(|entry| is_person(entry, tenant));
        let registered = entries.filter(|entry| selects(&entry.id, entry)).map(|entry| contact_of(entry));
        let of_pattern = |id: &&str| {
            let entry = registry.resolve(id);
            registry.entry(id).is_none() && are_people(&entry, tenant) && selects(id, &entry)
        };
        let holders = snapshot.key_holders(self.directory.parts.clock.now()).filter(of_pattern);
        registered.chain(holders.map(Recipient::inbox)).collect()
    }
}

#[async_trait]
impl Recipients for DirectoryRecipients {
    async fn of(&self, head: &RunHead) -> Vec<Recipient> {
        let snapshot = self.directory.snapshot();
        let named = named_recipients(&snapshot.registry, head).await;
        if snapshot.registry.resolve(&head.actor).kind == Kind::Human {
            return named;
        }
        // Deciders first, so that addresses named by the request can't displace them.
        self.deciders(head).await.into_iter().chain(named).collect()
    }

    async fn deciders(&self, head: &RunHead) -> Vec<Recipient> {
        let decides = |_: &str, entry: &ActorEntry| scope::check_scope(&entry.scopes, APPROVALS_DECIDE);
        self.people(&head.tenant, decides)
    }

    async fn who_settles(&self, head: &RunHead) -> Vec<Recipient> {
        // A run at L3 notifies nobody but those who manage runs.
        let silent = head.level == Level::ExecuteSilent;
        let snapshot = self.directory.snapshot();
        let named = if silent { Vec::new() } else { named_recipients(&snapshot.registry, head).await };
        let settles = |id: &str, entry: &ActorEntry| {
            id == head.actor && !silent || scope::check_scope(&entry.scopes, RUNS_MANAGE)
        };
        self.people(&head.tenant, settles).into_iter().chain(named).collect()
    }

    fn is_registered(&self, tenant: &str, actor: &str, channel: &str, target: &str) -> bool {
        let holds = |notify: Option<&serde_json::Value>| notify.is_some_and(|notify| notify[channel] == *target);
        let snapshot = self.directory.snapshot();
        let own = snapshot.registry.resolve(actor);
        let shared = self.directory.tenant(tenant).notify.as_ref();
        let of_person = |entry: &Arc<ActorEntry>| is_person(entry, tenant) && holds(entry.notify.as_ref());
        // A disabled service's address is its owner's; a disabled person is told nothing.
        let counts = own.tenant == tenant && !(own.disabled && own.kind == Kind::Human);
        counts && holds(own.notify.as_ref())
            || holds(shared)
            || channel == "email" && snapshot.registry.entries().any(of_person)
    }

    fn is_mail_of_person(&self, tenant: &str, target: &str) -> bool {
        let holds = |notify: &serde_json::Value| notify["email"] == *target;
        let of_person = |entry: &Arc<ActorEntry>| is_person(entry, tenant) && entry.notify.as_ref().is_some_and(holds);
        self.directory.snapshot().registry.entries().any(of_person)
    }

    async fn stored_decider(
        &self,
        tenant: &str,
        person: &str,
        requester: &str,
    ) -> Result<Option<StoredDecider>, EngineError> {
        let (entry, unchanged) = access::stored_person(&self.directory, person).await?;
        let mail = entry.as_ref().and_then(person::person_mail);
        let entry = entry.map(|entry| self.directory.with_effective_scopes(entry));
        let entry = entry.unwrap_or_else(|| (*self.directory.snapshot().registry.resolve(person)).clone());
        let refusal = self.directory.refusal_of(&entry, tenant, person == requester);
        Ok(Some(StoredDecider { mail, refusal, unchanged }))
    }

    fn sender(&self, tenant: &str, actor: &str) -> Result<Option<Permit>, ErrorBody> {
        self.directory.current_permit(tenant, actor).map(Some)
    }

    fn is_outsider(&self, tenant: &str, actor: &str, recipient: &Recipient) -> bool {
        let Recipient { channel, target, person } = recipient;
        person.is_none()
            && !self.is_registered(tenant, actor, channel, target)
            && self.directory.tenant(tenant).is_outside(target)
    }

    fn is_same_person(&self, one: &str, other: &str) -> bool {
        self.directory.snapshot().registry.is_same_person(one, other)
    }

    fn not_decider(&self, tenant: &str, person: &str, requester: &str) -> Option<DeciderRefusal> {
        self.directory.exclusion_reason(tenant, person, requester)
    }
}

/// The recipients that a run names. A mail address that is registered for a person belongs to that person, and is
/// written to as it is registered; any other is nobody's.
async fn named_recipients(registry: &Registry, head: &RunHead) -> Vec<Recipient> {
    let mut named = RunRecipients.of(head).await;
    for recipient in named.iter_mut().filter(|recipient| recipient.channel == "email") {
        let holds = |entry: &&Arc<ActorEntry>| {
            is_person(entry, &head.tenant)
                && person::person_mail(entry) == Some(normalize_mail_address(&recipient.target))
        };
        let own = registry.entry(&head.actor).filter(holds);
        if let Some(entry) = own.or_else(|| registry.entries().find(holds)) {
            *recipient = contact_of(entry);
        }
    }
    named
}

/// Whether an entry is an enabled person of the tenant.
fn is_person(entry: &ActorEntry, tenant: &str) -> bool {
    !entry.is_pattern() && are_people(entry, tenant)
}

/// Whether an entry is an enabled person of the tenant, or a pattern of such people.
fn are_people(entry: &ActorEntry, tenant: &str) -> bool {
    entry.kind == Kind::Human && !entry.disabled && entry.tenant == tenant
}

/// An entry's mail address, if it has one.
fn mail(entry: &ActorEntry) -> Option<Recipient> {
    let target = entry.notify.as_ref()?["email"].as_str()?.to_owned();
    Some(Recipient { channel: "email".to_owned(), target, person: Some(entry.id.clone()) })
}

/// A person's mail address, or inbox without one.
fn contact_of(entry: &ActorEntry) -> Recipient {
    mail(entry).unwrap_or_else(|| Recipient::inbox(&entry.id))
}
