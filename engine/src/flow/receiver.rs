//! Whom a run may tell: registered addresses, and whomever its actor may send a message to.
//!
//! What a run tells holds what its actor wrote. Without this check a `notify` would be a way to send mail
//! and requests for somebody who may do neither.

use super::Flow;
use crate::access::{Permit, lacking};
use crate::error::EngineError;
use chimera_core::access::Level;
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::policy::{Action, PolicyVerdict};
use chimera_core::tool::Spec;
use serde_json::{Value, json};
use std::sync::Arc;

/// The channels that a request may name.
pub(crate) const CHANNELS: [&str; 2] = ["webhook", "email"];

/// A tool by which an actor could send the same message itself.
struct Way {
    tool: &'static str,
    capability: &'static str,
}

const BY_MAIL: &[Way] = &[Way { tool: "email_send", capability: "email.send" }];
const BY_REQUEST: &[Way] = &[
    Way { tool: "http.request", capability: "http.request" },
    Way { tool: "webhook_send", capability: "webhook.send" },
];

impl Flow {
    /// Refuses a run that promises to tell somebody who can't be told, or whom its actor may not tell.
    pub(crate) fn check_notify(
        &self,
        permit: &Permit,
        level: Level,
        notify: Option<&Value>,
    ) -> Result<(), EngineError> {
        let Some(notify) = notify else { return Ok(()) };
        let refused =
            |pointer: &str, body: ErrorBody| Err(EngineError::Refused(Box::new(body.with("pointer", pointer))));
        if level == Level::ExecuteSilent {
            let body = ErrorBody::new(Code::ValidationFailed, "a run at L3_ExecuteSilent tells nobody how it ended");
            return refused("/notify", body);
        }
        for (channel, target) in named(notify) {
            if let Err(body) = self.may_tell(permit, level, channel, target) {
                return refused(&format!("/notify/{channel}"), body);
            }
            if let Err(error) = self.inner.parts.notifier.check(channel, target) {
                return refused(&format!("/notify/{channel}"), *error.body);
            }
        }
        Ok(())
    }

    /// What is left of `notify` for somebody who has another's run done again: the addresses that were registered
    /// for whoever asked first, and those that they may tell themselves.
    pub(super) fn still_told(&self, permit: &Permit, level: Level, first: &str, notify: &Value) -> Option<Value> {
        let recipients = &self.inner.parts.asking.recipients;
        let kept = named(notify).filter(|(channel, target)| {
            recipients.is_registered(permit.tenant(), first, channel, target)
                || self.may_tell(permit, level, channel, target).is_ok()
        });
        let kept: serde_json::Map<_, _> = kept.map(|(channel, target)| (channel.to_owned(), target.into())).collect();
        (!kept.is_empty()).then_some(Value::Object(kept))
    }

    /// Whether an address is not registered anywhere, so that telling it is sending a message.
    pub(crate) fn is_stranger(&self, permit: &Permit, channel: &str, target: &str) -> bool {
        let own = permit.notify().and_then(|own| own.get(channel)).and_then(Value::as_str);
        let recipients = &self.inner.parts.asking.recipients;
        own != Some(target) && !recipients.is_registered(permit.tenant(), permit.actor(), channel, target)
    }

    fn may_tell(&self, permit: &Permit, level: Level, channel: &str, target: &str) -> Result<(), ErrorBody> {
        if !self.is_stranger(permit, channel, target) {
            return Ok(());
        }
        let (ways, input) = match channel {
            "email" => (BY_MAIL, json!({"to": target, "subject": "-", "body": "-"})),
            _ => (BY_REQUEST, json!({"method": "POST", "url": target})),
        };
        let mut lacks = None;
        for way in ways {
            let tool = self.inner.parts.registry.get(way.tool).map(|tool| Arc::clone(tool.spec()));
            let covered = match &tool {
                Some(tool) => permit.covers(tool),
                None if permit.may(way.capability) => Ok(()),
                None => Err(lacking(way.capability)),
            };
            match covered {
                Ok(()) => return tool.map_or(Ok(()), |tool| self.check_rules(permit, level, &tool, &input)),
                Err(body) => lacks = lacks.or(Some(body)),
            }
        }
        Err(lacks.map_or_else(|| lacking(channel), |body| unregistered(body, channel, target)))
    }

    /// What the rules say about the tool counts for the message too. One that demands approval can't be met: a
    /// message is not a step that somebody approves.
    fn check_rules(&self, permit: &Permit, level: Level, tool: &Spec, input: &Value) -> Result<(), ErrorBody> {
        let action = Action { tenant: permit.tenant(), actor: permit.actor(), level, node: "notify", tool, input };
        match self.judge(&action) {
            PolicyVerdict::Allow => Ok(()),
            PolicyVerdict::Deny { rule, reason } => {
                Err(ErrorBody::new(Code::PolicyDenied, reason).with("rule", rule).with("tool", tool.name.as_str()))
            }
            PolicyVerdict::Ask(demand) => {
                let what =
                    format!("{}; send the message in a step of {}, or register the address", demand.reason, tool.name);
                Err(ErrorBody::new(Code::PolicyDenied, what).with("tool", tool.name.as_str()))
            }
        }
    }
}

/// The addresses that a `notify` names.
pub(crate) fn named(notify: &Value) -> impl Iterator<Item = (&'static str, &str)> {
    CHANNELS.into_iter().filter_map(|channel| Some((channel, notify.get(channel)?.as_str()?)))
}

fn unregistered(body: ErrorBody, channel: &str, target: &str) -> ErrorBody {
    let required = body.details.get("required_scope").and_then(Value::as_str).unwrap_or_default().to_owned();
    let shown = shown(channel, target);
    let message = format!(
        "{shown} is not registered, and the actor lacks the scope {required}: name a registered address, or have \
         the {channel} of the actor registered"
    );
    ErrorBody { message, ..body }
}

/// What of an address may be repeated: of a URL its scheme and its host, since all else may be what lets somebody in.
fn shown(channel: &str, target: &str) -> String {
    if channel == "email" {
        return target.to_owned();
    }
    let parts = target.split_once("://").filter(|(scheme, _)| scheme.chars().all(|c| c.is_ascii_alphanumeric()));
    let Some((scheme, rest)) = parts else { return format!("the {channel}") };
    let authority = rest.split(['/', '\\', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}")
}
