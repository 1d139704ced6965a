//! Roles: named sets of scopes.
//!
//! A role belongs to one tenant and means nothing in another. An actor holds its own scopes plus those of its roles.
//! Roles are resolved on use: a removed role grants nothing, and a changed role affects everybody who has it.

use super::registry::{ActorEntry, InvalidActorEntry, is_tenant_name};
use super::scope;
use crate::limits::{ACTOR_CHARS_MAX, ACTOR_SCOPES_MAX, ROLE_CHARS_MAX};
use crate::text::escape_invisible_line;
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    pub name: String,
    pub tenant: String,
    pub scopes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRole {
    #[error(
        "invalid role name `{0}`: use 1 to {ROLE_CHARS_MAX} letters, digits, `_`, `-` or `.`, starting with a letter or digit"
    )]
    Name(String),
    #[error("invalid tenant name `{0}`")]
    Tenant(String),
    /// It grants the operator scope.
    #[error("a role cannot grant the scope *: it is reserved for admin")]
    Everything,
    #[error("{0} is not a valid scope: use a name like notion.pages.read, notion.* or logs:read")]
    Scope(String),
    #[error("a role can have at most {ACTOR_SCOPES_MAX} scopes")]
    Scopes,
}

impl Role {
    /// Validates the role.
    pub fn check(&self) -> Result<(), InvalidRole> {
        let quoted = |text: &str| escape_invisible_line(text).chars().take(ACTOR_CHARS_MAX).collect();
        if !is_tenant_name(&self.name) || self.name.len() > ROLE_CHARS_MAX {
            return Err(InvalidRole::Name(quoted(&self.name)));
        }
        if !is_tenant_name(&self.tenant) {
            return Err(InvalidRole::Tenant(quoted(&self.tenant)));
        }
        if self.scopes.len() > ACTOR_SCOPES_MAX {
            return Err(InvalidRole::Scopes);
        }
        if self.scopes.iter().any(|scope| scope == "*") {
            return Err(InvalidRole::Everything);
        }
        match self.scopes.iter().find(|scope| !scope::is_well_formed(scope)) {
            Some(scope) => Err(InvalidRole::Scope(quoted(scope))),
            None => Ok(()),
        }
    }
}

/// All roles, by tenant and name.
#[derive(Clone, Debug, Default)]
pub struct Roles(BTreeMap<(String, String), Vec<String>>);

impl FromIterator<Role> for Roles {
    fn from_iter<I: IntoIterator<Item = Role>>(roles: I) -> Self {
        Self(roles.into_iter().map(|role| ((role.tenant, role.name), role.scopes)).collect())
    }
}

impl Roles {
    /// The scopes of a role, if it exists.
    #[must_use]
    pub fn role_scopes(&self, tenant: &str, name: &str) -> Option<&[String]> {
        self.0.get(&(tenant.to_owned(), name.to_owned())).map(Vec::as_slice)
    }

    /// A tenant's role names, sorted.
    pub fn names(&self, tenant: &str) -> impl Iterator<Item = &str> {
        let from = (tenant.to_owned(), String::new());
        self.0
            .range(from..)
            .map(|((of, name), _)| (of, name))
            .take_while(move |(of, _)| *of == tenant)
            .map(|(_, name)| &**name)
    }

    /// The scopes of an entry: its own and those of its roles. Idempotent.
    #[must_use]
    pub fn effective_scopes(&self, entry: &ActorEntry) -> Vec<String> {
        let mut all = entry.scopes.clone();
        for scope in entry.roles.iter().filter_map(|role| self.role_scopes(&entry.tenant, role)).flatten() {
            if !all.contains(scope) {
                all.push(scope.clone());
            }
        }
        all
    }

    /// Rejects an entry with an unknown role, unless the previous entry already had it: an actor with a removed role
    /// can still be edited. Rejects an entry with too many scopes in total.
    pub fn check(&self, entry: &ActorEntry, before: Option<&ActorEntry>) -> Result<(), InvalidActorEntry> {
        let had =
            |role: &String| before.is_some_and(|before| before.tenant == entry.tenant && before.roles.contains(role));
        let unknown = |role: &&String| self.role_scopes(&entry.tenant, role).is_none() && !had(role);
        if let Some(role) = entry.roles.iter().find(unknown) {
            return Err(InvalidActorEntry::Role(escape_invisible_line(role).chars().take(ROLE_CHARS_MAX).collect()));
        }
        if self.effective_scopes(entry).len() > ACTOR_SCOPES_MAX {
            return Err(InvalidActorEntry::TooMany {
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

    fn with(tenant: &str, scopes: &[&str], roles: &[&str]) -> ActorEntry {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        ActorEntry { scopes: texts(scopes), roles: texts(roles), ..ActorEntry::default_for("user_1", tenant) }
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
        let granted = |entry: ActorEntry| roles().effective_scopes(&entry);
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
        let unknown = |name: &str| Err(InvalidActorEntry::Role(name.to_owned()));
        assert_eq!(all.check(&with("acme", &[], &["writer"]), None), Ok(()));
        assert_eq!(all.check(&with("acme", &[], &["Writer"]), None), unknown("Writer"));
        assert_eq!(all.check(&with("globex", &[], &["reader"]), None), unknown("reader"));
        let before = with("acme", &[], &["gone"]);
        assert_eq!(all.check(&before, Some(&before)), Ok(()));
        assert_eq!(all.check(&with("globex", &[], &["gone"]), Some(&before)), unknown("gone"), "another tenant's");
        let hidden = format!("a\u{202e}{}", "b".repeat(1_000));
        let Err(InvalidActorEntry::Role(named)) = all.check(&with("acme", &[], &[&hidden]), None) else { panic!() };
        assert!(named.chars().count() <= ROLE_CHARS_MAX && !named.contains('\u{202e}'), "{named}");
        let many: Vec<String> = (0..ACTOR_SCOPES_MAX).map(|n| format!("a.b{n}")).collect();
        let full = ActorEntry { scopes: many, ..with("acme", &[], &["reader"]) };
        assert!(matches!(all.check(&full, None), Err(InvalidActorEntry::TooMany { member: "/roles", .. })));
    }

    #[test]
    fn a_role_has_a_plain_name_and_never_gives_everything() {
        assert_eq!(role("acme", "writer-2.eu", &["a.*"]).check(), Ok(()));
        let long = "a".repeat(ROLE_CHARS_MAX + 1);
        for strange in ["", "*", "a*", "a b", "-a", "a/b", "ä", "a\u{200b}", long.as_str()] {
            assert!(matches!(role("acme", strange, &[]).check(), Err(InvalidRole::Name(_))), "{strange}");
        }
        assert_eq!(role("a b", "x", &[]).check(), Err(InvalidRole::Tenant("a b".to_owned())));
        assert_eq!(role("acme", "x", &["a.b", "*"]).check(), Err(InvalidRole::Everything));
        assert_eq!(role("acme", "x", &["a..b"]).check(), Err(InvalidRole::Scope("a..b".to_owned())));
        let many = vec!["a.b"; ACTOR_SCOPES_MAX + 1];
        assert_eq!(role("acme", "x", &many).check(), Err(InvalidRole::Scopes));
    }
}
