//! A vendor's file after validation: what a tool needs to make its requests.

use super::auth::Credential;
use super::mapping::{Mapping, Place};
use super::template::{Text, Tree};
use chimera_core::secret::SecretName;
use chimera_core::tool::Spec;
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Method, Url};
use std::sync::Arc;

/// A tool declared by a file. [`HttpTool`](super::HttpTool) makes it callable.
#[derive(Clone, Debug)]
pub struct Declaration {
    pub(super) spec: Arc<Spec>,
    pub(super) vendor: Arc<Vendor>,
    pub(super) plan: Arc<Plan>,
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
    pub(super) headers: Vec<(HeaderName, HeaderText)>,
    pub(super) credential: Option<Credential>,
    pub(super) error_message: Option<Place>,
    pub(super) rate_limited: Vec<Rate>,
}

#[derive(Clone, Debug)]
pub(super) enum HeaderText {
    Fixed(HeaderValue),
    Secret(SecretName),
    Filled(Text),
}

/// An answer that means "rate limited".
#[derive(Debug)]
pub(super) struct Rate {
    pub(super) status: u16,
    pub(super) header: Option<(String, Option<String>)>,
    pub(super) at: Option<(Place, Vec<String>)>,
    pub(super) reset_header: Option<String>,
}

/// How one tool works.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) request: Step,
    pub(super) response: Mapping,
    pub(super) paging: Option<Pages>,
    pub(super) rollback: Option<(Step, Vec<u16>)>,
    pub(super) check: Option<Lookup>,
    pub(super) dry_run: Tree,
}

/// A request with placeholders.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) method: Method,
    pub(super) paths: Vec<Text>,
    pub(super) query: Vec<(String, Tree)>,
    pub(super) headers: Vec<(HeaderName, HeaderText)>,
    pub(super) body: Option<Tree>,
}

/// How further pages are requested.
#[derive(Debug)]
pub(super) struct Pages {
    pub(super) items: Place,
    pub(super) pages_max: usize,
    /// The input with the number of items wanted.
    pub(super) limit: Option<String>,
    pub(super) next: Next,
}

/// How the next page is found.
#[derive(Debug)]
pub(super) enum Next {
    Link,
    Cursor { at: Place, more: Option<Place>, into: CursorInto },
}

/// Where the next request takes the cursor.
#[derive(Debug)]
pub(super) enum CursorInto {
    Query(String),
    Body(String),
}

/// How to find out whether a call took effect.
#[derive(Debug)]
pub(super) struct Lookup {
    pub(super) request: Step,
    pub(super) items: Place,
    pub(super) at: Place,
    pub(super) contains: Text,
    pub(super) never_after_ms: Option<u64>,
}
