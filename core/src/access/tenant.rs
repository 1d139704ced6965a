//! What counts for everybody of a tenant: its domains, and where it is told what nobody else is told.
//!
//! Whoever is reached at another domain is an outsider. A tenant that registered no domain has no insiders.

use crate::flow::tool::Spec;
use serde_json::Value;

/// What a tenant registered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tenant {
    /// Its domains, in lower case. What is below a domain belongs to it.
    pub domains: Vec<String>,
    /// The default channel of its actors.
    pub notify: Option<Value>,
}

impl Tenant {
    /// Whether a mail address, a URL or a host is outside the tenant's domains.
    #[must_use]
    pub fn is_outside(&self, destination: &str) -> bool {
        let Some(host) = host_of(destination) else { return true };
        !self.domains.iter().any(|domain| {
            let above = host.strip_suffix(domain.as_str());
            above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
        })
    }

    /// Whether a call with this input sends somebody outside the tenant's domains a message. What is not known
    /// yet is taken for the worst.
    #[must_use]
    pub fn is_written_outside(&self, tool: &Spec, input: &Value) -> bool {
        let named = tool.destinations(input);
        named.is_some_and(|named| named.iter().any(|destination| self.is_outside(destination)))
    }
}

/// Whether a text can be a domain: names with dots between, in lower case.
#[must_use]
pub fn is_domain(text: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    text.len() <= 253 && text.split('.').all(label)
}

/// What stands in no plain address before its domain.
const ODD_IN_ADDRESSES: [char; 13] = ['@', ',', ';', ':', '%', '!', '?', '#', '/', '\\', '"', '\n', '\r'];

/// The host of a mail address, a URL or a host with or without a port. None where it can't be told for
/// certain, so that nobody hides behind an odd spelling.
fn host_of(destination: &str) -> Option<String> {
    let text = destination.trim();
    let authority = match text.split_once("://") {
        Some((_, rest)) => {
            let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
            if authority.contains('@') {
                return None;
            }
            authority
        }
        // `Ann <ann@acme.example>` is an address too.
        None => match text.rsplit_once('@') {
            // One address and nothing else: a second one, a route or a parameter may lead elsewhere.
            Some((before, _)) if before.contains(ODD_IN_ADDRESSES) => return None,
            Some((_, domain)) => domain.trim_end_matches('>'),
            None => text,
        },
    };
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    is_domain(&host).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acme() -> Tenant {
        Tenant { domains: vec!["acme.example".to_owned()], notify: None }
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
            "",
            "@",
        ] {
            assert!(acme().is_outside(outside), "{outside}");
        }
        assert!(Tenant::default().is_outside("ann@acme.example"), "nobody is inside where no domain is registered");
    }
}
