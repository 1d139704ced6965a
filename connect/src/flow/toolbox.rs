//! Every tool that uses HTTP, and their shared dependencies.

use super::http::HttpRequest;
use crate::flow::declared::{self, DeclareError, HttpTool};
use crate::flow::slack::SlackPost;
use crate::flow::vendor;
use crate::flow::webhook::{WebhookSend, WebhookSender};
use crate::http::Client;
use chimera_core::json::schema::InvalidSchema;
use chimera_engine::flow::port::Tool;
use chimera_engine::port::Secrets;
use reqwest::Url;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Dependencies of the HTTP tools.
#[derive(Clone)]
pub struct ToolDependencies {
    pub client: Client,
    pub secrets: Arc<dyn Secrets>,
    /// Base URLs that override a vendor's default: an enterprise server, a test.
    pub base_urls: BTreeMap<String, String>,
}

/// Why the tools can't be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildToolsError {
    /// A built-in tool has an invalid schema.
    #[error(transparent)]
    Schema(#[from] InvalidSchema),
    /// A vendor's file or base URL is invalid.
    #[error(transparent)]
    Declare(#[from] DeclareError),
}

/// The built-in tools that use HTTP, and those of every bundled vendor.
pub fn http_tools(toolbox: &ToolDependencies) -> Result<Vec<Arc<dyn Tool>>, BuildToolsError> {
    let (client, secrets) = (&toolbox.client, &toolbox.secrets);
    let slack = toolbox.base_urls.get("slack").map_or(SlackPost::API, String::as_str);
    let slack = Url::parse(&format!("{}/", slack.trim_end_matches('/'))).map_err(|error| DeclareError {
        origin: "slack".into(),
        key: "base_url".into(),
        reason: error.to_string(),
    })?;
    let sender = WebhookSender::new(client.clone(), Arc::clone(secrets));
    let mut tools: Vec<Arc<dyn Tool>> = vec![
        Arc::new(HttpRequest::new(client.clone(), Arc::clone(secrets))?),
        Arc::new(SlackPost::new(client.clone(), Arc::clone(secrets), slack)?),
        Arc::new(WebhookSend::new(sender)?),
    ];
    for (origin, text) in vendor::FILES {
        let shared = |tool: HttpTool| Arc::new(tool) as Arc<dyn Tool>;
        tools.extend(declared::tools(text, origin, toolbox)?.into_iter().map(shared));
    }
    Ok(tools)
}
