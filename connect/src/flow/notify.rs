//! Notifies people and systems that a run ended or waits for a person: by signed webhooks, and by mail through the
//! mail tool.
//!
//! A message keeps its id across retries, so a receiver can recognize a duplicate. A channel that is not configured
//! fails permanently: retrying does not help.

use super::webhook::{self, SigningKeySource, WebhookSender};
use crate::http::{Call, not_retryable};
use async_trait::async_trait;
use chimera_core::error::Code;
use chimera_core::flow::review::{self, Review};
use chimera_core::flow::trace::{self, SpanId};
use chimera_core::limits;
use chimera_engine::flow::port::{
    CallContext, CallLog, CancelToken, DeliveryReceipt, Message, Notifier, Tool, ToolError,
};
use chimera_engine::port::Clock;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::time::Instant;
use uuid::Uuid;

/// The configured channels.
pub struct NotificationChannels {
    /// Sends webhooks, signed with this key.
    pub webhook: Option<(WebhookSender, SigningKeySource)>,
    /// The tool `email_send`.
    pub mail: Option<Arc<dyn Tool>>,
    pub clock: Arc<dyn Clock>,
}

#[async_trait]
impl Notifier for NotificationChannels {
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
            other => Err(not_configured(&format!("unknown channel {other:?}"))),
        }
    }

    async fn send(&self, message: &Message) -> Result<DeliveryReceipt, ToolError> {
        match message.channel.as_str() {
            "webhook" => self.webhook(message).await,
            "email" => self.mail(message).await,
            other => Err(not_configured(&format!("unknown channel {other:?}"))),
        }
    }

    async fn public_keys(&self) -> Vec<String> {
        match &self.webhook {
            Some((sender, key)) => sender.public_keys(key).await,
            None => Vec::new(),
        }
    }
}

impl NotificationChannels {
    fn signed(&self) -> Result<&(WebhookSender, SigningKeySource), ToolError> {
        self.webhook.as_ref().ok_or_else(|| not_configured("webhooks are not configured: there is no signing key"))
    }

    fn mailer(&self) -> Result<&Arc<dyn Tool>, ToolError> {
        self.mail.as_ref().ok_or_else(|| not_configured("mail is not configured: mail.server is not set"))
    }

    async fn webhook(&self, message: &Message) -> Result<DeliveryReceipt, ToolError> {
        let (sender, key) = self.signed()?;
        let id = message.id.to_string();
        let (_keep, cancel) = CancelToken::pair();
        let call = Call {
            tenant: None,
            until: Instant::now() + limits::MESSAGE_TIMEOUT,
            cancel,
            idempotency_key: id.clone(),
            traceparent: traceparent(message),
            log: CallLog::none(),
        };
        let event_type = message.payload["type"].as_str().unwrap_or("run.ended");
        let data = &message.payload["data"];
        let timestamp = message.payload["timestamp"].as_str();
        let signed = webhook::WebhookMessage { url: &message.target, id: &id, event_type, timestamp, data, key };
        let status = sender.send(&call, &signed).await?;
        Ok(DeliveryReceipt { status: Some(status) })
    }

    async fn mail(&self, message: &Message) -> Result<DeliveryReceipt, ToolError> {
        let tool = self.mailer()?;
        let (_keep, cancel) = CancelToken::pair();
        let context = CallContext {
            tenant: message.tenant.clone(),
            actor: message.payload["data"]["actor"].as_str().unwrap_or_default().to_owned(),
            run_id: run_id(message),
            step_id: message.id,
            effect_id: message.id,
            idempotency_key: message.id.to_string(),
            attempt: 1,
            deadline: self
                .clock
                .steady()
                .plus_seconds(limits::MESSAGE_TIMEOUT.as_secs().try_into().unwrap_or(i64::MAX)),
            time_left: limits::MESSAGE_TIMEOUT,
            traceparent: traceparent(message),
            log: CallLog::none(),
            cancel,
        };
        tool.execute(&context, &mail_input(message)).await?;
        Ok(DeliveryReceipt::default())
    }
}

/// The input of the mail tool for a message.
fn mail_input(message: &Message) -> Value {
    match message.payload["type"].as_str() {
        Some("approval.requested") => approval_mail(message),
        Some("step.outcome_unknown") => outcome_unknown_mail(message),
        _ => run_ended_mail(message),
    }
}

/// The mail about a finished run.
fn run_ended_mail(message: &Message) -> Value {
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

/// The mail that asks for a decision: what would run, and where to decide. Plain text, so that quoted content can't
/// pass for ours.
fn approval_mail(message: &Message) -> Value {
    let data = &message.payload["data"];
    let line = |name: &str| data[name].as_str().map(|text| text.replace(char::is_control, " "));
    let word = |name: &str| line(name).unwrap_or_else(|| "unknown".to_owned());
    let (run, workflow, tool) = (word("run_id"), word("workflow_id"), word("tool"));
    let what = match tool.as_str() {
        "plan" => "its plan".to_owned(),
        "graph.patch" => "a change to its plan".to_owned(),
        "hitl" => "a question".to_owned(),
        "workflow" => "a run inside it".to_owned(),
        "map" => "the calls of a map".to_owned(),
        tool => format!("a call of {tool}"),
    };
    if data["withheld"] == true {
        let body = format!(
            "A run of {workflow} waits for somebody to decide.\n\nRun: {run}\nUntil: {}\n\nOnly approvers can see what it would do.\n",
            word("expires_at")
        );
        return json!({"to": message.target, "subject": format!("{workflow} waits for a decision"), "body": body});
    }
    let decides = data["not_decider"].is_null();
    let mut body = match decides {
        true => format!("A run of {workflow} waits for your decision about {what}.\n"),
        false => format!(
            "A run of {workflow} waits for a decision about {what}.\n\nYou cannot decide about it: {}.\nWho decides: {}\n",
            denial_reason(data["not_decider"].as_str().unwrap_or_default()),
            word("decided_by"),
        ),
    };
    match data["link"].as_str() {
        _ if !decides => body.push_str(&format!("\nSee it with:\nchimera runs show {run}\n")),
        Some(link) => body.push_str(&format!(
            "\nSee it and decide:\n{link}\n\nThe link is personal and works once. Do not forward it: whoever opens it decides as you.\n"
        )),
        None => body.push_str(&format!("\nDecide with:\nchimera runs show {run}\nchimera runs approve {run}\n")),
    }
    let whole = match data["link"].as_str().filter(|_| decides) {
        Some(_) => "the page shows everything",
        None => "`chimera runs show` shows everything",
    };
    match serde_json::from_value::<Review>(data["review"].clone()) {
        Ok(review) => {
            let quoted: Vec<String> = review::lines(&review).iter().map(|line| format!("> {line}")).collect();
            let masked = if data["masked"] == true { format!(" (credentials masked; {whole})") } else { String::new() };
            body.push_str(&format!("\nWhat would run{masked}:\n{}\n", quoted.join("\n")));
        }
        Err(_) => {
            for (label, name) in
                [("Run", "run_id"), ("Step", "node_id"), ("Level", "autonomy_level"), ("Why", "reason")]
            {
                if let Some(text) = line(name) {
                    body.push_str(&format!("{label}: {text}\n"));
                }
            }
            body.push_str(&format!(
                "Asked for by: {}\nDigest: {}\nUntil: {}\n",
                word("actor"),
                word("digest"),
                word("expires_at")
            ));
            body.push_str(&format!("\nWhat would run is too long for a mail: {whole}.\n"));
        }
    }
    let whose = if decides { "your" } else { "a" };
    json!({"to": message.target, "subject": format!("{workflow} waits for {whose} decision"), "body": body})
}

/// Why somebody may not decide, for a mail to them.
fn denial_reason(reason: &str) -> &'static str {
    match reason {
        "requester" => "you asked for it, wrote its workflow or changed it, and somebody else must decide",
        "lacks_scope" => "you lack the scope approvals.decide",
        "same_as_requester" => "somebody with your mail address asked for it, and somebody else must decide",
        _ => "you are not one of its approvers",
    }
}

/// The mail about a call with an unknown outcome, and how to resolve it.
fn outcome_unknown_mail(message: &Message) -> Value {
    let data = &message.payload["data"];
    let line = |name: &str| data[name].as_str().map(|text| text.replace(char::is_control, " "));
    let word = |name: &str| line(name).unwrap_or_else(|| "unknown".to_owned());
    let (workflow, tool, undo) = (word("workflow_id"), word("tool"), data["call"] == "undo");
    if data["withheld"] == true {
        let (run, since) = (word("run_id"), word("since"));
        let body = format!(
            "The outcome of a call in a run of {workflow} is unknown.\n\nRun: {run}\nSince: {since}\n\nPeople who may manage its runs can see which call it is.\n"
        );
        return json!({"to": message.target, "subject": format!("{workflow}: outcome unknown"), "body": body});
    }
    let what = if undo { format!("{tool} was undone") } else { format!("a call of {tool} happened") };
    let mut body = format!("It is unknown whether {what} in a run of {workflow}.\n\n");
    for (label, name) in [("Run", "run_id"), ("Step", "step_id"), ("Node", "node_id"), ("Since", "since")] {
        body.push_str(&format!("{label}: {}\n", word(name)));
    }
    body.push_str(&format!("Why: {}\nAsked for by: {}\n", word("reason"), word("actor")));
    body.push_str(if undo {
        "\nThe run has ended. Look in the other system, then undo it again (that does no harm), or say that you \
         have undone it by hand:\n"
    } else {
        "\nThe run waits. Check the other system, then report whether it happened:\n"
    });
    for command in data["resolve_commands"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        body.push_str(&format!("{}\n", command.replace(char::is_control, " ")));
    }
    json!({"to": message.target, "subject": format!("{workflow}: the outcome of {tool} is unknown"), "body": body})
}

fn run_id(message: &Message) -> Uuid {
    let text = message.payload["data"]["run_id"].as_str().unwrap_or_default();
    Uuid::parse_str(text).unwrap_or_default()
}

/// The run's own trace, so that the receiver's spans become its children.
fn traceparent(message: &Message) -> String {
    let run = run_id(message);
    trace::traceparent(run, SpanId::run(run))
}

fn not_configured(what: &str) -> ToolError {
    not_retryable(ToolError::not_sent(Code::ToolUnavailable, what))
}
