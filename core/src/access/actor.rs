//! Who did something, and what they were when they did it.
//!
//! The registry says whether somebody is a person, and it may say something else tomorrow. So whatever is kept of
//! an act keeps both: signals, entries of the ledger, pauses, patches.

use super::registry::Kind;
use crate::ledger::ActorType;
use serde::{Deserialize, Serialize};

/// An actor and its kind at the time of an act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Actor {
    /// The name.
    pub id: String,
    /// What the registry said.
    pub kind: ActorType,
}

impl Actor {
    /// Somebody whom the registry was asked about.
    #[must_use]
    pub fn new(id: impl Into<String>, kind: ActorType) -> Self {
        Self { id: id.into(), kind }
    }

    /// Chimera itself.
    #[must_use]
    pub fn system() -> Self {
        Self::new("system", ActorType::System)
    }

    /// A person: whoever decided about an approval is one, since nobody else may.
    #[must_use]
    pub fn person(id: impl Into<String>) -> Self {
        Self::new(id, ActorType::Human)
    }

    /// Somebody as a row has them. Rows that were written before kinds were kept have none; what the
    /// shipped registry says of the name counts for those.
    #[must_use]
    pub fn recorded(id: &str, kind: Option<&str>) -> Self {
        let kind = kind.and_then(ActorType::parse);
        Self::new(id, kind.unwrap_or_else(|| Kind::of(id).actor_type()))
    }
}

/// An actor in a document; a name alone was written before kinds were kept.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Whole { id: String, kind: String },
    Name(String),
}

impl From<Written> for Actor {
    fn from(written: Written) -> Self {
        match written {
            Written::Whole { id, kind } => Self::recorded(&id, Some(&kind)),
            Written::Name(id) => Self::recorded(&id, None),
        }
    }
}

impl From<Actor> for Written {
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
        assert_eq!(Actor::recorded("ceo", Some("human")).kind, ActorType::Human);
    }

    #[test]
    fn a_name_that_was_written_alone_is_what_the_shipped_registry_says() {
        let read = |name: &str| serde_json::from_value::<Actor>(json!(name)).unwrap().kind;
        assert_eq!((read("user_1"), read("service_1")), (ActorType::Human, ActorType::ExternalNode));
    }
}
