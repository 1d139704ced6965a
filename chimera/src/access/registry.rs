//! The actor registry as commands use it: at a server, or in the store itself if no server runs.
//!
//! Whoever can write to the store is the operator and needs no key; this is how the first key is created.
//! While a server uses the data folder, it is locked, so requests go to the server.

use crate::backend::{self, Backend, local_actor_key, percent_encode};
use crate::compose::{self, ActorStore, Ambient};
use crate::config::Config;
use crate::data_folder::DataFolder;
use crate::failure::{Failure, Outcome};
use chimera_api::answer::{ActorDocument, TenantDocument};
use chimera_core::access::{ADMIN, ActorEntry, Kind, Level};
use chimera_core::error::Code;
use chimera_core::limits;
use chimera_engine::access::{
    self, ACTORS_READ, ACTORS_WRITE, APPROVALS_DECIDE, AUDIT_READ, AUTONOMY_OVERRIDE, Directory, EVENTS_PUBLISH,
    Permit, RUNS_MANAGE, RUNS_READ, WORKFLOWS_READ, WORKFLOWS_WRITE,
};
use serde_json::{Map, Value, json};

/// Scopes that Chimera itself uses.
const OWN_SCOPES: &[&str] = &[
    RUNS_READ,
    RUNS_MANAGE,
    APPROVALS_DECIDE,
    WORKFLOWS_READ,
    WORKFLOWS_WRITE,
    ACTORS_READ,
    ACTORS_WRITE,
    AUDIT_READ,
    AUTONOMY_OVERRIDE,
    EVENTS_PUBLISH,
];

/// Scopes and names of the built-in tools. Without a server, other tools are unknown.
const TOOL_SCOPES: &[&str] = &[
    "email.send",
    "email_send",
    "external_api",
    "github.issues.create",
    "github.issues.list",
    "github.issues.read",
    "github.repos.read",
    "github.write",
    "google.drive.read",
    "google.drive.search",
    "http.request",
    "local.convert",
    "local.echo",
    "local.markdown_to_pdf",
    "local.summarize",
    "notion.create_page",
    "notion.pages.create",
    "notion.pages.read",
    "notion.search",
    "notion.write",
    "outlook.send",
    "s3.upload",
    "s3_upload",
    "slack.post",
    "slack_post",
    "webhook.send",
    "webhook_send",
];

pub(crate) enum ActorRegistry {
    Server(Backend),
    Store(Box<ActorStore>, Permit),
}

impl ActorRegistry {
    /// Opens the registry of the configured server or the one that uses the data folder, else the store's.
    pub(crate) async fn open(config: &Config, actor: Option<&str>) -> Outcome<Self> {
        if config.server.is_some() {
            return Ok(Self::Server(Backend::connect(config, actor)?));
        }
        match DataFolder::lock(&config.data_dir) {
            Ok(home) => {
                let store = compose::actor_store(config, home, &Ambient::new()).await?;
                Ok(Self::Store(Box::new(store), compose::operator()))
            }
            Err(failure) if failure.code == Code::DataDirLocked => {
                let actor = actor.or(config.actor.as_deref()).unwrap_or(ADMIN);
                if config.token.is_none() && local_actor_key(config, actor)?.is_none() {
                    let words =
                        format!("a server is using this data folder, and there is no key to sign in as {actor}");
                    return Err(Failure::new(Code::ConfigInvalid, words)
                        .hint("set CHIMERA_HMAC_KEY; or, for the first key, stop the server and try again"));
                }
                Ok(Self::Server(Backend::connect(config, Some(actor))?))
            }
            Err(failure) => Err(failure),
        }
    }

    pub(crate) async fn close(self) {
        if let Self::Store(store, _) = self {
            store.close().await;
        }
    }

    pub(crate) async fn list(&self) -> Outcome<Vec<Value>> {
        match self {
            Self::Server(backend) => {
                let mut page = backend.request("GET", "actors", None).await?;
                Ok(match page["items"].take() {
                    Value::Array(items) => items,
                    _ => Vec::new(),
                })
            }
            Self::Store(store, permit) => {
                let shown =
                    access::list_actors(directory(store), permit).map_err(|error| Failure::from_body(error.body()))?;
                shown.into_iter().map(|actor| backend::shown(ActorDocument::from(actor))).collect()
            }
        }
    }

    /// Every scope in use, including tool names, which are scopes, too.
    pub(crate) async fn scopes(&self) -> Outcome<Vec<String>> {
        let mut known: Vec<String> = OWN_SCOPES.iter().chain(TOOL_SCOPES).map(|scope| (*scope).to_owned()).collect();
        if let Self::Server(backend) = self {
            let tools = backend.request("GET", "tools", None).await?;
            for tool in tools["items"].as_array().into_iter().flatten() {
                let capabilities = tool["metadata"]["capabilities"].as_array().or(tool["capabilities"].as_array());
                let names = capabilities.into_iter().flatten().chain([&tool["name"]]);
                known.extend(names.filter_map(Value::as_str).map(str::to_owned));
            }
        }
        Ok(known)
    }

    /// The effective entry of an actor.
    pub(crate) async fn show(&self, actor: &str) -> Outcome<Value> {
        match self {
            Self::Server(backend) => backend.request("GET", &actor_path(actor), None).await,
            Self::Store(store, permit) => {
                let shown = access::show_actor(directory(store), permit, actor)
                    .map_err(|error| Failure::from_body(error.body()))?;
                backend::shown(ActorDocument::from(shown))
            }
        }
    }

    /// Writes an entry: the effective one with these fields replaced.
    pub(crate) async fn put(&self, actor: &str, over: Map<String, Value>) -> Outcome<Value> {
        let mut body = self.show(actor).await?;
        let members = body.as_object_mut().ok_or_else(invalid_entry)?;
        for passing in ["id", "matched", "source", "keys", "effective_scopes"] {
            members.remove(passing);
        }
        members.extend(over);
        members.retain(|_, value| !value.is_null());
        match self {
            Self::Server(backend) => backend.request("PUT", &actor_path(actor), Some(body)).await,
            Self::Store(store, permit) => {
                let entry = entry(actor, &body)?;
                let put = access::put_actor(directory(store), permit, entry, body["tenant"].as_str()).await;
                backend::shown(ActorDocument::from(put.map_err(|error| Failure::from_body(error.body()))?))
            }
        }
    }

    pub(crate) async fn tenants(&self) -> Outcome<Vec<Value>> {
        match self {
            Self::Server(backend) => {
                let mut page = backend.request("GET", "tenants", None).await?;
                Ok(match page["items"].take() {
                    Value::Array(items) => items,
                    _ => Vec::new(),
                })
            }
            Self::Store(store, permit) => {
                let shown =
                    access::list_tenants(directory(store), permit).map_err(|error| Failure::from_body(error.body()))?;
                shown.into_iter().map(|tenant| backend::shown(TenantDocument::from(tenant))).collect()
            }
        }
    }

    pub(crate) async fn add_tenant(&self, slug: &str, name: Option<&str>) -> Outcome<Value> {
        match self {
            Self::Server(backend) => {
                let body = json!({"slug": slug, "name": name.unwrap_or(slug)});
                backend.request("POST", "tenants", Some(body)).await
            }
            Self::Store(store, permit) => {
                let added = access::add_tenant(directory(store), permit, slug, name).await;
                backend::shown(TenantDocument::from(added.map_err(|error| Failure::from_body(error.body()))?))
            }
        }
    }

    /// Disables or enables a tenant.
    pub(crate) async fn set_tenant(&self, slug: &str, disabled: bool) -> Outcome<Value> {
        match self {
            Self::Server(backend) => {
                let body = json!({ "disabled": disabled });
                backend.request("PATCH", &format!("tenants/{}", percent_encode(slug)), Some(body)).await
            }
            Self::Store(store, permit) => {
                let set = access::set_tenant_disabled(directory(store), permit, slug, disabled).await;
                backend::shown(TenantDocument::from(set.map_err(|error| Failure::from_body(error.body()))?))
            }
        }
    }

    /// Removes an entry and revokes the actor's keys and sessions. Returns the entry that applies to the name now.
    pub(crate) async fn remove(&self, actor: &str) -> Outcome<Value> {
        match self {
            Self::Server(backend) => backend.request("DELETE", &actor_path(actor), None).await,
            Self::Store(store, permit) => {
                let left = access::remove_actor(directory(store), permit, actor).await;
                backend::shown(ActorDocument::from(left.map_err(|error| Failure::from_body(error.body()))?))
            }
        }
    }

    /// Creates a key; older keys stay valid for `overlap` seconds.
    pub(crate) async fn add_key(&self, actor: &str, overlap: Option<u32>) -> Outcome<Value> {
        let overlap = overlap.unwrap_or(limits::ACTOR_KEY_OVERLAP_SECONDS);
        match self {
            Self::Server(backend) => {
                let body = json!({ "overlap_seconds": overlap });
                backend.request("POST", &format!("{}/keys", actor_path(actor)), Some(body)).await
            }
            Self::Store(store, permit) => {
                let made = access::add_key(directory(store), permit, actor, None, Some(overlap.into())).await;
                let made = made.map_err(|error| Failure::from_body(error.body()))?;
                let until = made.before_until.map(|until| until.to_string());
                Ok(json!({
                    "actor": actor, "key_id": made.id, "hmac_key": made.key, "keys_before_until": until,
                }))
            }
        }
    }
}

pub(super) fn directory(store: &ActorStore) -> &Directory {
    &store.directory
}

pub(super) fn actor_path(actor: &str) -> String {
    format!("actors/{}", percent_encode(actor))
}

fn invalid_entry() -> Failure {
    Failure::new(Code::Internal, "the server's response is not a valid actor entry")
}

/// Parses an entry.
fn entry(actor: &str, body: &Value) -> Outcome<ActorEntry> {
    let text = |name: &str| body[name].as_str();
    let texts = |name: &str| {
        let texts = body[name].as_array().into_iter().flatten().filter_map(Value::as_str);
        texts.map(str::to_owned).collect()
    };
    Ok(ActorEntry {
        id: actor.to_owned(),
        tenant: text("tenant").ok_or_else(invalid_entry)?.to_owned(),
        kind: text("kind").and_then(Kind::parse).ok_or_else(invalid_entry)?,
        scopes: texts("scopes"),
        roles: texts("roles"),
        quota_per_minute: body["quota_per_minute"]
            .as_u64()
            .and_then(|n| n.try_into().ok())
            .ok_or_else(invalid_entry)?,
        level: text("autonomy_level").and_then(Level::parse),
        notify: body.get("notify").cloned(),
        disabled: body["disabled"] == true,
        former_mails: Vec::new(),
        removed: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scopes_of_every_tool_are_known() {
        let reference = include_str!("../../../docs/reference/tools.md");
        let quoted = |text: &str| text.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
        for line in reference.lines() {
            let names = match line.strip_prefix("### ") {
                Some(name) => quoted(name),
                None if ["| read", "| write", "| pure"].iter().any(|effect| line.starts_with(effect)) => {
                    quoted(line.rsplit('|').nth(1).unwrap_or_default())
                }
                None => continue,
            };
            for name in names {
                assert!(TOOL_SCOPES.contains(&name.as_str()), "{name}");
            }
        }
    }
}
