//! Who is a person when the registry has no entry that says so, and name patterns.
//!
//! Only people can decide approvals. The specification identifies actors by pattern: `user_*` and `admin` are people,
//! everything else is an external workflow or service. This is only the default of the shipped registry: ask the
//! registry for the kind of an actor.

use crate::ledger::ActorType;

/// Name prefix of people.
const PERSON: &str = "user_";

/// The operator's name.
pub const ADMIN: &str = "admin";

/// The default kind of an actor name.
#[must_use]
pub(super) fn default_actor_type(actor: &str) -> ActorType {
    if actor == ADMIN || (actor.starts_with(PERSON) && actor.len() > PERSON.len()) {
        ActorType::Human
    } else {
        ActorType::ExternalNode
    }
}

/// Whether `actor` matches a pattern in which `*` stands for any characters.
#[must_use]
pub fn matches_pattern(pattern: &str, actor: &str) -> bool {
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

/// Whether some name matches both patterns.
#[must_use]
pub fn overlap(one: &str, other: &str) -> bool {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    // `below[with]`: whether the suffixes of both patterns have a match in common, computed from the end.
    let mut below = vec![false; other.len() + 1];
    for at in (0..=one.len()).rev() {
        let mut row = vec![false; other.len() + 1];
        for with in (0..=other.len()).rev() {
            let next = |more: bool| more && row[with + 1];
            row[with] = match (one.get(at), other.get(with)) {
                (None, None) => true,
                (Some('*'), end) => below[with] || next(end.is_some()),
                (start, Some('*')) => row[with + 1] || start.is_some() && below[with],
                (Some(a), Some(b)) => a == b && below[with + 1],
                _ => false,
            };
        }
        below = row;
    }
    below[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_users_and_the_admin() {
        let people = ["user_123", "admin"];
        assert!(people.iter().all(|actor| default_actor_type(actor) == ActorType::Human));
        let others = ["n8n_workflow_abc", "service_chatbot", "superuser_1", "user_", "anonymous", ""];
        assert!(others.iter().all(|actor| default_actor_type(actor) == ActorType::ExternalNode));
    }

    #[test]
    fn patterns_overlap_if_somebody_fits_both() {
        for (one, other) in
            [("ops_*", "ops_ann"), ("*", "x"), ("a*", "*z"), ("a*b", "a*"), ("x", "x"), ("*_bot", "user_*")]
        {
            assert!(overlap(one, other) && overlap(other, one), "{one} {other}");
        }
        for (one, other) in [("n8n_workflow_*", "user_*"), ("ops_*", "ops"), ("a*c", "b*"), ("a*c", "a*d"), ("x", "xy")]
        {
            assert!(!overlap(one, other) && !overlap(other, one), "{one} {other}");
        }
    }

    /// CORE-086
    #[test]
    fn a_star_stands_for_any_run_of_characters() {
        let fitting = [("user_*", "user_123"), ("*", ""), ("*", "x"), ("a*c", "abc"), ("a*b*c", "a1b2c"), ("x", "x")];
        assert!(fitting.iter().all(|(pattern, actor)| matches_pattern(pattern, actor)));
        let others = [("user_*", "superuser_1"), ("x", "xy"), ("a*c", "ab"), ("a*b*c", "acb"), ("ab*b", "ab")];
        assert!(others.iter().all(|(pattern, actor)| !matches_pattern(pattern, actor)));
    }
}
