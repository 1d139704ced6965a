//! Checks that somebody can sign in, and that no two entries are the same person.

use super::{Finding, fail, ok, warn};
use crate::compose;
use crate::failure::Outcome;
use chimera_core::error::Code;

pub(super) fn findings(found: Outcome<compose::ActorFacts>) -> Vec<Finding> {
    let found = match found {
        Ok(found) => found,
        Err(failure) if failure.code == Code::ConfigInvalid => {
            let hint = "correct access.actors_file; docs/guides/access.md describes it";
            return vec![fail("actors", failure.message, hint)];
        }
        Err(failure) => {
            let hint = "check the store; see the findings above";
            return vec![fail("actors", failure.message, hint)];
        }
    };
    let entries = found.entries;
    let mut findings = vec![match (found.keys, found.dev_keys) {
        (0, 0) => warn(
            "actors",
            "nobody has a key, so nobody can sign in".to_owned(),
            "chimera actor add admin creates the first one",
        ),
        (keys, 0) => ok("actors", format!("entries: {entries}, keys: {keys}")),
        (keys, dev) => ok("actors", format!("entries: {entries}, keys: {keys}, only for chimera dev: {dev}")),
    }];
    if !found.namesakes.is_empty() {
        let message = format!("people with the same mail address count as one person: {}", found.namesakes.join(", "));
        let hint = "give each a separate address in notify.email, or remove the duplicate entry";
        findings.push(warn("addresses", message, hint));
    }
    if !found.misspelled.is_empty() {
        let message = format!("mail addresses that are not plain ASCII: {}", found.misspelled.join(", "));
        let hint = "write notify.email as one address like ann@example.com, with the domain in its xn-- form";
        findings.push(warn("addresses", message, hint));
    }
    if !found.retired.is_empty() {
        let message = format!("the configuration names actors that were removed: {}", found.retired.join(", "));
        let hint = "a removed name is retired: choose another name in access.actors_file";
        findings.push(warn("actors", message, hint));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn people_with_one_address_are_named() {
        let facts = |namesakes: &[&str]| compose::ActorFacts {
            entries: 5,
            keys: 1,
            dev_keys: 0,
            namesakes: namesakes.iter().map(|pair| (*pair).to_owned()).collect(),
            ..compose::ActorFacts::default()
        };
        assert_eq!(findings(Ok(facts(&[]))).len(), 1);
        let found = findings(Ok(facts(&["user_a and user_b"])));
        assert_eq!((found[0].verdict, found[1].verdict, found[1].name), (Verdict::Ok, Verdict::Warn, "addresses"));
        assert!(found[1].message.ends_with("user_a and user_b"), "{found:?}");
    }

    #[test]
    fn addresses_that_are_not_plain_and_retired_names_of_the_configuration_are_named() {
        let facts = compose::ActorFacts {
            keys: 1,
            misspelled: vec!["user_ann".to_owned()],
            retired: vec!["user_zed".to_owned()],
            ..compose::ActorFacts::default()
        };
        let found = findings(Ok(facts));
        assert_eq!((found[1].name, found[1].verdict), ("addresses", Verdict::Warn));
        assert_eq!((found[2].name, found[2].verdict), ("actors", Verdict::Warn));
        assert!(found[1].message.ends_with("user_ann") && found[2].message.ends_with("user_zed"), "{found:?}");
    }
}
