//! The tool `slack_post`.
//!
//! A workflow names a channel by an alias. `secret://slack.<alias>` holds the URL of an incoming webhook, or
//! `{"token": "xoxb-…", "channel": "C…"}` for a bot. For bots, Slack answers most errors with status 200 and the
//! error in the body.

use crate::http::{Answer, Call, Client, Keyring, Request, Retryability, authority_of, not_retryable};
use async_trait::async_trait;
use chimera_core::error::Code;
use chimera_core::json::schema::InvalidSchema;
use chimera_core::limits;
use chimera_core::secret::{Secret, SecretName};
use chimera_core::tool::{EffectKind, Metadata, Risk, Rollback, Spec, ToolDeclaration, is_dry_run};
use chimera_engine::flow::port::{CallContext, Tool, ToolError};
use chimera_engine::port::Secrets;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Method, Url};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");

pub struct SlackPost {
    spec: Arc<Spec>,
    client: Client,
    secrets: Arc<dyn Secrets>,
    api: Url,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BotCredentials {
    token: String,
    channel: String,
}

impl SlackPost {
    /// The default API base URL for bots.
    pub const API: &'static str = "https://slack.com/api/";

    /// `api` is the API base URL for bots.
    pub fn new(client: Client, secrets: Arc<dyn Secrets>, api: Url) -> Result<Self, InvalidSchema> {
        let spec = ToolDeclaration {
            name: "slack_post",
            version: "1",
            description: "Posts a text to the Slack channel behind an alias.",
            metadata: Metadata {
                requires_approval: false,
                dry_run_supported: true,
                idempotent: false,
                capabilities: vec!["slack.post".into(), "external_api".into()],
                risk_level: Risk::Medium,
            },
            effect: EffectKind::Write,
            reads_when: None,
            checkable: false,
            rollback: Rollback::Unsupported,
            timeout_ms: 20_000,
            input: json!({
                "type": "object",
                "properties": {
                    "channel_alias": {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{0,63}$",
                        "description": "secret://slack.ALIAS says which channel it is"},
                    "text": {"type": "string", "minLength": 1, "maxLength": limits::SLACK_TEXT_CHARS_MAX},
                },
                "required": ["channel_alias", "text"],
                "additionalProperties": false,
            }),
            output: json!({
                "type": "object",
                "properties": {
                    "ok": {"const": true},
                    "channel_alias": {"type": "string"},
                    "ts": {"type": "string", "description": "the message's id, if a bot posted it"},
                },
                "required": ["ok", "channel_alias"],
            }),
        };
        Ok(Self { spec: Arc::new(spec.compile()?), client, secrets, api })
    }

    /// Posts a text; returns the message's id if a bot posted it.
    async fn post(
        &self,
        call: &Call,
        name: &SecretName,
        text: &str,
        keys: &mut Keyring,
    ) -> Result<Option<String>, ToolError> {
        let secret = keys.text(name).await?;
        let (request, is_bot) = self.request(keys, &secret, text)?;
        let answer = self.client.send(call, request).await?;
        if !answer.is_success() {
            let words = keys.quote(&String::from_utf8_lossy(&answer.body));
            return Err(answer.refusal().with("answer", words));
        }
        if answer.status >= 300 {
            return Err(answer.unusable("it answered with a redirect; the URL is not a Slack webhook"));
        }
        if !is_bot {
            return Ok(None);
        }
        let parsed = answer.open(|answer| answer.json().map(BotAnswer::parse)).await??;
        parsed.into_message_id(&answer, keys)
    }

    /// The request for the channel's secret, and whether a bot sends it.
    fn request(&self, keys: &mut Keyring, secret: &Secret, text: &str) -> Result<(Request, bool), ToolError> {
        let unusable = || {
            let what = "the secret of the channel is neither an https address nor {\"token\", \"channel\"}";
            not_retryable(ToolError::not_sent(Code::ToolUnavailable, what))
        };
        let behind = secret.expose_text().unwrap_or_default();
        let (mut request, is_bot) = if behind.starts_with('{') {
            let bot: BotCredentials = serde_json::from_str(behind).map_err(|_| unusable())?;
            keys.add(Secret::new(bot.token.as_str()));
            let url = self.api.join("chat.postMessage").map_err(|_| unusable())?;
            let body = json!({"channel": bot.channel, "text": text});
            let mut request = Request::new(Method::POST, url, Retryability::Once).json(&body);
            let mut token = HeaderValue::from_str(&format!("Bearer {}", bot.token)).map_err(|_| unusable())?;
            token.set_sensitive(true);
            request.headers.insert(AUTHORIZATION, token);
            (request, true)
        } else {
            let url = Url::parse(behind).map_err(|_| unusable())?;
            // The path alone lets anybody post, and its last segment is the unguessable part.
            keys.add(Secret::new(url.path()));
            url.path_segments()
                .and_then(|mut parts| parts.next_back())
                .into_iter()
                .for_each(|last| keys.add(Secret::new(last)));
            (Request::new(Method::POST, url, Retryability::Once).json(&json!({"text": text})), false)
        };
        request.headers.insert(CONTENT_TYPE, JSON);
        request.redirects_max = 0;
        request.shown = Some("Slack");
        Ok((request, is_bot))
    }
}

#[async_trait]
impl Tool for SlackPost {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    /// The target of a channel's secret is known only when it is resolved; usually it is Slack itself.
    fn host(&self, _input: &Value) -> Option<String> {
        authority_of(&self.api)
    }

    async fn execute(&self, ctx: &CallContext, input: &Value) -> Result<Value, ToolError> {
        let (alias, text) = (input["channel_alias"].as_str(), input["text"].as_str());
        let (alias, text) = (alias.unwrap_or_default(), text.unwrap_or_default());
        let name = SecretName::new(&format!("slack.{alias}"))
            .map_err(|error| ToolError::not_sent(Code::MalformedArgs, format!("channel_alias: {error}")))?;
        if is_dry_run(input) {
            let output = json!({"ok": true, "channel_alias": alias});
            return Ok(Spec::dry_run_response(output, format!("POST to the Slack channel {alias} with {text:?}")));
        }
        let call = Call::for_tool(ctx);
        let mut keys = Keyring::of_call(&self.secrets, &call);
        let outcome = self.post(&call, &name, text, &mut keys).await;
        keys.clean(outcome.map(|ts| match ts {
            Some(ts) => json!({"ok": true, "channel_alias": alias, "ts": ts}),
            None => json!({"ok": true, "channel_alias": alias}),
        }))
        .await
    }
}

/// Slack's answer to a bot.
struct BotAnswer {
    ok: bool,
    ts: Option<String>,
    error: Option<String>,
}

impl BotAnswer {
    fn parse(mut answer: Value) -> Self {
        let mut text = |name: &str| match answer.get_mut(name).map(Value::take) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        let (ts, error) = (text("ts"), text("error"));
        Self { ok: answer["ok"] == true, ts, error }
    }

    fn into_message_id(self, answer: &Answer, keys: &Keyring) -> Result<Option<String>, ToolError> {
        if self.ok {
            return Ok(self.ts);
        }
        let why = keys.quote(self.error.as_deref().unwrap_or("no reason given"));
        let what = format!("Slack refused the message: {why}");
        Err(match why.as_str() {
            "ratelimited" | "rate_limited" => answer.rate_limited(None),
            // Slack documents that these may have been partly executed.
            "fatal_error" | "internal_error" => ToolError::maybe_sent(Code::ExternalServiceError, what),
            "service_unavailable" | "request_timeout" => ToolError::not_sent(Code::ExternalServiceError, what),
            _ => not_retryable(ToolError::not_sent(Code::ExternalServiceError, what)),
        })
    }
}
