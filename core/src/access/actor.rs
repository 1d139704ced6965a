//! An actor and what kind of actor it was at the time of an action.
//!
//! The registry says whether an actor is a person, and that may change later. Every record of an action therefore
//! keeps both the name and the kind: signals, ledger entries, pauses, patches.

use super::registry::Kind;
use crate::ledger::ActorType;
use serde::{Deserialize, Serialize};

/// An actor and its kind at the time of an action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "SerializedActor", into = "SerializedActor")]
pub struct Actor {
    pub id: String,
    /// The kind according to the registry at that time.
    pub kind: ActorType,
}

impl Actor {
    #[must_use]
    pub fn new(id: impl Into<String>, kind: ActorType) -> Self {
        Self { id: id.into(), kind }
    }

    #[must_use]
    pub fn system() -> Self {
        Self::new("system", ActorType::System)
    }

    /// A person. Only people can decide approvals, so every decider is one.
    #[must_use]
    pub fn person(id: impl Into<String>) -> Self {
        Self::new(id, ActorType::Human)
    }

    /// Reads an actor from a row. Old rows have no kind; for those the default of the shipped registry applies.
    #[must_use]
    pub fn from_record(id: &str, kind: Option<ActorType>) -> Self {
        Self::new(id, kind.unwrap_or_else(|| Kind::default_for(id).actor_type()))
    }
}

/// The serialized form. Old documents have the name only.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum SerializedActor {
    Whole { id: String, kind: String },
    Name(String),
}

impl From<SerializedActor> for Actor {
    fn from(written: SerializedActor) -> Self {
        match written {
            SerializedActor::Whole { id, kind } => Self::from_record(&id, ActorType::parse(&kind)),
            SerializedActor::Name(id) => Self::from_record(&id, None),
        }
    }
}

impl From<Actor> for SerializedActor {
    fn from(actor: Actor) -> Self {
        Self::Whole { id: actor.id, kind: actor.kind.as_str().to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_kind_is_kept_and_not_guessed_from_the_name() {
        let bot = Actor::new("user_bot", ActorType::ExternalNode);
        let written = serde_json::to_value(&bot).unwrap();
        assert_eq!(written, json!({"id": "user_bot", "kind": "external_node"}));
        assert_eq!(serde_json::from_value::<Actor>(written).unwrap(), bot);
        assert_eq!(Actor::from_record("ceo", Some(ActorType::Human)).kind, ActorType::Human);
    }

    #[test]
    fn a_name_that_was_written_alone_is_what_the_shipped_registry_says() {
        let read = |name: &str| serde_json::from_value::<Actor>(json!(name)).unwrap().kind;
        assert_eq!((read("user_1"), read("service_1")), (ActorType::Human, ActorType::ExternalNode));
    }
}
