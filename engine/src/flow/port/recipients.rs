//! Who is told that a run waits for a person.

use async_trait::async_trait;
use chimera_core::access::NotDecider;
use chimera_core::flow::run::{Head, INBOX};
use chimera_core::time::Timestamp;

/// Somebody who is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipient {
    /// `webhook`, `email` or `inbox`.
    pub channel: String,
    /// The address; of an inbox, the actor.
    pub target: String,
    /// The person whose address it is, if it is one person's own: their mail gets a link by which they
    /// decide. None for whoever is no person, as the registry says.
    pub person: Option<String>,
}

impl Recipient {
    /// The inbox of an actor.
    #[must_use]
    pub fn inbox(actor: &str) -> Self {
        Self { channel: INBOX.to_owned(), target: actor.to_owned(), person: Some(actor.to_owned()) }
    }
}

/// Knows whom to tell. It is asked each time a run begins to wait for an approval, never for a run at L3, and
/// each time a call is in doubt.
///
/// Nothing is sent here: the messages are written together with what they are about, so an
/// answer that takes long holds the run up. Whoever can't be found out about is left out.
#[async_trait]
pub trait Recipients: Send + Sync {
    /// Everybody who is told about requests of this run.
    async fn of(&self, head: &Head) -> Vec<Recipient>;

    /// Everybody who may decide about what others ask for. They are told beside those of `of` when whoever asked can't
    /// decide alone.
    async fn deciders(&self, _head: &Head) -> Vec<Recipient> {
        Vec::new()
    }

    /// Everybody who is told that nobody knows what became of a call of this run, at every level: people who
    /// could settle it, and at L2 and below those whom the run itself names.
    async fn who_settles(&self, head: &Head) -> Vec<Recipient> {
        self.of(head).await
    }

    /// Whether somebody registered this address: for the actor itself, for its tenant, or as the mail of a
    /// person of that tenant. Telling anybody else is sending a message, which needs the scope for that.
    fn is_registered(&self, _tenant: &str, _actor: &str, _channel: &str, _target: &str) -> bool {
        false
    }

    /// Whether an address is nobody's who is registered, and outside the tenant's domains. It hears that a run waits, and
    /// nothing of what it would do: nobody has let that out yet.
    fn is_outsider(&self, _tenant: &str, _actor: &str, _recipient: &Recipient) -> bool {
        false
    }

    /// Since when a name is that of whoever has it now; none: nobody else had it, as far as the registry knows.
    fn held_since(&self, _actor: &str) -> Option<Timestamp> {
        None
    }

    /// Whether two names are one person's: the same name, or people with the same mail address.
    fn is_same_person(&self, one: &str, other: &str) -> bool {
        one == other
    }

    /// Why a person whom a link was sent to, or who has approved, may not decide any more about what `requester` asked
    /// for, if that is so.
    fn not_decider(&self, _tenant: &str, _person: &str, _requester: &str) -> Option<NotDecider> {
        None
    }
}
