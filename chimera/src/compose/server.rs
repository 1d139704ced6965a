//! A server that commands speak to.

use crate::failure::{Failure, Outcome};
use crate::flow::desk::{Events, Server};
use async_trait::async_trait;
use chimera_connect::client::{self, ServerError};
use chimera_core::error::Code;
use futures::StreamExt;
use serde_json::Value;
use std::sync::Arc;

struct Remote(client::Server);

/// The server at `url`; commands act there as `actor`, or as the operator.
pub(crate) fn server(url: &str, token: Option<&str>, actor: Option<&str>) -> Outcome<Arc<dyn Server>> {
    Ok(Arc::new(Remote(client::Server::new(url, token, actor)?)))
}

#[async_trait]
impl Server for Remote {
    async fn ask(&self, method: &str, path: &str, body: Option<String>) -> Outcome<Value> {
        Ok(self.0.ask(method, path, body).await?.1)
    }

    async fn events(&self, path: &str) -> Outcome<Events> {
        let events = self.0.events(path).await?;
        Ok(events.map(|event| event.map_err(Failure::from)).boxed())
    }
}

impl From<ServerError> for Failure {
    fn from(error: ServerError) -> Self {
        match error {
            ServerError::Unusable(reason) => Self::new(Code::ConfigInvalid, reason),
            ServerError::Silent { .. } => Self::new(Code::ExternalServiceUnavailable, error.to_string())
                .hint("start one with chimera dev, or name another with --server URL"),
            ServerError::Strange { .. } => Self::new(Code::ExternalServiceError, error.to_string()),
            ServerError::Refused(body) => {
                let failure = Self::told(*body);
                match failure.code {
                    Code::Unauthenticated => failure.hint(
                        "set CHIMERA_TOKEN to the token that the server knows; chimera dev keeps its own in the data \
                         folder that --data names",
                    ),
                    _ => failure,
                }
            }
        }
    }
}
