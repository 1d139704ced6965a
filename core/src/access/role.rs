//! Roles: names for sets of scopes, for whoever does the same work.
//!
//! A role belongs to one tenant, and means nothing in another. An actor may do what its own scopes and its roles
//! give together. The names are looked up each time: a role that is gone gives nothing, and one that changes
//! changes what everybody who has it may do.

use super::registry::{BadEntry, Entry, is_tenant};
use super::scope;
use crate::limits::{ACTOR_CHARS_MAX, ACTOR_SCOPES_MAX, ROLE_CHARS_MAX};
use crate::text::visible_line;
use std::collections::BTreeMap;

/// A role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// What it is called.
    pub name: String,
    /// Whose it is.
    pub tenant: String,
    /// What it gives.
    pub scopes: Vec<String>,
}

/// What is wrong with a role.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRole {
    /// No role can be called like this.
    #[error(
        "`{0}` can't be a role's name: write 1 to {ROLE_CHARS_MAX} letters, digits, `_`, `-` or `.`, beginning with a letter or digit"
    )]
    Name(String),
    /// No tenant can be called like this.
    #[error("`{0}` can't be a tenant's name")]
    Tenant(String),
    /// It gives what only an operator has.
    #[error("the scope * is for admin alone, no role gives it")]
    Everything,
    /// No capability is called like this.
    #[error("{0} is not a scope: write names like notion.pages.read, notion.* or logs:read")]
    Scope(String),
    /// Too many scopes.
    #[error("a role gives at most {ACTOR_SCOPES_MAX} scopes")]
    Scopes,
}

impl Role {
    /// Refuses what no registry may hold.
    pub fn check(&self) -> Result<(), BadRole> {
        let quoted = |text: &str| visible_line(text).chars().take(ACTOR_CHARS_MAX).collect();
        if !is_tenant(&self.name) || self.name.len() > ROLE_CHARS_MAX {
            return Err(BadRole::Name(quoted(&self.name)));
        }
        if !is_tenant(&self.tenant) {
            return Err(BadRole::Tenant(quoted(&self.tenant)));
        }
        if self.scopes.len() > ACTOR_SCOPES_MAX {
            return Err(BadRole::Scopes);
        }
        if self.scopes.iter().any(|scope| scope == "*") {
            return Err(BadRole::Everything);
        }
        match self.scopes.iter().find(|scope| !scope::is_well_formed(scope)) {
            Some(scope) => Err(BadRole::Scope(quoted(scope))),
            None => Ok(()),
        }
    }
}

/// Every role, by its tenant and its name.
#[derive(Clone, Debug, Default)]
pub struct Roles(BTreeMap<(String, String), Vec<String>>);

impl FromIterator<Role> for Roles {
    fn from_iter<I: IntoIterator<Item = Role>>(roles: I) -> Self {
        Self(roles.into_iter().map(|role| ((role.tenant, role.name), role.scopes)).collect())
    }
}

impl Roles {
    /// What a role of a tenant gives, if it is there.
    #[must_use]
    pub fn scopes_of(&self, tenant: &str, name: &str) -> Option<&[String]> {
        self.0.get(&(tenant.to_owned(), name.to_owned())).map(Vec::as_slice)
    }

    /// The names of a tenant's roles, in their order.
    pub fn names(&self, tenant: &str) -> impl Iterator<Item = &str> {
        let from = (tenant.to_owned(), String::new());
        self.0
            .range(from..)
            .map(|((of, name), _)| (of, name))
            .take_while(move |(of, _)| *of == tenant)
            .map(|(_, name)| &**name)
    }

    /// What an entry gives: its own scopes, and those of its roles. An entry that has them already stays the same.
    #[must_use]
    pub fn granted(&self, entry: &Entry) -> Vec<String> {
        let mut all = entry.scopes.clone();
        for scope in entry.roles.iter().filter_map(|role| self.scopes_of(&entry.tenant, role)).flatten() {
            if !all.contains(scope) {
                all.push(scope.clone());
            }
        }
        all
    }

    /// Refuses an entry with a role that its tenant lacks, unless the entry from before has it too: whoever has a
    /// role that is gone can still be changed. Refuses what gives more scopes than an actor may have.
    pub fn check(&self, entry: &Entry, before: Option<&Entry>) -> Result<(), BadEntry> {
        let had =
            |role: &String| before.is_some_and(|before| before.tenant == entry.tenant && before.roles.contains(role));
        let unknown = |role: &&String| self.scopes_of(&entry.tenant, role).is_none() && !had(role);
        if let Some(role) = entry.roles.iter().find(unknown) {
            return Err(BadEntry::Role(visible_line(role).chars().take(ROLE_CHARS_MAX).collect()));
        }
        if self.granted(entry).len() > ACTOR_SCOPES_MAX {
            return Err(BadEntry::TooMany {
                what: "scopes, with those of its roles",
                most: ACTOR_SCOPES_MAX,
                member: "/roles",
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(tenant: &str, name: &str, scopes: &[&str]) -> Role {
        let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
        Role { name: name.to_owned(), tenant: tenant.to_owned(), scopes }
    }

    fn with(tenant: &str, scopes: &[&str], roles: &[&str]) -> Entry {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Entry { scopes: texts(scopes), roles: texts(roles), ..Entry::unmatched("user_1", tenant) }
    }

    fn roles() -> Roles {
        let all = [
            role("acme", "writer", &["notion.*", "github.read"]),
            role("acme", "reader", &["github.read"]),
            role("globex", "writer", &["s3.upload"]),
        ];
        all.into_iter().collect()
    }

    #[test]
    fn an_entry_gives_its_own_scopes_and_those_of_its_roles_in_its_own_tenant() {
        let granted = |entry: Entry| roles().granted(&entry);
        assert_eq!(granted(with("acme", &["a.b"], &["writer", "reader"])), ["a.b", "notion.*", "github.read"]);
        assert_eq!(granted(with("globex", &[], &["writer", "reader"])), ["s3.upload"]);
        assert!(granted(with("initech", &[], &["writer"])).is_empty());
        assert_eq!(granted(with("acme", &["a.b"], &["gone"])), ["a.b"]);
        let all = roles();
        assert_eq!(all.names("acme").collect::<Vec<_>>(), ["reader", "writer"]);
        assert_eq!(all.names("acm").count(), 0);
    }

    #[test]
    fn a_role_that_a_tenant_lacks_is_not_given_but_one_that_is_gone_may_stay() {
        let all = roles();
        let unknown = |name: &str| Err(BadEntry::Role(name.to_owned()));
        assert_eq!(all.check(&with("acme", &[], &["writer"]), None), Ok(()));
        assert_eq!(all.check(&with("acme", &[], &["Writer"]), None), unknown("Writer"));
        assert_eq!(all.check(&with("globex", &[], &["reader"]), None), unknown("reader"));
        let before = with("acme", &[], &["gone"]);
        assert_eq!(all.check(&before, Some(&before)), Ok(()));
        assert_eq!(all.check(&with("globex", &[], &["gone"]), Some(&before)), unknown("gone"), "another tenant's");
        let hidden = format!("a\u{202e}{}", "b".repeat(1_000));
        let Err(BadEntry::Role(told)) = all.check(&with("acme", &[], &[&hidden]), None) else { panic!() };
        assert!(told.chars().count() <= ROLE_CHARS_MAX && !told.contains('\u{202e}'), "{told}");
        let many: Vec<String> = (0..ACTOR_SCOPES_MAX).map(|n| format!("a.b{n}")).collect();
        let full = Entry { scopes: many, ..with("acme", &[], &["reader"]) };
        assert!(matches!(all.check(&full, None), Err(BadEntry::TooMany { member: "/roles", .. })));
    }

    #[test]
    fn a_role_has_a_plain_name_and_never_gives_everything() {
        assert_eq!(role("acme", "writer-2.eu", &["a.*"]).check(), Ok(()));
        let long = "a".repeat(ROLE_CHARS_MAX + 1);
        for strange in ["", "*", "a*", "a b", "-a", "a/b", "ä", "a\u{200b}", long.as_str()] {
            assert!(matches!(role("acme", strange, &[]).check(), Err(BadRole::Name(_))), "{strange}");
        }
        assert_eq!(role("a b", "x", &[]).check(), Err(BadRole::Tenant("a b".to_owned())));
        assert_eq!(role("acme", "x", &["a.b", "*"]).check(), Err(BadRole::Everything));
        assert_eq!(role("acme", "x", &["a..b"]).check(), Err(BadRole::Scope("a..b".to_owned())));
        let many = vec!["a.b"; ACTOR_SCOPES_MAX + 1];
        assert_eq!(role("acme", "x", &many).check(), Err(BadRole::Scopes));
    }
}
