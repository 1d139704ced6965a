//! Who is asked to decide: those whom the run names, and people who decide about others' runs.
//!
//! A person decides about their own drafts, so nobody else is disturbed by those. What a service wants
//! is everybody's business who may decide and has an address in the registry.

use super::directory::Directory;
use super::permit::APPROVALS_DECIDE;
use crate::flow::OfRun;
use crate::port::{Recipient, Recipients};
use async_trait::async_trait;
use chimera_core::access::{Entry, Kind, scope};
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
        let decides = |entry: &&Arc<Entry>| {
            let person = entry.kind == Kind::Human && !entry.disabled && !entry.is_pattern();
            person && entry.tenant == head.tenant && scope::check_scope(&entry.scopes, APPROVALS_DECIDE)
        };
        for entry in snapshot.registry.entries().filter(decides) {
            let mail = entry.notify.as_ref().and_then(|notify| notify["email"].as_str());
            told.extend(mail.map(|target| Recipient {
                channel: "email".to_owned(),
                target: target.to_owned(),
                person: Some(entry.id.clone()),
            }));
        }
        told
    }

    fn may_still_decide(&self, tenant: &str, person: &str, requester: &str) -> bool {
        let entry = self.directory.snapshot().registry.resolve(person);
        let counts = entry.kind == Kind::Human && !entry.disabled && entry.tenant == tenant;
        counts && (person == requester || scope::check_scope(&entry.scopes, APPROVALS_DECIDE))
    }
}
