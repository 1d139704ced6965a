//! Signing keys as commands manage them: at a server, or in the store itself if no server runs.

use super::registry::{ActorRegistry, actor_path, directory};
use crate::backend::{self, percent_encode};
use crate::failure::{Failure, Outcome};
use chimera_api::answer::{RotationDocument, SigningKeyDocument};
use chimera_core::error::Code;
use chimera_engine::EngineError;
use chimera_engine::access::{self, NewSigningKey};
use serde_json::{Map, Value};

/// A key to register, as it was given.
#[derive(Debug, Default)]
pub(crate) struct KeyToRegister {
    pub(crate) public_key: String,
    pub(crate) label: Option<String>,
    pub(crate) not_before: Option<String>,
    pub(crate) expires_at: Option<String>,
}

impl KeyToRegister {
    fn body(&self) -> Map<String, Value> {
        let members = [
            ("public_key", Some(&self.public_key)),
            ("label", self.label.as_ref()),
            ("not_before", self.not_before.as_ref()),
            ("expires_at", self.expires_at.as_ref()),
        ];
        members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.as_str().into()))).collect()
    }

    fn parse(&self) -> Outcome<NewSigningKey> {
        let time = |flag: &str, text: Option<&String>| {
            let refused = |_| {
                let message = format!("{flag} must be an RFC 3339 time such as 2026-01-31T12:00:00Z");
                Failure::new(Code::MalformedArgs, message)
            };
            text.map(|text| text.parse().map_err(refused)).transpose()
        };
        Ok(NewSigningKey {
            public_key: self.public_key.clone(),
            label: self.label.clone(),
            not_before: time("--not-before", self.not_before.as_ref())?,
            expires_at: time("--expires-at", self.expires_at.as_ref())?,
        })
    }
}

/// The signing keys of an actor.
pub(crate) async fn list(registry: &ActorRegistry, actor: &str) -> Outcome<Vec<Value>> {
    match registry {
        ActorRegistry::Server(backend) => {
            let mut page = backend.request("GET", &format!("{}/signing-keys", actor_path(actor)), None).await?;
            Ok(match page["items"].take() {
                Value::Array(items) => items,
                _ => Vec::new(),
            })
        }
        ActorRegistry::Store(store, permit) => {
            let keys = access::list_signing_keys(directory(store), permit, actor).map_err(failed)?;
            keys.into_iter().map(|key| backend::shown(SigningKeyDocument::from(key))).collect()
        }
    }
}

pub(crate) async fn add(registry: &ActorRegistry, actor: &str, key: &KeyToRegister) -> Outcome<Value> {
    let new = key.parse()?;
    match registry {
        ActorRegistry::Server(backend) => {
            let path = format!("{}/signing-keys", actor_path(actor));
            backend.request("POST", &path, Some(Value::Object(key.body()))).await
        }
        ActorRegistry::Store(store, permit) => {
            let added = access::add_signing_key(directory(store), permit, actor, new).await.map_err(failed)?;
            backend::shown(SigningKeyDocument::from(added.added))
        }
    }
}

/// Replaces a key; the earlier one stays valid for `overlap` seconds.
pub(crate) async fn rotate(
    registry: &ActorRegistry,
    kid: &str,
    key: &KeyToRegister,
    overlap: Option<u32>,
) -> Outcome<Value> {
    let new = key.parse()?;
    match registry {
        ActorRegistry::Server(backend) => {
            let mut body = key.body();
            body.extend(overlap.map(|seconds| ("overlap_seconds".to_owned(), seconds.into())));
            let path = format!("signing-keys/{}/rotate", percent_encode(kid));
            backend.request("POST", &path, Some(Value::Object(body))).await
        }
        ActorRegistry::Store(store, permit) => {
            let rotated = access::rotate_signing_key(directory(store), permit, kid, new, overlap).await;
            backend::shown(RotationDocument::from(rotated.map_err(failed)?))
        }
    }
}

pub(crate) async fn revoke(registry: &ActorRegistry, kid: &str, reason: Option<&str>) -> Outcome<Value> {
    match registry {
        ActorRegistry::Server(backend) => {
            let query = reason.map(|reason| format!("?reason={}", percent_encode(reason))).unwrap_or_default();
            backend.request("DELETE", &format!("signing-keys/{}{query}", percent_encode(kid)), None).await
        }
        ActorRegistry::Store(store, permit) => {
            let revoked = access::revoke_signing_key(directory(store), permit, kid, reason).await;
            backend::shown(SigningKeyDocument::from(revoked.map_err(failed)?))
        }
    }
}

fn failed(error: EngineError) -> Failure {
    Failure::from_body(error.body())
}
