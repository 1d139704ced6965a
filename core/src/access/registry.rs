//! The registry of actors: who may do what, how often and how freely.
//!
//! An entry applies to one name or to a pattern. An exact name takes precedence over patterns, a longer pattern over
//! a shorter one. An actor without an entry gets the default quota and no scopes. Layers override each other: an
//! entry in a later layer replaces the whole entry of the same name.

use super::kind::default_actor_type;
use super::person::share_mail;
use super::{ADMIN, Level, Roles, matches_pattern, scope};
use crate::ledger::ActorType;
use crate::limits::{ACTOR_CHARS_MAX, ACTOR_ROLES_MAX, ACTOR_SCOPES_MAX, QUOTA_DEFAULT, RATE_HITS_MAX};
use crate::text::escape_invisible_line;
use crate::words::words;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Scopes of the shipped registry.
pub const ACTOR_SCOPES: &[(&str, &[&str])] = &[
    (ADMIN, &["*"]),
    (
        "n8n_workflow_*",
        &["notion.*", "google.*", "github.read", "outlook.send", "local.summarize", "local.markdown_to_pdf"],
    ),
    ("user_*", &["local.summarize", "github.read", "notion.read"]),
    (ANONYMOUS, &[]),
];

/// Requests per minute of the shipped registry.
pub const ACTOR_RATE_LIMITS: &[(&str, u32)] = &[(ADMIN, 300), ("n8n_workflow_*", 60), ("user_*", 30), (ANONYMOUS, 10)];

/// Autonomy levels of the shipped registry.
pub const DEFAULT_AUTONOMY_LEVELS: &[(&str, Level)] = &[
    (ADMIN, Level::ExecuteSilent),
    ("n8n_workflow_*", Level::ExecuteNotify),
    ("user_*", Level::Draft),
    (ANONYMOUS, Level::Ask),
];

/// The actor of requests without a valid token.
pub const ANONYMOUS: &str = "anonymous";

words! {
    #[derive(Deserialize)]
    #[serde(rename_all = "snake_case")]
    Kind {
        Human = "human",
        Service = "service",
    }
}

words! {
    /// Where the entry of an actor comes from. A later layer replaces an earlier one.
    EntrySource {
        /// No entry applies.
        None = "none",
        /// Built in.
        Shipped = "shipped",
        /// The configuration.
        Config = "config",
        /// The store.
        Registry = "registry",
    }
}

impl Kind {
    /// The default kind of a name.
    #[must_use]
    pub(super) fn default_for(actor: &str) -> Self {
        if default_actor_type(actor) == ActorType::Human { Self::Human } else { Self::Service }
    }

    /// The actor type in the ledger.
    #[must_use]
    pub const fn actor_type(self) -> ActorType {
        match self {
            Self::Human => ActorType::Human,
            Self::Service => ActorType::ExternalNode,
        }
    }
}

/// The settings of an actor or of a pattern of actors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ActorEntry {
    /// The name, or a pattern with `*`.
    pub id: String,
    pub tenant: String,
    pub kind: Kind,
    pub scopes: Vec<String>,
    /// Roles of its tenant, whose scopes it also has.
    #[serde(default)]
    pub roles: Vec<String>,
    pub quota_per_minute: u32,
    /// Autonomy level. None: the risk score decides.
    pub level: Option<Level>,
    /// Where it is notified about the outcome of its runs.
    pub notify: Option<Value>,
    pub disabled: bool,
    /// Mail addresses that this person had before, normalized.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_mails: Vec<String>,
    /// The actor was removed. Its name is retired: nobody gets it again, and it may do nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidActorEntry {
    #[error("an actor name must have 1 to {ACTOR_CHARS_MAX} characters and no spaces")]
    Name,
    /// Not allowed for new actors: people must be able to tell names apart.
    #[error(
        "{0} is not a valid name for a new actor: use ASCII letters, digits and . _ - : @ +, starting with a letter, a digit or _"
    )]
    Spelling(String),
    /// `*` is reserved for the operator.
    #[error("the scope * is reserved for admin")]
    Everything,
    #[error("{0} is not a valid scope: use a name like notion.pages.read, notion.* or logs:read")]
    Scope(String),
    /// A limit is exceeded.
    #[error("an actor can have at most {most} {what}")]
    TooMany {
        what: &'static str,
        most: usize,
        /// JSON Pointer to the member.
        member: &'static str,
    },
    #[error("there is no role {0} in the actor's tenant")]
    Role(String),
    #[error(
        "invalid tenant name `{0}`: use 1 to {ACTOR_CHARS_MAX} letters, digits, `_`, `-` or `.`, starting with a letter or digit"
    )]
    Tenant(String),
    /// This actor may not run silently.
    #[error("L3_ExecuteSilent is for trusted system actors, not for user_* or anonymous")]
    Silent,
}

impl ActorEntry {
    #[must_use]
    pub fn is_pattern(&self) -> bool {
        self.id.contains('*')
    }

    /// Validates the entry.
    pub fn check(&self) -> Result<(), InvalidActorEntry> {
        if !is_actor_name(&self.id) {
            return Err(InvalidActorEntry::Name);
        }
        if !is_tenant_name(&self.tenant) {
            return Err(InvalidActorEntry::Tenant(self.tenant.chars().take(ACTOR_CHARS_MAX).collect()));
        }
        if self.scopes.len() > ACTOR_SCOPES_MAX {
            return Err(InvalidActorEntry::TooMany { what: "scopes", most: ACTOR_SCOPES_MAX, member: "/scopes" });
        }
        if self.roles.len() > ACTOR_ROLES_MAX {
            return Err(InvalidActorEntry::TooMany { what: "roles", most: ACTOR_ROLES_MAX, member: "/roles" });
        }
        if self.id != ADMIN && self.scopes.iter().any(|scope| scope == "*") {
            return Err(InvalidActorEntry::Everything);
        }
        if let Some(scope) = self.scopes.iter().find(|scope| !scope::is_well_formed(scope)) {
            return Err(InvalidActorEntry::Scope(scope.clone()));
        }
        if self.quota_per_minute > RATE_HITS_MAX {
            let most = usize::try_from(RATE_HITS_MAX).unwrap_or(usize::MAX);
            return Err(InvalidActorEntry::TooMany { what: "requests a minute", most, member: "/quota_per_minute" });
        }
        if self.level == Some(Level::ExecuteSilent) && is_never_silent(&self.id) {
            return Err(InvalidActorEntry::Silent);
        }
        Ok(())
    }

    /// The entry of an actor without one.
    #[must_use]
    pub fn default_for(actor: &str, tenant: &str) -> Self {
        Self {
            id: actor.to_owned(),
            tenant: tenant.to_owned(),
            kind: Kind::default_for(actor),
            scopes: Vec::new(),
            roles: Vec::new(),
            quota_per_minute: QUOTA_DEFAULT,
            level: Some(Level::Ask),
            notify: None,
            disabled: false,
            former_mails: Vec::new(),
            removed: false,
        }
    }
}

/// Whether a text is a valid actor name or pattern.
#[must_use]
pub fn is_actor_name(text: &str) -> bool {
    let strange = |c: char| c.is_control() || c.is_whitespace() || c == '/';
    (1..=ACTOR_CHARS_MAX).contains(&text.chars().count()) && !text.contains(strange)
}

/// Rejects a new name with invisible or confusable characters. Existing names keep working.
pub fn check_new_name(text: &str) -> Result<(), InvalidActorEntry> {
    let first = |c: char| c.is_ascii_alphanumeric() || "_*".contains(c);
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-:@+*".contains(c);
    if text.starts_with(first) && text.chars().all(plain) {
        return Ok(());
    }
    Err(InvalidActorEntry::Spelling(escape_invisible_line(text).chars().take(ACTOR_CHARS_MAX).collect()))
}

/// Whether a text is a valid tenant name. Stricter than actor names, since it is part of URLs and keys.
#[must_use]
pub fn is_tenant_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    (1..=ACTOR_CHARS_MAX).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(plain)
}

/// Whether an actor may never act silently.
#[must_use]
pub fn is_never_silent(actor: &str) -> bool {
    actor.starts_with("user_") || actor == ANONYMOUS
}

/// The entries of the shipped registry.
#[must_use]
pub fn shipped(tenant: &str) -> Vec<ActorEntry> {
    ACTOR_SCOPES
        .iter()
        .zip(ACTOR_RATE_LIMITS)
        .zip(DEFAULT_AUTONOMY_LEVELS)
        .map(|(((id, scopes), (_, quota)), (_, level))| ActorEntry {
            kind: Kind::default_for(id),
            scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
            quota_per_minute: *quota,
            level: Some(*level),
            ..ActorEntry::default_for(id, tenant)
        })
        .collect()
}

/// All entries, indexed for lookup.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    tenant: String,
    /// Suspended tenants: all their actors count as disabled.
    suspended: BTreeSet<String>,
    roles: Roles,
    /// Also removed actors, whose entry takes precedence over patterns.
    exact: BTreeMap<String, RegisteredEntry>,
    /// Longest first.
    patterns: Vec<RegisteredEntry>,
}

/// An entry as configured, and with the scopes of its roles applied.
#[derive(Clone, Debug)]
struct RegisteredEntry {
    configured: Arc<ActorEntry>,
    effective: Arc<ActorEntry>,
}

impl RegisteredEntry {
    fn new(entry: ActorEntry) -> Self {
        let configured = Arc::new(entry);
        Self { effective: Arc::clone(&configured), configured }
    }

    fn with_roles(self, roles: &Roles) -> Self {
        if self.configured.roles.is_empty() {
            return self;
        }
        let counting = ActorEntry { scopes: roles.effective_scopes(&self.configured), ..(*self.configured).clone() };
        Self { effective: Arc::new(counting), ..self }
    }
}

impl Registry {
    /// Builds the registry from layers; later entries override earlier ones. `tenant` applies to actors without an
    /// entry.
    #[must_use]
    pub fn new(tenant: &str, layers: impl IntoIterator<Item = ActorEntry>) -> Self {
        let mut all: BTreeMap<String, RegisteredEntry> = BTreeMap::new();
        for entry in layers {
            all.insert(entry.id.clone(), RegisteredEntry::new(entry));
        }
        let (patterns, exact): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, held)| held.configured.is_pattern());
        let mut patterns: Vec<_> = patterns.into_iter().map(|(_, held)| held).collect();
        patterns.sort_by_key(|held| std::cmp::Reverse(held.configured.id.chars().count()));
        let exact = exact.into_iter().collect();
        Self { tenant: tenant.to_owned(), exact, patterns, ..Self::default() }
    }

    /// Applies roles: adds their scopes to the entries.
    #[must_use]
    pub fn with_roles(self, roles: Roles) -> Self {
        let exact = self.exact.into_iter().map(|(id, held)| (id, held.with_roles(&roles))).collect();
        let patterns = self.patterns.into_iter().map(|held| held.with_roles(&roles)).collect();
        Self { roles, exact, patterns, ..self }
    }

    #[must_use]
    pub const fn roles(&self) -> &Roles {
        &self.roles
    }

    /// Disables all actors of these tenants.
    #[must_use]
    pub fn with_suspended(self, suspended: BTreeSet<String>) -> Self {
        Self { suspended, ..self }
    }

    /// The effective entry of an actor, with the scopes of its roles. Actors of a suspended tenant are disabled.
    #[must_use]
    pub fn resolve(&self, actor: &str) -> Arc<ActorEntry> {
        let entry = self.lookup(actor).effective;
        match self.suspended.contains(&entry.tenant) {
            true => Arc::new(ActorEntry { disabled: true, ..(*entry).clone() }),
            false => entry,
        }
    }

    /// The entry of an actor as configured: without the scopes of its roles, regardless of a suspension.
    #[must_use]
    pub fn configured(&self, actor: &str) -> Arc<ActorEntry> {
        self.lookup(actor).configured
    }

    fn lookup(&self, actor: &str) -> RegisteredEntry {
        let fitting = || self.patterns.iter().find(|held| matches_pattern(&held.configured.id, actor));
        let found = self.exact.get(actor).or_else(fitting);
        found.cloned().unwrap_or_else(|| RegisteredEntry::new(ActorEntry::default_for(actor, &self.tenant)))
    }

    /// The configured entry with exactly this name or pattern. None for a removed actor.
    #[must_use]
    pub fn entry(&self, id: &str) -> Option<&Arc<ActorEntry>> {
        let pattern = || self.patterns.iter().find(|held| held.configured.id == id);
        self.exact.get(id).or_else(pattern).map(|held| &held.configured).filter(|entry| !entry.removed)
    }

    /// All entries with the scopes of their roles: names in order, then patterns, longest first. Without removed
    /// actors.
    pub fn entries(&self) -> impl Iterator<Item = &Arc<ActorEntry>> {
        self.exact.values().chain(&self.patterns).map(|held| &held.effective).filter(|entry| !entry.removed)
    }

    /// The entry of an actor that was removed.
    #[must_use]
    pub fn removed(&self, actor: &str) -> Option<&Arc<ActorEntry>> {
        self.exact.get(actor).map(|held| &held.configured).filter(|entry| entry.removed)
    }

    /// The number of removed actors of a tenant.
    #[must_use]
    pub fn removed_of(&self, tenant: &str) -> usize {
        self.exact.values().filter(|held| held.configured.removed && held.configured.tenant == tenant).count()
    }

    /// Whether two names belong to one person: the same name, or people who have, or had, the same mail address, by their
    /// own entry or by a pattern. A removed person is still that person.
    #[must_use]
    pub fn is_same_person(&self, one: &str, other: &str) -> bool {
        one == other || share_mail(&self.configured(one), &self.configured(other))
    }

    /// Another person of the entry's tenant who has, or had, the same mail address. A removed one does not count: a
    /// person may be registered anew under another name.
    #[must_use]
    pub fn find_mail_duplicate(&self, entry: &ActorEntry) -> Option<&Arc<ActorEntry>> {
        let patterns = self.patterns.iter().filter(|held| !matches_pattern(&held.configured.id, &entry.id));
        let others = self.exact.values().chain(patterns).map(|held| &held.configured);
        others
            .filter(|other| other.id != entry.id)
            .into_iter()
            .find(|other| !other.removed && other.tenant == entry.tenant && share_mail(other, entry))
    }

    /// Pairs of people of one tenant who count as one person by their mail address, each pair once.
    #[must_use]
    pub fn mail_duplicates(&self) -> Vec<(&str, &str)> {
        let people = self.exact.iter().filter(|(_, held)| !held.configured.removed);
        let with_first =
            people.filter_map(|(id, held)| Some((self.find_mail_duplicate(&held.configured)?, id.as_str())));
        with_first.map(|(first, id)| (first.id.as_str(), id)).filter(|(first, id)| first < id).collect()
    }

    #[must_use]
    pub fn get_actor_scopes(&self, actor: &str) -> Vec<String> {
        self.resolve(actor).scopes.clone()
    }

    #[must_use]
    pub fn check_scope(&self, actor: &str, required_capability: &str) -> bool {
        scope::check_scope(&self.resolve(actor).scopes, required_capability)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Role;

    fn registry() -> Registry {
        Registry::new("default", shipped("default"))
    }

    fn entry(id: &str, scopes: &[&str]) -> ActorEntry {
        ActorEntry {
            scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
            ..ActorEntry::default_for(id, "default")
        }
    }

    /// CORE-006, CORE-007, CORE-008, CORE-009, CORE-010
    #[test]
    fn the_shipped_registry_grants_what_the_document_says() {
        let scopes = |actor: &str| registry().get_actor_scopes(actor);
        assert_eq!(scopes("admin"), ["*"]);
        assert_eq!(
            scopes("n8n_workflow_123"),
            ["notion.*", "google.*", "github.read", "outlook.send", "local.summarize", "local.markdown_to_pdf"]
        );
        assert_eq!(scopes("user_123"), ["local.summarize", "github.read", "notion.read"]);
        assert!(scopes("anonymous").is_empty());
        let ids: Vec<_> = ACTOR_SCOPES.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, ["admin", "n8n_workflow_*", "user_*", "anonymous"]);
        assert!(ACTOR_RATE_LIMITS.iter().map(|(id, _)| *id).eq(ids.iter().copied()));
        assert!(DEFAULT_AUTONOMY_LEVELS.iter().map(|(id, _)| *id).eq(ids));
        assert!(!registry().check_scope("user_123", "outlook.send"));
    }

    /// CORE-005, CORE-011, CORE-012
    #[test]
    fn the_shipped_registry_has_a_quota_and_a_level_for_each() {
        let given = |actor: &str| {
            let entry = registry().resolve(actor);
            (entry.quota_per_minute, entry.level.map(Level::as_str))
        };
        assert_eq!(given("admin"), (300, Some("L3_ExecuteSilent")));
        assert_eq!(given("n8n_workflow_abc"), (60, Some("L2_ExecuteNotify")));
        assert_eq!(given("user_1"), (30, Some("L1_Draft")));
        assert_eq!(given("anonymous"), (10, Some("L0_Ask")));
        assert!(shipped("default").iter().all(|entry| entry.check().is_ok()));
    }

    /// CORE-002, CORE-004, CORE-085
    #[test]
    fn whoever_fits_nothing_may_ask_sixty_times_and_do_nothing() {
        for actor in ["service_chatbot", "superuser_1", "x", "n8n_workflow"] {
            let entry = registry().resolve(actor);
            assert_eq!((entry.quota_per_minute, entry.level), (60, Some(Level::Ask)), "{actor}");
            assert!(entry.scopes.is_empty() && !registry().check_scope(actor, "local.summarize"));
        }
        assert!(["user_123", "n8n_workflow_abc", "service_chatbot"].iter().all(|name| is_actor_name(name)));
    }

    /// CORE-084, CORE-086
    #[test]
    fn the_name_goes_before_patterns_and_the_longer_pattern_before_the_shorter() {
        let more = [entry("user_*", &["a.b"]), entry("user_ops_*", &["c.d"]), entry("user_ops_1", &["e.f"])];
        let registry = Registry::new("default", shipped("default").into_iter().chain(more));
        let scopes = |actor: &str| registry.get_actor_scopes(actor);
        assert_eq!(scopes("user_9"), ["a.b"]);
        assert_eq!(scopes("user_ops_9"), ["c.d"]);
        assert_eq!(scopes("user_ops_1"), ["e.f"]);
        assert!(registry.check_scope("n8n_workflow_123", "notion.pages.read"));
        assert!(registry.entry("user_ops_*").is_some() && registry.entry("user_ops_2").is_none());
    }

    /// CORE-079
    #[test]
    fn only_the_admin_may_do_everything_and_nonsense_is_refused() {
        assert_eq!(entry("user_1", &["*"]).check(), Err(InvalidActorEntry::Everything));
        assert_eq!(entry("admin2", &["*"]).check(), Err(InvalidActorEntry::Everything));
        assert_eq!(entry("admin", &["*"]).check(), Ok(()));
        assert_eq!(entry("x", &["notion..read"]).check(), Err(InvalidActorEntry::Scope("notion..read".to_owned())));
        assert_eq!(entry("two words", &[]).check(), Err(InvalidActorEntry::Name));
        assert_eq!(entry("", &[]).check(), Err(InvalidActorEntry::Name));
        for strange in ["user_re\u{200b}q", "user_app\u{202e}", "user_\u{430}pp", "..", "user_<b>x", "-x", ""] {
            assert!(matches!(check_new_name(strange), Err(InvalidActorEntry::Spelling(_))), "{strange}");
        }
        for plain in ["user_1", "n8n_workflow_*", "ann@acme.example", "svc:a+b", "_x", "*"] {
            assert_eq!(check_new_name(plain), Ok(()), "{plain}");
        }
        for tenant in ["", " ", "a b", "a/b", "..", "a\n", "ä", "-a"] {
            let strange = ActorEntry { tenant: tenant.to_owned(), ..entry("x", &[]) };
            assert_eq!(strange.check(), Err(InvalidActorEntry::Tenant(tenant.to_owned())));
        }
        assert_eq!(ActorEntry { tenant: "acme-2.eu".to_owned(), ..entry("x", &[]) }.check(), Ok(()));
        let silent = ActorEntry { level: Some(Level::ExecuteSilent), ..entry("user_*", &[]) };
        assert_eq!(silent.check(), Err(InvalidActorEntry::Silent));
        let many = ActorEntry { scopes: vec!["a.b".to_owned(); ACTOR_SCOPES_MAX + 1], ..entry("x", &[]) };
        let at = |entry: ActorEntry| match entry.check() {
            Err(InvalidActorEntry::TooMany { member, .. }) => member,
            _ => "-",
        };
        let roles = ActorEntry { roles: vec!["a".to_owned(); ACTOR_ROLES_MAX + 1], ..entry("x", &[]) };
        let quota = ActorEntry { quota_per_minute: RATE_HITS_MAX + 1, ..entry("x", &[]) };
        assert_eq!([many, roles, quota].map(at), ["/scopes", "/roles", "/quota_per_minute"]);
    }

    #[test]
    fn what_counts_has_the_scopes_of_roles_and_what_is_written_has_not() {
        let role = |tenant: &str| Role {
            name: "clerk".to_owned(),
            tenant: tenant.to_owned(),
            scopes: vec![format!("{tenant}.read")],
        };
        let with = |id: &str, tenant: &str| ActorEntry {
            tenant: tenant.to_owned(),
            roles: vec!["clerk".to_owned(), "gone".to_owned()],
            ..entry(id, &["a.b"])
        };
        let entries = [with("ann", "acme"), with("acme_*", "acme"), with("bob", "globex"), with("cat", "default")];
        let registry = Registry::new("default", entries);
        let registry = registry.with_roles([role("acme"), role("globex")].into_iter().collect());
        for (actor, scopes) in [
            ("ann", &["a.b", "acme.read"][..]),
            ("acme_1", &["a.b", "acme.read"]),
            ("bob", &["a.b", "globex.read"]),
            ("cat", &["a.b"]),
            ("nobody", &[]),
        ] {
            assert_eq!(registry.get_actor_scopes(actor), scopes, "{actor}");
            let written: &[&str] = if actor == "nobody" { &[] } else { &["a.b"] };
            assert_eq!(registry.configured(actor).scopes, written, "{actor}");
        }
        assert!(registry.check_scope("ann", "acme.read") && !registry.check_scope("ann", "globex.read"));
        assert_eq!(registry.entries().filter(|entry| entry.scopes.len() == 2).count(), 3);
        assert_eq!(registry.entry("ann").unwrap().scopes, ["a.b"]);
    }
}
