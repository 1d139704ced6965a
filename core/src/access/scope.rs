//! Scopes: what an actor may do, and what a tool requires.
//!
//! `check_scope` implements exactly the rules of the specification: the same name, a parent with `.*`, and `*`. The
//! specification's own examples need more, which can be disabled (`scopes.strict`): a scope that is a tool's name
//! grants what the tool requires under the same parent (`desk.refund` grants `desk.refunds.create`, but not
//! `billing.refunds.create`), and `{adapter}.{action}` covers `{adapter}.{resource}.{action}` and every capability of
//! that adapter whose tool declares that class: `github.write` covers `github.issues.create`.
//!
//! A name with a colon is a capability of signed intents: an action, for all resources or for some
//! (`runs:start@workflow/lead_flow`).
//!
//! A scope never grants more than a wildcard above it, so whoever holds the wildcard may pass the scope on.

use crate::limits::SCOPE_CHARS_MAX;
use crate::tool::{CallClass, Spec};
use std::collections::BTreeSet;

/// Whether one of the scopes grants the capability, by the rules of the specification and, for names with a colon,
/// those of capabilities.
#[must_use]
pub fn check_scope<S: AsRef<str>>(scopes: &[S], required: &str) -> bool {
    scopes.iter().map(AsRef::as_ref).any(|scope| {
        scope == required
            || scope == "*"
            || scope.strip_suffix(".*").is_some_and(|parent| {
                required.strip_prefix(parent).is_some_and(|rest| !parent.is_empty() && rest.starts_with('.'))
            })
            || covers_capability(scope, required)
    })
}

/// Whether a capability covers another: its action is the same or `area:*`, and its resource is the same, a prefix that
/// ends with `*`, or missing, which means all.
fn covers_capability(held: &str, required: &str) -> bool {
    let (held_action, held_resource) = split_capability(held);
    let (action, resource) = split_capability(required);
    let Some((area, name)) = held_action.split_once(':') else { return false };
    let same_action =
        held_action == action || (name == "*" && action.strip_prefix(area).is_some_and(|rest| rest.starts_with(':')));
    let same_resource = match (held_resource, resource) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(held), Some(resource)) => {
            held == resource || held.strip_suffix('*').is_some_and(|prefix| resource.starts_with(prefix))
        }
    };
    same_action && same_resource
}

/// The action of a capability, and the resource if it names one.
fn split_capability(capability: &str) -> (&str, Option<&str>) {
    capability.split_once('@').map_or((capability, None), |(action, resource)| (action, Some(resource)))
}

/// Whether a text is a capability: `area:action`, `area:*`, and optionally `@kind/id`, whose id may end with `*`.
#[must_use]
pub fn is_capability(text: &str) -> bool {
    let (action, resource) = split_capability(text);
    let is_action = action.split_once(':').is_some_and(|(area, name)| is_name(area) && (name == "*" || is_name(name)));
    let is_resource = |resource: &str| {
        resource.split_once('/').is_some_and(|(kind, id)| {
            let plain = id.strip_suffix('*').unwrap_or(id);
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b':');
            is_name(kind) && !id.is_empty() && plain.bytes().all(allowed)
        })
    };
    text.len() <= SCOPE_CHARS_MAX && is_action && resource.is_none_or(is_resource)
}

/// The intersection of two lists of scopes: what is in one and covered by the other.
#[must_use]
pub fn narrowed(ceiling: &[String], wanted: &[String]) -> Vec<String> {
    let covered = |scopes: &[String], one: &String| {
        check_scope(scopes, one) || one.strip_suffix(".*").is_some_and(|parent| covers_all(scopes, parent))
    };
    let mut seen = BTreeSet::new();
    let granted = wanted.iter().filter(|scope| seen.insert(*scope) && covered(ceiling, scope));
    let mut both: Vec<String> = granted.cloned().collect();
    for scope in ceiling {
        if covered(wanted, scope) && !both.contains(scope) {
            both.push(scope.clone());
        }
    }
    both
}

/// Whether the scopes cover everything below `parent`.
fn covers_all(scopes: &[String], parent: &str) -> bool {
    scopes.iter().any(|scope| {
        let above = scope.strip_suffix(".*");
        scope == "*"
            || above.is_some_and(|above| {
                parent == above || parent.strip_prefix(above).is_some_and(|rest| rest.starts_with('.'))
            })
    })
}

/// The capabilities required to call a tool: its three-part capabilities if it has any, else its two-part ones, else
/// its own name. A word without a dot is a trait of the tool, not a capability.
#[must_use]
pub fn required_capabilities(tool: &Spec) -> Vec<&str> {
    let capabilities = || tool.metadata.capabilities.iter().map(String::as_str);
    let dots = |name: &&str| name.matches('.').count();
    let long: Vec<&str> = capabilities().filter(|name| dots(name) >= 2).collect();
    if !long.is_empty() {
        return long;
    }
    let short: Vec<&str> = capabilities().filter(|name| dots(name) == 1).collect();
    if short.is_empty() { vec![&tool.name] } else { short }
}

/// The first capability of a tool that the scopes do not grant.
#[must_use]
pub fn missing<'a, S: AsRef<str>>(scopes: &[S], tool: &'a Spec, strict: bool) -> Option<&'a str> {
    let is_named = scopes.iter().any(|scope| scope.as_ref() == tool.name);
    let covered = |name: &str| {
        is_named && is_under_parent_of(&tool.name, name)
            || is_covered_by_action(scopes, name)
            || is_covered_by_class(scopes, name, tool.worst_class())
    };
    required_capabilities(tool).into_iter().find(|name| !check_scope(scopes, name) && (strict || !covered(name)))
}

/// Whether every wildcard that covers the name covers the capability too. Only `*` covers a name without a dot.
fn is_under_parent_of(name: &str, capability: &str) -> bool {
    let Some((parent, _)) = name.rsplit_once('.') else { return true };
    capability.strip_prefix(parent).is_some_and(|rest| rest.starts_with('.'))
}

/// Whether a scope `{adapter}.{class}` covers a capability of that adapter.
fn is_covered_by_class<S: AsRef<str>>(scopes: &[S], required: &str, class: CallClass) -> bool {
    let Some((adapter, _)) = required.split_once('.') else { return false };
    scopes.iter().any(|scope| scope.as_ref().split_once('.') == Some((adapter, class.as_str())))
}

/// Whether a scope `{adapter}.{action}` covers `{adapter}.{resource}.{action}`.
fn is_covered_by_action<S: AsRef<str>>(scopes: &[S], required: &str) -> bool {
    let parts: Vec<&str> = required.split('.').collect();
    let [adapter, _, action] = parts[..] else { return false };
    scopes.iter().any(|scope| scope.as_ref().split_once('.') == Some((adapter, action)))
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

/// Whether a text is a valid scope: names separated by dots, the last of which may be `*`, or by colons, or a
/// capability.
#[must_use]
pub fn is_well_formed(scope: &str) -> bool {
    if scope == "*" || is_capability(scope) {
        return true;
    }
    let names = scope.strip_suffix(".*").unwrap_or(scope);
    scope.len() <= SCOPE_CHARS_MAX && names.split(['.', ':']).all(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::{EffectKind, Metadata, Rollback, ToolDeclaration};
    use serde_json::json;

    fn tool(name: &'static str, capabilities: &[&str]) -> Spec {
        let metadata = Metadata {
            capabilities: capabilities.iter().map(|name| (*name).to_owned()).collect(),
            ..Metadata::default()
        };
        let declared = ToolDeclaration {
            name,
            version: "1",
            description: "A tool.",
            metadata,
            effect: EffectKind::Pure,
            reads_when: None,
            checkable: false,
            rollback: Rollback::Unsupported,
            timeout_ms: 1,
            input: json!({"type": "object"}),
            output: json!({"type": "object"}),
        };
        declared.compile().unwrap()
    }

    /// CORE-080, CORE-081, CORE-082, CORE-083
    #[test]
    fn a_capability_is_given_by_its_name_a_parent_or_everything() {
        assert!(check_scope(&["notion.pages.create"], "notion.pages.create"));
        assert!(!check_scope(&["notion.pages.create"], "notion.pages.read"));
        assert!(check_scope(&["notion.*"], "notion.pages.create"));
        assert!(check_scope(&["notion.pages.*"], "notion.pages.create"));
        assert!(!check_scope(&["github.*"], "notion.pages.create"));
        assert!(check_scope(&["*"], "anything.at.all"));
    }

    #[test]
    fn a_parent_covers_only_what_is_below_it() {
        assert!(!check_scope(&["notion.*"], "notion"));
        assert!(!check_scope(&["notion.*"], "notionally.pages"));
        assert!(!check_scope(&["notion.pa.*"], "notion.pages.read"));
        assert!(!check_scope(&[".*"], "notion.pages"));
        assert!(!check_scope::<&str>(&[], "notion.pages"));
    }

    #[test]
    fn a_scope_grants_no_tool_that_a_wildcard_above_it_does_not() {
        let refund = tool("desk.refund", &["billing.refunds.create"]);
        let note = tool("desk.note", &["desk.notes.write", "desk.write"]);
        let upload = tool("s3_upload", &["s3.upload"]);
        let search = tool("google.drive.search", &["google.drive.read"]);
        for tool in [&refund, &note, &search] {
            let (parent, _) = tool.name.rsplit_once('.').unwrap();
            let above = missing(&[format!("{parent}.*")], tool, false);
            assert_eq!(missing(&[tool.name.as_str()], tool, false), above, "{}", tool.name);
        }
        assert_eq!(missing(&["desk.refund"], &refund, false), Some("billing.refunds.create"));
        assert_eq!(missing(&["desk.refund", "billing.refunds.create"], &refund, false), None);
        assert_eq!(missing(&["desk.note"], &note, false), None);
        assert_eq!(missing(&["s3_upload"], &upload, false), None, "no wildcard but * covers its name");
        assert_eq!(missing(&["s3_upload"], &upload, true), Some("s3.upload"));
    }

    /// CORE-077, CORE-078
    #[test]
    fn the_documents_own_registry_reaches_its_tools_unless_strict() {
        let search = tool("notion.search", &["notion.pages.read", "notion.search"]);
        assert_eq!(required_capabilities(&search), ["notion.pages.read"]);
        assert_eq!(missing(&["notion.read"], &search, false), None);
        assert_eq!(missing(&["notion.read"], &search, true), Some("notion.pages.read"));
        assert_eq!(missing(&["notion.pages.read"], &search, true), None);
        let pdf = tool("local.markdown_to_pdf", &["local.convert"]);
        assert_eq!(missing(&["local.markdown_to_pdf"], &pdf, false), None);
        assert_eq!(missing(&["local.markdown_to_pdf"], &pdf, true), Some("local.convert"));
        let mail = tool("email_send", &["outlook.send", "external_api"]);
        assert_eq!(required_capabilities(&mail), ["outlook.send"]);
        assert_eq!(missing(&["outlook.send"], &mail, true), None);
        let summarize = tool("local.summarize", &["local.summarize"]);
        assert_eq!(missing(&["local.summarize"], &summarize, true), None);
        for (scope, name) in [("github.repos.read", "github.repos.read"), ("github.*", "github.issues.create")] {
            assert!(check_scope(&[scope], name));
        }
    }

    /// CORE-078
    #[test]
    fn a_grant_of_a_class_covers_what_the_tools_of_its_adapter_declare() {
        let writes = |name, capabilities: &[&str]| Spec { effect: EffectKind::Write, ..tool(name, capabilities) };
        let create = writes("notion.create_page", &["notion.pages.create", "notion.write"]);
        assert_eq!(missing(&["notion.write"], &create, false), None);
        assert_eq!(missing(&["notion.read"], &create, false), Some("notion.pages.create"));
        assert_eq!(missing(&["github.write"], &create, false), Some("notion.pages.create"));
        assert_eq!(missing(&["notion.write"], &create, true), Some("notion.pages.create"), "strict");
        let list = Spec { effect: EffectKind::Read, ..tool("github.issues.list", &["github.issues.list"]) };
        assert_eq!(missing(&["github.read"], &list, false), None);
        assert_eq!(missing(&["github.write"], &list, false), Some("github.issues.list"));
        let remove = writes("github.repos.remove", &["github.repos.delete"]);
        assert_eq!(missing(&["github.write"], &remove, false), Some("github.repos.delete"), "deleting is not writing");
        assert_eq!(missing(&["github.delete"], &remove, false), None);
        let both = writes("x.copy", &["a.b.make", "c.d.make"]);
        assert_eq!(missing(&["a.write"], &both, false), Some("c.d.make"));
    }

    #[test]
    fn a_tool_needs_all_of_its_capabilities_and_at_least_its_name() {
        let both = tool("x.copy", &["a.b.read", "c.d.write"]);
        assert_eq!(missing(&["a.b.read"], &both, false), Some("c.d.write"));
        assert_eq!(missing(&["a.b.read", "c.write"], &both, false), None);
        let bare = tool("bare", &[]);
        assert_eq!(missing(&["other.thing"], &bare, true), Some("bare"));
        assert_eq!(missing(&["bare"], &bare, true), None);
        assert_eq!(missing(&["*"], &bare, true), None);
    }

    #[test]
    fn a_token_only_narrows() {
        let list = |scopes: &[&str]| scopes.iter().map(|scope| (*scope).to_owned()).collect::<Vec<_>>();
        let ceiling = list(&["notion.*", "github.read"]);
        assert_eq!(narrowed(&ceiling, &list(&["notion.pages.read", "outlook.send"])), ["notion.pages.read"]);
        assert_eq!(narrowed(&ceiling, &list(&["*"])), ["notion.*", "github.read"]);
        assert_eq!(narrowed(&list(&["*"]), &list(&["notion.*"])), ["notion.*"]);
        assert_eq!(narrowed(&ceiling, &list(&["notion.pages.*", "git.*"])), ["notion.pages.*"]);
        assert!(narrowed(&ceiling, &[]).is_empty());
    }

    /// INTENT-024
    #[test]
    fn a_capability_covers_its_resource_and_nothing_beside_it() {
        let lead = "runs:start@workflow/lead_flow";
        for held in [
            "*",
            "runs:start",
            "runs:*",
            lead,
            "runs:start@workflow/*",
            "runs:start@workflow/lead_*",
            "runs:*@workflow/*",
        ] {
            assert!(check_scope(&[held], lead), "{held}");
        }
        for held in [
            "runs:read",
            "run:*",
            "runs.*",
            "runs",
            "runs:start@workflow/lead",
            "runs:start@run/*",
            "logs:*",
            "runs:start@workflow/lead_flow2",
        ] {
            assert!(!check_scope(&[held], lead), "{held}");
        }
        assert!(!check_scope(&[lead], "runs:start"), "one workflow is not all of them");
        assert!(!check_scope(&["runs:start@workflow/*"], "runs:start"));
        let list = |scopes: &[&str]| scopes.iter().map(|scope| (*scope).to_owned()).collect::<Vec<_>>();
        assert_eq!(narrowed(&list(&["runs:start"]), &list(&[lead, "runs:read"])), [lead]);
        assert_eq!(narrowed(&list(&[lead]), &list(&["runs:*"])), [lead]);
    }

    #[test]
    fn a_scope_is_a_name_with_dots_or_colons() {
        for good in ["*", "notion.*", "notion.pages.read", "local.summarize", "logs:read", "autonomy.override", "x"] {
            assert!(is_well_formed(good), "{good}");
        }
        for good in
            ["runs:*", "runs:start@workflow/lead_flow", "runs:start@workflow/*", "logs:read@run/7f-*", "a:b@c/d:e.f"]
        {
            assert!(is_well_formed(good) && is_capability(good), "{good}");
        }
        for bad in
            ["a@b/c", "a:b@", "a:b@c", "a:b@c/", "a:b@/c", "a:b@c/d e", "a:b@c/d*e", "a:b@c@d", "*:a", "a:**", "a:b/c"]
        {
            assert!(!is_well_formed(bad), "{bad}");
        }
        for bad in ["", ".", "a.", ".a", "a..b", "a.*.b", "**", "a b", "a.b*", "é.x", ".*", &"a".repeat(200)] {
            assert!(!is_well_formed(bad), "{bad}");
        }
    }
}
