//! Tells people and systems how a run ended: signed webhooks, and mail through the mail tool.
//!
//! A message keeps its id over all tries, so a receiver can tell a repetition. A channel that is
//! not set up refuses for good: trying again would not help.

use super::http::{Call, lasting};
use super::webhook::{self, WebhookSender};
use async_trait::async_trait;
use chimera_core::access::SecretName;
use chimera_core::error::Code;
use chimera_core::flow::trace::{self, SpanId};
use chimera_engine::port::{CallContext, Cancel, Clock, Message, Notifier, Tool, ToolError};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// How long one try may take.
const TIME_MAX: Duration = Duration::from_secs(30);

/// The channels that are set up.
pub struct Channels {
    /// Sends webhooks, signed with the key behind this name.
    pub webhook: Option<(WebhookSender, SecretName)>,
    /// Sends mail: the tool `email_send`.
    pub mail: Option<Arc<dyn Tool>>,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
}

#[async_trait]
impl Notifier for Channels {
    fn check(&self, channel: &str, target: &str) -> Result<(), ToolError> {
        match channel {
            "webhook" => {
                let (sender, _) = self.signed()?;
                sender.check(target)
            }
            "email" => self.mailer().and_then(|tool| {
                let letter = json!({"to": target, "subject": "-", "body": "-"});
                let faults = tool.spec().input.check(&letter).err();
                match faults {
                    None => Ok(()),
                    Some(_) => Err(ToolError::not_sent(Code::ValidationFailed, "that is no mail address")),
                }
            }),
            other => Err(absent(&format!("there is no channel {other:?}"))),
        }
    }

    async fn send(&self, message: &Message) -> Result<(), ToolError> {
        match message.channel.as_str() {
            "webhook" => self.webhook(message).await,
            "email" => self.mail(message).await,
            other => Err(absent(&format!("there is no channel {other:?}"))),
        }
    }
}

impl Channels {
    fn signed(&self) -> Result<&(WebhookSender, SecretName), ToolError> {
        let what = "no webhook can be sent: notify.webhook_key names no secret that would sign it";
        self.webhook.as_ref().ok_or_else(|| absent(what))
    }

    fn mailer(&self) -> Result<&Arc<dyn Tool>, ToolError> {
        self.mail.as_ref().ok_or_else(|| absent("no mail can be sent: mail.server is not set"))
    }

    async fn webhook(&self, message: &Message) -> Result<(), ToolError> {
        let (sender, secret) = self.signed()?;
        let id = message.id.to_string();
        let (_keep, cancel) = Cancel::pair();
        let call = Call {
            until: Instant::now() + TIME_MAX,
            cancel,
            idempotency_key: id.clone(),
            traceparent: traceparent(message),
        };
        let event_type = message.payload["type"].as_str().unwrap_or("run.ended");
        let data = &message.payload["data"];
        let timestamp = message.payload["timestamp"].as_str();
        let signed = webhook::Message { url: &message.target, id: &id, event_type, timestamp, data, secret };
        sender.send(&call, &signed).await.map(drop)
    }

    async fn mail(&self, message: &Message) -> Result<(), ToolError> {
        let tool = self.mailer()?;
        let (_keep, cancel) = Cancel::pair();
        let context = CallContext {
            tenant: message.tenant.clone(),
            actor: message.payload["data"]["actor"].as_str().unwrap_or_default().to_owned(),
            run_id: run_id(message),
            step_id: message.id,
            effect_id: message.id,
            idempotency_key: message.id.to_string(),
            attempt: 1,
            deadline: self.clock.now().plus_seconds(TIME_MAX.as_secs().try_into().unwrap_or(i64::MAX)),
            time_left: TIME_MAX,
            traceparent: traceparent(message),
            cancel,
        };
        tool.execute(&context, &letter(message)).await.map(drop)
    }
}

/// The mail about a run.
fn letter(message: &Message) -> Value {
    let data = &message.payload["data"];
    let word = |name: &str| data[name].as_str().unwrap_or("unknown").to_owned();
    let (run, workflow, status) = (word("run_id"), word("workflow_id"), word("status"));
    let mut body = format!("The run {run} of {workflow} is {status}.\n");
    if let Some(reason) = data["error"]["message"].as_str() {
        body.push_str(&format!("\nReason: {reason}\n"));
    }
    if !data["result"].is_null() {
        body.push_str(&format!("\nResult:\n{:#}\n", data["result"]));
    }
    json!({"to": message.target, "subject": format!("{workflow} is {status}"), "body": body})
}

fn run_id(message: &Message) -> Uuid {
    let text = message.payload["data"]["run_id"].as_str().unwrap_or_default();
    Uuid::parse_str(text).unwrap_or_default()
}

/// The run's own trace: whoever is told hangs what it does under the run.
fn traceparent(message: &Message) -> String {
    let run = run_id(message);
    trace::traceparent(run, SpanId::run(run))
}

fn absent(what: &str) -> ToolError {
    lasting(ToolError::not_sent(Code::ToolUnavailable, what))
}
