//! A vendor's file after validation: what a tool needs to make its requests.

use super::auth::Credential;
use super::mapping::{JsonPlace, Mapping};
use super::template::{JsonTemplate, TextTemplate};
use chimera_core::secret::SecretName;
use chimera_core::tool::Spec;
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Method, Url};
use serde_json::Value;
use std::sync::Arc;

/// A tool declared by a file. [`HttpTool`](super::HttpTool) makes it callable.
#[derive(Clone, Debug)]
pub struct Declaration {
    pub(super) spec: Arc<Spec>,
    pub(super) vendor: Arc<Vendor>,
    pub(super) plan: Arc<ToolPlan>,
    /// Everything that makes up its version. It contains names of secrets and no secret.
    pub(super) definition: Arc<Value>,
}

impl Declaration {
    #[must_use]
    pub fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    #[must_use]
    pub fn vendor(&self) -> &str {
        &self.vendor.name
    }
}

/// What the tools of one file share.
#[derive(Debug)]
pub(super) struct Vendor {
    pub(super) name: String,
    pub(super) base_url: Url,
    pub(super) headers: Vec<(HeaderName, HeaderTemplate)>,
    pub(super) credential: Option<Credential>,
    pub(super) error_message: Option<JsonPlace>,
    pub(super) rate_limited: Vec<RateLimitRule>,
}

#[derive(Clone, Debug)]
pub(super) enum HeaderTemplate {
    Fixed(HeaderValue),
    Secret(SecretName),
    Filled(TextTemplate),
}

/// An answer that means "rate limited".
#[derive(Debug)]
pub(super) struct RateLimitRule {
    pub(super) status: u16,
    pub(super) header: Option<(String, Option<String>)>,
    pub(super) at: Option<(JsonPlace, Vec<String>)>,
    pub(super) reset_header: Option<String>,
}

/// How one tool works.
#[derive(Debug)]
pub(super) struct ToolPlan {
    pub(super) request: RequestTemplate,
    pub(super) response: Mapping,
    pub(super) paging: Option<Pages>,
    pub(super) rollback: Option<RollbackRequest>,
    pub(super) check: Option<Lookup>,
    pub(super) dry_run: JsonTemplate,
}

/// A request with placeholders.
#[derive(Debug)]
pub(super) struct RequestTemplate {
    pub(super) method: Method,
    pub(super) paths: Vec<TextTemplate>,
    pub(super) query: Vec<(String, JsonTemplate)>,
    pub(super) headers: Vec<(HeaderName, HeaderTemplate)>,
    pub(super) body: Option<JsonTemplate>,
}

/// The request that undoes a call.
#[derive(Debug)]
pub(super) struct RollbackRequest {
    pub(super) request: RequestTemplate,
    /// The statuses that say that nothing is left to undo.
    pub(super) gone: Vec<u16>,
}

/// How further pages are requested.
#[derive(Debug)]
pub(super) struct Pages {
    pub(super) items: JsonPlace,
    pub(super) pages_max: usize,
    /// The input with the number of items wanted.
    pub(super) limit: Option<String>,
    pub(super) next: NextPageRule,
}

/// How the next page is found.
#[derive(Debug)]
pub(super) enum NextPageRule {
    Link,
    Cursor { at: JsonPlace, more: Option<JsonPlace>, into: CursorTarget },
}

/// Where the next request takes the cursor.
#[derive(Debug)]
pub(super) enum CursorTarget {
    Query(String),
    Body(String),
}

/// How to find out whether a call took effect.
#[derive(Debug)]
pub(super) struct Lookup {
    pub(super) request: RequestTemplate,
    pub(super) items: JsonPlace,
    pub(super) at: JsonPlace,
    pub(super) contains: TextTemplate,
    pub(super) never_after_ms: Option<u64>,
}
