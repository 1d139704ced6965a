//! Signed webhooks: the sender, which notifications use too, and the tool `webhook_send`.
//!
//! Receivers deduplicate by `webhook-id`, so sending again with the same id is safe; that is why the tool counts as
//! idempotent. A redirect is a failure: the URL identifies the receiver.

mod sign;

use crate::http::{Call, Client, Keyring, Request, Retryability, authority_of, not_retryable, parse_url};
use async_trait::async_trait;
use chimera_core::access::destination::DESTINATIONS_MEMBER as DESTINATIONS;
use chimera_core::error::Code;
use chimera_core::json::schema::InvalidSchema;
use chimera_core::limits::TARGET_BYTES_MAX;
use chimera_core::secret::{Secret, SecretName};
use chimera_core::tool::{EffectKind, Metadata, Risk, Rollback, Spec, ToolDeclaration, is_dry_run};
use chimera_engine::flow::port::{CallContext, Tool, ToolError};
use chimera_engine::port::Secrets;
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Method, Url};
use serde_json::{Value, json};
pub use sign::{InvalidWebhookKey, own_key, public_keys, sign};
use std::sync::Arc;

/// An outgoing message.
#[derive(Clone, Copy, Debug)]
pub struct WebhookMessage<'a> {
    pub url: &'a str,
    /// The same for every attempt.
    pub id: &'a str,
    /// For example `run.completed`.
    pub event_type: &'a str,
    /// When it happened; now if absent.
    pub timestamp: Option<&'a str>,
    pub data: &'a Value,
    pub key: &'a SigningKeySource,
}

/// The source of the signing keys.
#[derive(Clone, Debug)]
pub enum SigningKeySource {
    /// The secret of this name; resolved for each message, so that it can be rotated.
    Secret(SecretName),
    /// A key of our own, in Standard Webhooks notation.
    Own(Secret),
}

#[derive(Clone)]
pub struct WebhookSender {
    client: Client,
    secrets: Arc<dyn Secrets>,
}

impl WebhookSender {
    #[must_use]
    pub const fn new(client: Client, secrets: Arc<dyn Secrets>) -> Self {
        Self { client, secrets }
    }

    /// Sends one message; returns the receiver's status, which is below 300.
    pub async fn send(&self, call: &Call, message: &WebhookMessage<'_>) -> Result<u16, ToolError> {
        let mut keys = Keyring::of_call(&self.secrets, call);
        let outcome = self.deliver(call, message, &mut keys).await;
        keys.clean(outcome).await
    }

    async fn deliver(&self, call: &Call, message: &WebhookMessage<'_>, keys: &mut Keyring) -> Result<u16, ToolError> {
        let mut request = self.request(message.url)?;
        let now = self.client.clock().now();
        let happened = message.timestamp.map_or_else(|| now.to_string(), str::to_owned);
        let payload = json!({"type": message.event_type, "timestamp": happened, "data": message.data});
        request = request.json(&payload);
        let key = resolve(keys, message.key).await?;
        let at = now.micros().div_euclid(1_000_000);
        let signature =
            sign(key.expose_text().unwrap_or_default(), message.id, at, &request.body).map_err(|error| {
                let what = match message.key {
                    SigningKeySource::Secret(name) => format!("the secret {name}: {error}"),
                    SigningKeySource::Own(_) => error.to_string(),
                };
                not_retryable(ToolError::not_sent(Code::ToolUnavailable, what))
            })?;
        for (name, text) in [("id", message.id), ("timestamp", &at.to_string()), ("signature", &signature)] {
            let value = HeaderValue::from_str(text).map_err(|_| malformed("the id is not a valid header value"))?;
            request.headers.insert(
                HeaderName::from_bytes(format!("webhook-{name}").as_bytes()).map_err(|_| malformed("a header"))?,
                value,
            );
        }
        let answer = self.client.send(call, request).await?;
        if !answer.is_success() {
            let words = keys.quote(&String::from_utf8_lossy(&answer.body));
            return Err(answer.refusal().with("answer", words));
        }
        if answer.status >= 300 {
            return Err(answer.unusable(&format!("answered {}; webhooks don't follow redirects", answer.status)));
        }
        Ok(answer.status)
    }

    /// The public keys of a key's Ed25519 keys.
    pub async fn public_keys(&self, key: &SigningKeySource) -> Vec<String> {
        let mut keys = Keyring::of_process(&self.secrets);
        let found = resolve(&mut keys, key).await;
        let public = found.map(|found| json!(public_keys(found.expose_text().unwrap_or_default())));
        let public = keys.clean(public).await.ok().and_then(|public| serde_json::from_value(public).ok());
        public.unwrap_or_default()
    }

    /// Whether the egress rules allow a receiver, before its name is resolved.
    pub fn check(&self, url: &str) -> Result<(), ToolError> {
        self.request(url).map(drop)
    }

    fn request(&self, url: &str) -> Result<Request, ToolError> {
        let mut request = Request::new(Method::POST, parse_url(url)?, Retryability::Repeatable);
        request.redirects_max = 0;
        request.truncate_answer = true;
        self.client.allows(&request)?;
        Ok(request)
    }
}

pub struct WebhookSend {
    spec: Arc<Spec>,
    sender: WebhookSender,
}

impl WebhookSend {
    pub fn new(sender: WebhookSender) -> Result<Self, InvalidSchema> {
        let spec = ToolDeclaration {
            name: "webhook_send",
            version: "1",
            description: "Sends an event to a webhook, signed as Standard Webhooks asks for. The body is \
                {type, timestamp, data}; a repeated send has the same webhook-id.",
            metadata: Metadata {
                requires_approval: false,
                dry_run_supported: true,
                idempotent: true,
                capabilities: vec!["webhook.send".into(), "external_api".into()],
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
                    "url": {"type": "string", "minLength": 1, "maxLength": TARGET_BYTES_MAX},
                    "event_type": {"type": "string", "pattern": "^[A-Za-z0-9_]+(\\.[A-Za-z0-9_]+)*$", "maxLength": 128},
                    "data": {"type": "object", "default": {}},
                    "secret": {"type": "string", "pattern": "^secret://webhook[._-][a-z0-9._-]+$",
                        "description": "name of the secret that holds whsec_ or whsk_ keys"},
                },
                "required": ["url", "event_type", "secret"],
                "additionalProperties": false,
                DESTINATIONS: ["url"],
            }),
            output: json!({
                "type": "object",
                "properties": {
                    "delivered": {"const": true}, "status": {"type": "integer"}, "webhook_id": {"type": "string"},
                },
                "required": ["delivered", "status", "webhook_id"],
            }),
        };
        Ok(Self { spec: Arc::new(spec.compile()?), sender })
    }
}

#[async_trait]
impl Tool for WebhookSend {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn host(&self, input: &Value) -> Option<String> {
        authority_of(&Url::parse(input["url"].as_str()?).ok()?)
    }

    async fn execute(&self, ctx: &CallContext, input: &Value) -> Result<Value, ToolError> {
        let text = |name: &str| input[name].as_str().unwrap_or_default();
        let secret = text("secret").parse().map_err(|error| malformed(&format!("secret: {error}")))?;
        let key = SigningKeySource::Secret(secret);
        let (empty, id) = (json!({}), ctx.effect_id.to_string());
        let data = input.get("data").unwrap_or(&empty);
        let (url, event_type) = (text("url"), text("event_type"));
        let message = WebhookMessage { url, id: &id, event_type, timestamp: None, data, key: &key };
        if is_dry_run(input) {
            let request = self.sender.request(message.url)?;
            let output = json!({"delivered": true, "status": 200, "webhook_id": id});
            let would = format!("POST {} with {} {data}", request.url, message.event_type);
            return Ok(Spec::dry_run_response(output, would));
        }
        let status = self.sender.send(&Call::for_tool(ctx), &message).await?;
        Ok(json!({"delivered": true, "status": status, "webhook_id": id}))
    }
}

async fn resolve(keys: &mut Keyring, key: &SigningKeySource) -> Result<Secret, ToolError> {
    match key {
        SigningKeySource::Secret(name) => keys.text(name).await,
        SigningKeySource::Own(own) => {
            keys.add(own.clone());
            Ok(own.clone())
        }
    }
}

fn malformed(what: &str) -> ToolError {
    ToolError::not_sent(Code::MalformedArgs, what)
}
