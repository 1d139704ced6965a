//! What an actor may do by an envelope: its rights, narrowed.

use chimera_core::access::{ActorEntry, Role, Roles};
use chimera_core::intent::capability::{CapabilityRefusal, check_capability, scopes_under_roles};

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn actor() -> (ActorEntry, Roles) {
    let role =
        |name: &str, scopes: &[&str]| Role { name: name.to_owned(), tenant: "t1".to_owned(), scopes: texts(scopes) };
    let roles = [role("dev", &["logs:read"]), role("ops", &["runs:start@workflow/*"]), role("boss", &["cache:*"])];
    let entry = ActorEntry {
        scopes: texts(&["kb:search"]),
        roles: texts(&["dev", "ops"]),
        ..ActorEntry::default_for("u_123", "t1")
    };
    (entry, roles.into_iter().collect())
}

/// INTENT-011, INTENT-067
#[test]
fn the_named_roles_choose_among_those_that_the_actor_has() {
    let (entry, roles) = actor();
    let under = |named: Option<&[&str]>| scopes_under_roles(&entry, &roles, named.map(texts).as_deref());
    assert_eq!(under(None), ["kb:search", "logs:read", "runs:start@workflow/*"]);
    assert_eq!(under(Some(&["dev"])), ["kb:search", "logs:read"]);
    assert_eq!(under(Some(&["boss", "admin"])), ["kb:search"], "a role that the actor lacks gives nothing");
    assert_eq!(under(Some(&[])), ["kb:search"], "own scopes always count");
}

/// INTENT-012, INTENT-024, INTENT-067
#[test]
fn the_named_capabilities_only_narrow() {
    let held = texts(&["runs:start@workflow/*", "logs:read"]);
    let check = |required: &str, named: Option<&[&str]>| check_capability(required, &held, named.map(texts).as_deref());
    let lead = "runs:start@workflow/lead_flow";
    assert_eq!(check(lead, None), Ok(()));
    assert_eq!(check(lead, Some(&["runs:start"])), Ok(()));
    assert_eq!(check(lead, Some(&[lead])), Ok(()));
    assert_eq!(check(lead, Some(&["runs:start@workflow/other"])), Err(CapabilityRefusal::NotNamed));
    assert_eq!(check(lead, Some(&[])), Err(CapabilityRefusal::NotNamed));
    assert_eq!(check("cache:invalidate@workflow/*", Some(&["cache:invalidate"])), Err(CapabilityRefusal::NotHeld));
    assert_eq!(check("runs:start", None), Err(CapabilityRefusal::NotHeld));
}
