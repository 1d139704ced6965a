//! Who is a person when no entry of the registry says so.
//!
//! Only people decide about approvals. The documents name actors by pattern: `user_*` and `admin`
//! are people, everything else is a workflow or a service outside. That is the shipped registry's
//! default and nothing more: whoever wants to know what somebody is asks the registry.

use crate::ledger::ActorType;

/// The prefix of people's names.
const PERSON: &str = "user_";

/// The operator's name.
pub const ADMIN: &str = "admin";

/// What kind of actor a name stands for.
#[must_use]
pub(super) fn kind_of(actor: &str) -> ActorType {
    if actor == ADMIN || (actor.starts_with(PERSON) && actor.len() > PERSON.len()) {
        ActorType::Human
    } else {
        ActorType::ExternalNode
    }
}

/// Whether `actor` fits a pattern in which `*` stands for any run of characters.
#[must_use]
pub fn fits(pattern: &str, actor: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = actor.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_users_and_the_admin() {
        let people = ["user_123", "admin"];
        assert!(people.iter().all(|actor| kind_of(actor) == ActorType::Human));
        let others = ["n8n_workflow_abc", "service_chatbot", "superuser_1", "user_", "anonymous", ""];
        assert!(others.iter().all(|actor| kind_of(actor) == ActorType::ExternalNode));
    }

    /// CORE-086
    #[test]
    fn a_star_stands_for_any_run_of_characters() {
        let fitting = [("user_*", "user_123"), ("*", ""), ("*", "x"), ("a*c", "abc"), ("a*b*c", "a1b2c"), ("x", "x")];
        assert!(fitting.iter().all(|(pattern, actor)| fits(pattern, actor)));
        let others = [("user_*", "superuser_1"), ("x", "xy"), ("a*c", "ab"), ("a*b*c", "acb"), ("ab*b", "ab")];
        assert!(others.iter().all(|(pattern, actor)| !fits(pattern, actor)));
    }
}
