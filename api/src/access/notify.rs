//! Notification targets, in a request and in an actor's registry entry.

use crate::problem::ApiError;
use chimera_core::error::Code;
use chimera_core::limits::TARGET_BYTES_MAX;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// Where notifications about a run are sent.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Notify {
    /// URL that receives signed webhooks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) webhook: Option<String>,
    /// Email address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) email: Option<String>,
}

impl Notify {
    /// Validates the targets and returns them as JSON.
    pub(crate) fn validate(self) -> Result<Value, ApiError> {
        let invalid = |pointer: &str, what: &str| ApiError::new(Code::ValidationFailed, what).with("pointer", pointer);
        let is_url = |url: &str| {
            let rest = url.strip_prefix("https://").or(url.strip_prefix("http://"));
            url.len() <= TARGET_BYTES_MAX && rest.is_some_and(|rest| !rest.is_empty())
        };
        if self.webhook.as_deref().is_some_and(|url| !is_url(url)) {
            return Err(invalid("/notify/webhook", "the webhook must be an http or https URL"));
        }
        serde_json::to_value(self).map_err(|_| ApiError::internal())
    }
}
