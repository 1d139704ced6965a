//! Every tool that speaks HTTP, and what they are made of.

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

/// What tools are made of.
#[derive(Clone)]
pub struct Toolbox {
    /// The one way out.
    pub client: Client,
    /// Values behind names.
    pub secrets: Arc<dyn Secrets>,
    /// Where a vendor is called if not at its usual address: an enterprise server, a test.
    pub base_urls: BTreeMap<String, String>,
}

/// The tools can't be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolboxError {
    /// A schema of a built-in tool.
    #[error(transparent)]
    Schema(#[from] InvalidSchema),
    /// A vendor's file, or its address.
    #[error(transparent)]
    Declare(#[from] DeclareError),
}

/// The built-in tools that speak HTTP and those of every shipped vendor.
pub fn http_tools(toolbox: &Toolbox) -> Result<Vec<Arc<dyn Tool>>, ToolboxError> {
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
