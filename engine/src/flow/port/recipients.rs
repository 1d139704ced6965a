//! Who is notified when a run needs a person.

use crate::access::Permit;
use crate::error::EngineError;
use async_trait::async_trait;
use chimera_core::access::DeciderRefusal;
use chimera_core::error::ErrorBody;
use chimera_core::flow::run::{INBOX, RunHead};
use chimera_core::record::Step;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipient {
    /// `webhook`, `email` or `inbox`.
    pub channel: String,
    /// The address; for an inbox, the actor.
    pub target: String,
    /// The person whose registered address this is: their mail contains a link if they may decide. `None` for addresses
    /// of services and groups, and for addresses that only the request names.
    pub person: Option<String>,
}

impl Recipient {
    /// An actor's inbox.
    #[must_use]
    pub fn inbox(actor: &str) -> Self {
        Self { channel: INBOX.to_owned(), target: actor.to_owned(), person: Some(actor.to_owned()) }
    }
}

/// What the store said about a person who decides.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredDecider {
    /// The mail address, normalized; `None` if the person has none.
    pub mail: Option<String>,
    /// Why the person may not decide.
    pub refusal: Option<DeciderRefusal>,
    /// Makes a transaction conflict if the person's entry has changed since it was read.
    pub unchanged: Step,
}

/// Resolves recipients. Called each time a run starts to wait for an approval (never for a run at L3), and each time a
/// call is in doubt.
///
/// It sends nothing: the messages are committed together with the change they announce, so a slow answer delays the
/// run. Recipients that can't be resolved are left out.
#[async_trait]
pub trait Recipients: Send + Sync {
    /// Everybody who is notified about approval requests of this run.
    async fn of(&self, head: &RunHead) -> Vec<Recipient>;

    /// Everybody who may decide on requests of others. They are notified in addition to those of `of` when the
    /// requester can't decide alone.
    async fn deciders(&self, _head: &RunHead) -> Vec<Recipient> {
        Vec::new()
    }

    /// Everybody who is notified that the outcome of a call is unknown, at every level: people who could resolve it,
    /// and at L2 and below those that the run names.
    async fn who_settles(&self, head: &RunHead) -> Vec<Recipient> {
        self.of(head).await
    }

    /// Whether this address is registered: for the actor, for its tenant, or as the mail address of a person of that
    /// tenant. Notifying any other address needs the scope for sending messages.
    fn is_registered(&self, _tenant: &str, _actor: &str, _channel: &str, _target: &str) -> bool {
        false
    }

    /// Whether an address is unregistered and outside the tenant's domains. It learns that a run waits, but nothing
    /// about what the run would do.
    fn is_outsider(&self, _tenant: &str, _actor: &str, _recipient: &Recipient) -> bool {
        false
    }

    /// Whether this is the registered mail address of a person of the tenant at this moment. A mail to any other address
    /// carries no link.
    fn is_mail_of_person(&self, _tenant: &str, _target: &str) -> bool {
        true
    }

    /// A person who would decide on a request of `requester`, read from the store: this process may not know of a change
    /// that another node has made. `None` if actors are not registered at all.
    async fn stored_decider(
        &self,
        _tenant: &str,
        _person: &str,
        _requester: &str,
    ) -> Result<Option<StoredDecider>, EngineError> {
        Ok(None)
    }

    /// What the actor of a run may do at this moment, for messages that are sent in its name. `None` if actors are not
    /// registered at all; an error if the actor was disabled or removed.
    fn sender(&self, _tenant: &str, _actor: &str) -> Result<Option<Permit>, ErrorBody> {
        Ok(None)
    }

    /// Whether two names belong to one person: the same name, or people with the same mail address, now or before.
    fn is_same_person(&self, one: &str, other: &str) -> bool {
        one == other
    }

    /// Why a person who received a link, or has approved, may no longer decide on requests of `requester`; `None` if
    /// they may.
    fn not_decider(&self, _tenant: &str, _person: &str, _requester: &str) -> Option<DeciderRefusal> {
        None
    }
}
