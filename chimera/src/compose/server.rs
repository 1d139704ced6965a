//! The remote server that commands connect to.

use super::Ambient;
use crate::backend::{Events, Server};
use crate::failure::{Failure, Outcome};
use async_trait::async_trait;
use chimera_connect::client::{self, ApiClientError};
use chimera_core::error::Code;
use chimera_core::secret::Secret;
use futures::StreamExt;
use serde_json::Value;
use std::sync::Arc;

struct RemoteServer(client::Server);

/// A client for the server at `url`, with a token or an actor's key.
pub(crate) fn server(url: &str, actor: &str, key: Option<&str>, token: Option<&str>) -> Outcome<Arc<dyn Server>> {
    let ambient = Ambient::new();
    let credentials = client::ApiCredentials {
        actor: actor.to_owned(),
        key: key.map(|key| Secret::new(key.as_bytes())),
        token: token.map(str::to_owned),
        clock: ambient.clock,
        random: ambient.random,
    };
    Ok(Arc::new(RemoteServer(client::Server::new(url, credentials)?)))
}

/// The failing readiness checks of the server at `url`, with their reasons.
pub(crate) async fn unready(url: &str) -> Outcome<Vec<(String, String)>> {
    let Ambient { clock, random, .. } = Ambient::new();
    let nobody = client::ApiCredentials { actor: String::new(), key: None, token: None, clock, random };
    Ok(client::Server::new(url, nobody)?.readiness_failures().await?)
}

#[async_trait]
impl Server for RemoteServer {
    async fn ask(&self, method: &str, path: &str, body: Option<String>) -> Outcome<Value> {
        Ok(self.0.ask(method, path, body).await?.1)
    }

    async fn sign_in(&self, scopes: Option<Vec<String>>) -> Outcome<Value> {
        Ok(self.0.sign_in(scopes).await?)
    }

    async fn events(&self, path: &str) -> Outcome<Events> {
        let events = self.0.events(path).await?;
        Ok(events.map(|event| event.map_err(Failure::from)).boxed())
    }
}

impl From<ApiClientError> for Failure {
    fn from(error: ApiClientError) -> Self {
        match error {
            ApiClientError::Unusable(reason) => Self::new(Code::ConfigInvalid, reason),
            ApiClientError::NoKey { ref actor } => {
                let hint = format!("set CHIMERA_HMAC_KEY to it, or create one with chimera actor secret {actor} --new");
                Self::new(Code::ConfigInvalid, error.to_string()).hint(hint)
            }
            ApiClientError::NoAnswer { .. } => Self::new(Code::ExternalServiceUnavailable, error.to_string())
                .hint("start one with chimera dev, or name another with --server URL"),
            ApiClientError::NotChimera { .. } => Self::new(Code::ExternalServiceError, error.to_string()),
            ApiClientError::Refused(body) => {
                let failure = Self::from_body(*body);
                match failure.code {
                    Code::Unauthenticated => failure.hint(
                        "set CHIMERA_ACTOR and CHIMERA_HMAC_KEY, or CHIMERA_TOKEN; chimera dev keeps the keys of its \
                         actors in the data folder that --data names",
                    ),
                    Code::SignatureInvalid => failure
                        .hint("the key is not a valid key of this actor; chimera actor secret ACTOR creates another"),
                    _ => failure,
                }
            }
        }
    }
}
