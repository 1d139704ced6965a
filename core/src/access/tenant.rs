//! Tenant settings: domains, notification channel, and which of the process's resources the tenant may use.
//!
//! A destination at another domain is external; a tenant without registered domains has no internal destinations. The
//! default tenant is the one that the process is configured for: every configured tool, bucket and secret belongs to
//! it. Any other tenant (a guest) uses what is shared with it by name, plus secrets and objects of its own.

use super::destination::destinations;
use super::matches_pattern;
use crate::limits::TENANT_SLUG_CHARS_MAX;
use crate::secret::SecretName;
use crate::text::is_invisible;
use crate::tool::{EffectKind, Spec};
use crate::words::words;
use serde_json::Value;

/// Key prefix of guest objects in a bucket.
const GUEST_OBJECTS_PREFIX: &str = ".tenants";

/// Name prefix of secrets that belong to one guest.
const GUEST_SECRETS_PREFIX: &str = "tenants.";

words! {
    TenantStatus {
        Active = "active",
        /// Its actors can't authenticate.
        Suspended = "suspended",
    }
}

/// The settings of a tenant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TenantSettings {
    /// Domains in lower case. Subdomains are included.
    pub domains: Vec<String>,
    /// Default notification channel of its actors.
    pub notify: Option<Value>,
    pub shared: SharedResources,
}

/// Names and patterns of the resources shared with a tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedResources {
    /// Tools. Pure tools are shared with everybody.
    pub tools: Vec<String>,
    pub buckets: Vec<String>,
    pub secrets: Vec<String>,
}

/// A tenant other than the default one, and what is shared with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    pub id: String,
    pub slug: String,
    pub shared: SharedResources,
}

impl Guest {
    #[must_use]
    pub fn may_use_tool(&self, tool: &Spec) -> bool {
        tool.effect == EffectKind::Pure || any_matches(&self.shared.tools, &tool.name)
    }

    #[must_use]
    pub fn may_use_bucket(&self, bucket: &str) -> bool {
        any_matches(&self.shared.buckets, bucket)
    }

    /// The key of an object of this tenant in a bucket.
    #[must_use]
    pub fn object_key(&self, key: &str) -> String {
        format!("{GUEST_OBJECTS_PREFIX}/{}/{key}", self.id)
    }

    /// Names under which a secret is looked up: first the tenant's own, then the name itself if it is shared. A slug
    /// with a dot has no secrets of its own, since they could be confused with another tenant's.
    pub fn secret_names<'a>(&self, name: &'a SecretName) -> impl Iterator<Item = SecretName> + use<'a> {
        let own = format!("{GUEST_SECRETS_PREFIX}{}.{}", self.slug, name.as_str());
        let own = (!self.slug.contains('.')).then(|| SecretName::new(&own).ok()).flatten();
        let shared = !is_guest_secret(name) && any_matches(&self.shared.secrets, name.as_str());
        own.into_iter().chain(shared.then(|| name.clone()))
    }
}

fn any_matches(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| matches_pattern(pattern, name))
}

/// Whether a key is in the guest area of a bucket, in any spelling that a file system accepts.
#[must_use]
pub fn is_guest_object_key(key: &str) -> bool {
    key.split('/').next().is_some_and(|first| first.eq_ignore_ascii_case(GUEST_OBJECTS_PREFIX))
}

/// Whether a secret belongs to one guest. Such names cannot be referenced.
#[must_use]
pub fn is_guest_secret(name: &SecretName) -> bool {
    name.as_str().starts_with(GUEST_SECRETS_PREFIX)
}

impl TenantSettings {
    /// Whether a mail address, URL or host is outside the tenant's domains.
    #[must_use]
    pub fn is_outside(&self, destination: &str) -> bool {
        let Some(host) = parse_host(destination) else { return true };
        !self.domains.iter().any(|domain| {
            let above = host.strip_suffix(domain.as_str());
            above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
        })
    }

    /// Whether a call sends a message to a destination outside the tenant's domains. Unknown destinations count as
    /// outside.
    #[must_use]
    pub fn messages_outsiders(&self, tool: &Spec, input: &Value) -> bool {
        let named = destinations(tool, input);
        named.is_some_and(|named| named.iter().any(|destination| self.is_outside(destination)))
    }
}

/// Whether a text is a valid slug for a new tenant. Slugs are part of URLs, files and secret names.
#[must_use]
pub fn is_slug(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=TENANT_SLUG_CHARS_MAX).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(plain)
}

/// Whether a text is a lower-case domain name.
#[must_use]
pub fn is_domain(text: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    text.len() <= 253 && text.split('.').all(label)
}

/// URL schemes for which all parsers agree on the host.
const PLAIN_SCHEMES: [&str; 4] = ["http", "https", "ws", "wss"];

/// Characters allowed after the host besides letters and digits. `@` is not among them: some parsers take everything
/// before the last `@` of the URL as user info.
const PATH_SIGNS: &str = "/?#%-._~!$&'()*+,;=:[]";

/// The host of a mail address, a URL, or a host with or without a port. Only plain spellings are accepted: if two
/// parsers could find different hosts, there is none, so that nobody can hide behind an odd spelling.
fn parse_host(destination: &str) -> Option<String> {
    let host = match (destination.split_once("://"), destination.rsplit_once('@')) {
        (Some((scheme, rest)), _) => url_host(scheme, rest)?,
        (None, Some((before, domain))) => mail_domain(before, domain)?,
        (None, None) => without_port(destination)?,
    };
    let host = host.to_ascii_lowercase();
    is_domain(&host).then_some(host)
}

fn url_host<'a>(scheme: &str, rest: &'a str) -> Option<&'a str> {
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let plain = |sign: char| sign.is_ascii_alphanumeric() || PATH_SIGNS.contains(sign);
    let known = PLAIN_SCHEMES.iter().any(|known| known.eq_ignore_ascii_case(scheme));
    without_port(authority).filter(|_| known && path.chars().all(plain))
}

/// The domain of `ann@acme.example` or `Ann <ann@acme.example>`, and of nothing else: a second address, a route, a
/// quoted name or a comment may lead elsewhere.
fn mail_domain<'a>(before: &str, domain: &'a str) -> Option<&'a str> {
    let (local, domain) = match before.split_once('<') {
        Some((name, local)) => {
            let plain = |sign: char| !is_invisible(sign) && (sign.is_alphanumeric() || " .-'".contains(sign));
            let domain = domain.strip_suffix('>')?;
            (local, Some(domain).filter(|_| name.chars().all(plain))?)
        }
        None => (before, domain),
    };
    let part = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_+-'".contains(&byte))
    };
    local.split('.').all(part).then_some(domain)
}

/// Removes the port and one trailing dot.
fn without_port(authority: &str) -> Option<&str> {
    let host = match authority.split_once(':') {
        Some((host, port)) => {
            let plain = (1..=5).contains(&port.len()) && port.bytes().all(|byte| byte.is_ascii_digit());
            Some(host).filter(|_| plain)?
        }
        None => authority,
    };
    Some(host.strip_suffix('.').unwrap_or(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acme() -> TenantSettings {
        TenantSettings { domains: vec!["acme.example".to_owned()], ..TenantSettings::default() }
    }

    fn guest(slug: &str, secrets: &[&str]) -> Guest {
        let secrets = secrets.iter().map(|name| (*name).to_owned()).collect();
        Guest {
            id: "t1".to_owned(),
            slug: slug.to_owned(),
            shared: SharedResources { secrets, ..SharedResources::default() },
        }
    }

    #[test]
    fn a_tenant_has_secrets_of_its_own_and_those_that_are_shared_with_it() {
        let names = |guest: &Guest, name: &str| -> Vec<String> {
            let name = SecretName::new(name).unwrap();
            guest.secret_names(&name).map(|name| name.as_str().to_owned()).collect()
        };
        assert_eq!(names(&guest("acme", &[]), "smtp"), ["tenants.acme.smtp"]);
        assert_eq!(names(&guest("acme", &["slack.*"]), "slack.ops"), ["tenants.acme.slack.ops", "slack.ops"]);
        assert_eq!(
            names(&guest("a.b", &["smtp"]), "smtp"),
            ["smtp"],
            "tenants.a.b.smtp could be the secret b.smtp of a"
        );
        // A secret of another guest cannot be shared.
        assert_eq!(names(&guest("acme", &["*"]), "tenants.b.smtp"), ["tenants.acme.tenants.b.smtp"]);
        assert!(is_guest_secret(&SecretName::new("tenants.b.smtp").unwrap()));
    }

    #[test]
    fn objects_of_a_tenant_lie_where_nobody_else_can_name_them() {
        assert_eq!(guest("acme", &[]).object_key("a/b"), ".tenants/t1/a/b");
        for theirs in [".tenants/t1/a", ".TENANTS/t1/a", ".tenants"] {
            assert!(is_guest_object_key(theirs), "{theirs}");
        }
        for plain in ["a/.tenants/t1", "tenants/t1", ".tenants2/a"] {
            assert!(!is_guest_object_key(plain), "{plain}");
        }
    }

    #[test]
    fn a_slug_is_short_and_plain() {
        for slug in ["acme", "acme-2", "a"] {
            assert!(is_slug(slug), "{slug}");
        }
        let long = "a".repeat(TENANT_SLUG_CHARS_MAX + 1);
        for strange in ["", "Acme", "2acme", "-acme", "a.b", "a_b", "a b", "ä", "a/b", long.as_str()] {
            assert!(!is_slug(strange), "{strange}");
        }
    }

    #[test]
    fn whoever_is_below_a_registered_domain_is_inside() {
        for inside in [
            "ann@acme.example",
            "Ann <ann@Sales.ACME.example>",
            "https://hooks.acme.example/x?y",
            "http://acme.example:8080",
            "acme.example",
            "acme.example.",
            "https://acme.example./a%20b?c=d&e=[1]#f",
            "o'neill.ann+x@acme.example",
            "Jürgen O'Neill-Lang <j@acme.example>",
        ] {
            assert!(!acme().is_outside(inside), "{inside}");
        }
    }

    #[test]
    fn whatever_could_be_elsewhere_is_outside() {
        for outside in [
            "ann@example.com",
            "ann@notacme.example",
            "ann@acme.example.evil.test",
            "https://acme.example@evil.test/",
            "https://evil.test/acme.example",
            "https://evil.test\\@acme.example/",
            "https://evil.test#@acme.example",
            "ann@acme.example, bob@evil.test",
            "bob@evil.test,ann@acme.example",
            "mailto:bob@evil.test?cc=ann@acme.example",
            "bob@evil.test#@acme.example",
            "@evil.test:ann@acme.example",
            "bob%evil.test@acme.example",
            "evil.test!bob@acme.example",
            "Bob bob@evil.test <ann@acme.example>",
            "ann@acme.example\nbcc: bob@evil.test",
            "https://acme.example\\@evil.test/",
            "https://acme.example\\.evil.test/",
            "https://acme.example/\\evil.test",
            "https://acme.example/@evil.test",
            "https://acme.example/ @evil.test/",
            "https://acme.example/\u{200b}",
            "https://acme.example..",
            "https://.acme.example",
            "https://a..acme.example",
            "https://ann@acme.example/",
            "https://%61cme.example/",
            "https://ä.acme.example/",
            "https://acme.example:",
            "https://acme.example:80:80/",
            "https://acme.example\t/",
            "https:/\\acme.example",
            "javascript://acme.example/",
            "file://acme.example/x",
            "blob:https://acme.example/",
            " https://acme.example/",
            "acme.example\u{2028}",
            "ann@acme.example\u{2028}",
            "ann@acme.example\u{200b}",
            " ann@acme.example",
            "ann@acme.example.",
            "ann@acme.example:25",
            "ann@acme.example>",
            "<bob@evil.test> <ann@acme.example>",
            "Bob <bob@evil.test> (ann@acme.example)",
            "\"bob@evil.test\"@acme.example",
            "ann(bob)@acme.example",
            "mailto:ann@acme.example",
            "",
            "@",
        ] {
            assert!(acme().is_outside(outside), "{outside}");
        }
        assert!(
            TenantSettings::default().is_outside("ann@acme.example"),
            "nobody is inside where no domain is registered"
        );
    }
}
