//! Who is told about a run: those whom it names, and people who decide about others' runs or manage them.
//!
//! A person decides about their own drafts, so nobody else is disturbed by those. What a service wants
//! is everybody's business who may decide and has an address in the registry. A call in doubt is a fault,
//! so everybody who manages runs hears of it.

use super::directory::Directory;
use super::permit::{APPROVALS_DECIDE, RUNS_MANAGE};
use crate::flow::OfRun;
use crate::port::{Recipient, Recipients};
use async_trait::async_trait;
use chimera_core::access::{Entry, Kind, Level, scope};
use chimera_core::flow::run::Head;
use std::sync::Arc;

/// Knows who decides.
pub struct Deciders {
    directory: Arc<Directory>,
}

impl Deciders {
    /// Those whom the directory knows.
    #[must_use]
    pub const fn new(directory: Arc<Directory>) -> Self {
        Self { directory }
    }
}

#[async_trait]
impl Recipients for Deciders {
    async fn of(&self, head: &Head) -> Vec<Recipient> {
        let mut told = OfRun.of(head).await;
        let snapshot = self.directory.snapshot();
        if snapshot.registry.resolve(&head.actor).kind == Kind::Human {
            return told;
        }
        let decides =
            |entry: &&Arc<Entry>| is_person(entry, head) && scope::check_scope(&entry.scopes, APPROVALS_DECIDE);
        told.extend(snapshot.registry.entries().filter(decides).filter_map(|entry| mail(entry)));
        told
    }

    async fn who_settles(&self, head: &Head) -> Vec<Recipient> {
        // Whoever acts at L3 is told nothing; those who look after runs are.
        let silent = head.level == Level::ExecuteSilent;
        let mut told = if silent { Vec::new() } else { OfRun.of(head).await };
        let snapshot = self.directory.snapshot();
        let settles = |entry: &&Arc<Entry>| {
            let own = entry.id == head.actor && !silent;
            is_person(entry, head) && (own || scope::check_scope(&entry.scopes, RUNS_MANAGE))
        };
        told.extend(snapshot.registry.entries().filter(settles).filter_map(|entry| mail(entry)));
        told
    }

    fn may_still_decide(&self, tenant: &str, person: &str, requester: &str) -> bool {
        let entry = self.directory.snapshot().registry.resolve(person);
        let counts = entry.kind == Kind::Human && !entry.disabled && entry.tenant == tenant;
        counts && (person == requester || scope::check_scope(&entry.scopes, APPROVALS_DECIDE))
    }
}

/// Whether an entry is a person of the run's tenant.
fn is_person(entry: &Entry, head: &Head) -> bool {
    entry.kind == Kind::Human && !entry.disabled && !entry.is_pattern() && entry.tenant == head.tenant
}

/// The mail of an entry, if it has one.
fn mail(entry: &Entry) -> Option<Recipient> {
    let target = entry.notify.as_ref()?["email"].as_str()?.to_owned();
    Some(Recipient { channel: "email".to_owned(), target, person: Some(entry.id.clone()) })
}
