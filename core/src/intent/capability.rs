//! What an intent needs, and what an actor may do by it.
//!
//! The registry is the ceiling. The roles that an envelope names choose among those that the actor has: the scopes of
//! other roles don't count, while the actor's own scopes always do. The capabilities that it names narrow further.
//! Neither ever adds anything.

use crate::access::{ActorEntry, Roles, scope};
use serde_json::Value;

/// An action on a resource that the arguments name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequiredCapability {
    /// `runs:start`.
    pub action: String,
    /// The kind of resource, and JSON Pointers to the arguments that may hold its id. Without one it is `*`: all.
    pub resource: Option<(String, Vec<String>)>,
}

impl RequiredCapability {
    /// An action on all resources of the tenant.
    #[must_use]
    pub fn of(action: &str) -> Self {
        Self { action: action.to_owned(), resource: None }
    }

    /// An action on the resource whose id is this argument.
    #[must_use]
    pub fn on(self, kind: &str, pointer: &str) -> Self {
        Self { resource: Some((kind.to_owned(), vec![pointer.to_owned()])), ..self }
    }

    /// The capability for these arguments: `runs:start@workflow/lead_flow`.
    #[must_use]
    pub fn for_args(&self, args: &Value) -> String {
        let Some((kind, pointers)) = &self.resource else { return self.action.clone() };
        let id = pointers.iter().find_map(|pointer| args.pointer(pointer)?.as_str());
        let id = id.map_or("*", |id| id.strip_prefix("cas://").unwrap_or(id));
        format!("{}@{kind}/{id}", self.action)
    }
}

/// The scopes of an actor under the roles that an envelope names. `entry` is as configured, without the scopes of its
/// roles.
#[must_use]
pub fn scopes_under_roles(entry: &ActorEntry, roles: &Roles, named: Option<&[String]>) -> Vec<String> {
    let is_named = |role: &&String| named.is_none_or(|named| named.contains(role));
    let roles_named = entry.roles.iter().filter(is_named).cloned().collect();
    roles.effective_scopes(&ActorEntry { roles: roles_named, ..entry.clone() })
}

/// Why an intent is refused by the rights of its actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapabilityRefusal {
    /// The actor lacks it.
    NotHeld,
    /// The envelope does not name it.
    NotNamed,
}

/// Refuses a capability that the actor does not hold, or that the envelope leaves out.
pub fn check_capability(required: &str, held: &[String], named: Option<&[String]>) -> Result<(), CapabilityRefusal> {
    if !scope::check_scope(held, required) {
        return Err(CapabilityRefusal::NotHeld);
    }
    match named.is_none_or(|named| scope::check_scope(named, required)) {
        true => Ok(()),
        false => Err(CapabilityRefusal::NotNamed),
    }
}
