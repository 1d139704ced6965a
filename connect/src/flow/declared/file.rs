//! A vendor's file as written. Unknown keys are rejected.

use chimera_core::tool::{EffectKind, Metadata};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// The whole file: what its tools share, and the tools.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) vendor: String,
    pub(super) base_url: String,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    pub(super) auth: Option<Auth>,
    /// Where an error answer holds the error message.
    pub(super) error_message: Option<Value>,
    #[serde(default)]
    pub(super) rate_limited: Vec<RateLimited>,
    #[serde(rename = "tool")]
    pub(super) tools: Vec<Entry>,
}

/// How requests are authenticated.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Auth {
    /// `Authorization: Bearer …`
    Bearer { secret: String },
    /// `Authorization: Basic …`
    Basic { username: String, secret: String },
    /// A vendor-specific header.
    Header {
        name: String,
        secret: String,
        #[serde(default)]
        prefix: String,
    },
    /// A short-lived bearer token, fetched with the secret.
    Oauth2 { secret: String, token_url: String, scope: Option<String> },
}

/// An answer other than 429 that means "rate limited".
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RateLimited {
    pub(super) status: u16,
    /// A header that must be present, with this value if one is given.
    pub(super) header: Option<String>,
    pub(super) value: Option<String>,
    /// A place in the answer that must hold one of `values`.
    pub(super) at: Option<Value>,
    #[serde(default)]
    pub(super) values: Vec<String>,
    /// A header with the time, in seconds since 1970, when calls are allowed again.
    pub(super) reset_header: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) description: String,
    pub(super) effect: EffectKind,
    #[serde(default = "timeout_ms")]
    pub(super) timeout_ms: u64,
    pub(super) metadata: Metadata,
    pub(super) input: Value,
    pub(super) output: Value,
    pub(super) request: Exchange,
    pub(super) response: Value,
    pub(super) paging: Option<Paging>,
    pub(super) rollback: Option<Undo>,
    pub(super) check: Option<Check>,
    /// The output of a dry run, with placeholders.
    pub(super) dry_run: Option<Value>,
}

const fn timeout_ms() -> u64 {
    30_000
}

/// A request with placeholders.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Exchange {
    pub(super) method: String,
    /// A text or a list of texts: the first one whose placeholders all have values.
    pub(super) path: Value,
    #[serde(default)]
    pub(super) query: BTreeMap<String, Value>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: Option<Value>,
}

/// How further pages are requested.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Paging {
    /// By the `Link` header.
    Link { items: Value, pages_max: usize, limit: Option<String> },
    /// By a cursor in the answer that goes into the next request.
    Cursor {
        items: Value,
        pages_max: usize,
        limit: Option<String>,
        next: Value,
        /// The place that says whether there is more; without it, the presence of a cursor does.
        more: Option<Value>,
        /// The query parameter, or the body member, that takes the cursor.
        query: Option<String>,
        body: Option<String>,
    },
}

/// The compensating call.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Undo {
    pub(super) request: Exchange,
    /// Statuses that mean the object is already gone.
    #[serde(default)]
    pub(super) gone: Vec<u16>,
    /// Whether repeating it is safe; derived from the method when absent.
    pub(super) repeatable: Option<bool>,
}

/// How to find out whether a call took effect.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Check {
    pub(super) request: Exchange,
    /// The list to look through.
    pub(super) items: Value,
    /// The place in each element, and the text it must contain.
    pub(super) at: Value,
    pub(super) contains: String,
    /// If the effect is absent after this time, it never happens. Without it, absence proves nothing.
    pub(super) never_after_ms: Option<u64>,
}
