//! The person behind an entry: which entries are one person, and what stays of one that was removed.
//!
//! People are told apart by mail address. An address that a person had before still counts, also after the entry was
//! removed: otherwise a new address or a new name would make a second person of them.

use super::{ActorEntry, Kind, Level, normalize_mail_address};
use std::collections::BTreeSet;

/// The normalized mail address of a person.
#[must_use]
pub fn person_mail(entry: &ActorEntry) -> Option<String> {
    let mail = entry.notify.as_ref()?.get("email")?.as_str()?;
    (entry.kind == Kind::Human && !entry.is_pattern()).then(|| normalize_mail_address(mail))
}

/// All mail addresses that this person has or had, normalized.
fn mails(entry: &ActorEntry) -> impl Iterator<Item = String> {
    person_mail(entry).into_iter().chain(entry.former_mails.iter().cloned())
}

/// Whether two people have, or had, an address in common.
pub(super) fn share_mail(one: &ActorEntry, other: &ActorEntry) -> bool {
    mails(one).any(|mail| mails(other).any(|others| others == mail))
}

/// The same entry after the actor was removed: no rights and no address, but known by its former addresses.
#[must_use]
pub fn retired(entry: &ActorEntry) -> ActorEntry {
    let former: BTreeSet<String> = mails(entry).collect();
    ActorEntry {
        scopes: Vec::new(),
        roles: Vec::new(),
        level: Some(Level::Ask),
        notify: None,
        disabled: true,
        former_mails: former.into_iter().collect(),
        removed: true,
        ..entry.clone()
    }
}

/// An entry that replaces `before`: a person who got another address keeps the earlier ones.
#[must_use]
pub fn replacing(entry: ActorEntry, before: &ActorEntry) -> ActorEntry {
    let current = person_mail(&entry);
    let former: BTreeSet<String> = mails(before).filter(|mail| current.as_ref() != Some(mail)).collect();
    ActorEntry { former_mails: former.into_iter().collect(), ..entry }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Registry;

    fn entry(id: &str, scopes: &[&str]) -> ActorEntry {
        ActorEntry {
            scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
            ..ActorEntry::default_for(id, "default")
        }
    }

    #[test]
    fn people_of_a_tenant_with_one_address_are_namesakes() {
        let mailed = |id: &str, tenant: &str, mail: &str| ActorEntry {
            notify: Some(serde_json::json!({ "email": mail })),
            ..ActorEntry::default_for(id, tenant)
        };
        let all = [
            mailed("user_a", "t", "x@acme.example"),
            mailed("user_b", "t", "X@acme.example"),
            mailed("user_c", "t", "x+1@acme.example"),
            mailed("user_d", "other", "x@acme.example"),
            mailed("service_e", "t", "x@acme.example"),
            mailed("user_*", "t", "x@acme.example"),
            entry("user_f", &[]),
        ];
        let registry = Registry::new("t", all);
        assert_eq!(registry.mail_duplicates(), [("user_a", "user_b")]);
        assert!(registry.is_same_person("user_a", "user_b") && registry.is_same_person("user_f", "user_f"));
        assert!(registry.is_same_person("user_a", "user_d"), "whichever tenant's they are");
        for other in ["user_c", "service_e", "user_f", "user_unknown"] {
            assert!(!registry.is_same_person("user_a", other), "{other}");
        }
    }

    #[test]
    fn a_removed_name_may_do_nothing_and_stays_the_same_person() {
        let mailed = |id: &str, mail: &str| ActorEntry {
            notify: Some(serde_json::json!({ "email": mail })),
            ..entry(id, &["a.b"])
        };
        let moved = replacing(mailed("user_a", "new@acme.example"), &mailed("user_a", "Old@acme.example"));
        assert_eq!(moved.former_mails, ["old@acme.example"]);
        let back = replacing(mailed("user_a", "old@acme.example"), &moved);
        assert_eq!(back.former_mails, ["new@acme.example"]);
        let all = [
            entry("user_*", &["c.d"]),
            retired(&moved),
            mailed("user_b", "old@acme.example"),
            mailed("user_c", "new@acme.example"),
            mailed("user_d", "d@acme.example"),
        ];
        let registry = Registry::new("default", all);
        let gone = registry.resolve("user_a");
        assert!(gone.removed && gone.disabled && gone.scopes.is_empty() && gone.notify.is_none());
        assert!(registry.entry("user_a").is_none() && registry.entries().all(|entry| entry.id != "user_a"));
        assert!(registry.removed("user_a").is_some() && registry.removed("user_b").is_none());
        assert_eq!((registry.removed_of("default"), registry.removed_of("other")), (1, 0));
        for (other, same) in [("user_b", true), ("user_c", true), ("user_d", false)] {
            assert_eq!(registry.is_same_person("user_a", other), same, "{other}");
        }
        assert!(registry.mail_duplicates().is_empty(), "they may be registered again, under another name");
    }
}
