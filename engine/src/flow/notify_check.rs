//! Whom a run may notify: registered addresses, and whomever its actor may send a message to.
//!
//! A notification contains what the actor wrote. Without this check `notify` would let an actor send mail and requests
//! without the scopes for it.

use super::Flow;
use crate::access::{Permit, missing_scope_error};
use crate::error::EngineError;
use chimera_core::access::{Level, check_mail};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::flow::policy::{Action, PolicyVerdict};
use chimera_core::flow::tables::RunBrief;
use chimera_core::tool::Spec;
use serde_json::{Value, json};
use std::sync::Arc;

/// The channels that a request may use.
pub(crate) const CHANNELS: [&str; 2] = ["webhook", "email"];

/// A tool that the actor could send the same message with.
struct SendingTool {
    tool: &'static str,
    capability: &'static str,
}

const BY_MAIL: &[SendingTool] = &[SendingTool { tool: "email_send", capability: "email.send" }];
const BY_REQUEST: &[SendingTool] = &[
    SendingTool { tool: "http.request", capability: "http.request" },
    SendingTool { tool: "webhook_send", capability: "webhook.send" },
];

/// Refuses `notify` addresses that can't be reached or that the actor may not send to.
pub(crate) fn check_notify(
    flow: &Flow,
    permit: &Permit,
    level: Level,
    notify: Option<&Value>,
) -> Result<(), EngineError> {
    let Some(notify) = notify else { return Ok(()) };
    let refused = |pointer: &str, body: ErrorBody| Err(EngineError::Refused(Box::new(body.with("pointer", pointer))));
    if level == Level::ExecuteSilent {
        let body = ErrorBody::new(
            Code::ValidationFailed,
            "a run at L3_ExecuteSilent sends no notifications: remove notify or choose another level",
        );
        return refused("/notify", body);
    }
    for (channel, target) in named(notify) {
        if channel == "email" && is_unregistered(flow, permit, channel, target) {
            let plain = check_mail(target).map_err(|bad| ErrorBody::new(Code::ValidationFailed, bad.to_string()));
            plain.or_else(|body| refused("/notify/email", body))?;
        }
        if let Err(body) = check_recipient(flow, permit, level, channel, target) {
            return refused(&format!("/notify/{channel}"), body);
        }
        if let Err(error) = flow.inner.parts.notifier.check(channel, target) {
            return refused(&format!("/notify/{channel}"), *error.body);
        }
    }
    Ok(())
}

/// The part of `notify` that remains when another actor replays a run: addresses registered for the original actor,
/// and those that the caller may send to.
pub(super) fn retained_notify(
    flow: &Flow,
    permit: &Permit,
    level: Level,
    first: &str,
    notify: &Value,
) -> Option<Value> {
    let recipients = &flow.inner.parts.asking.recipients;
    let kept = named(notify).filter(|(channel, target)| {
        recipients.is_registered(permit.tenant(), first, channel, target)
            || check_recipient(flow, permit, level, channel, target).is_ok()
    });
    let kept: serde_json::Map<_, _> = kept.map(|(channel, target)| (channel.to_owned(), target.into())).collect();
    (!kept.is_empty()).then_some(Value::Object(kept))
}

/// Whether an address is unregistered, so that notifying it counts as sending a message.
pub(crate) fn is_unregistered(flow: &Flow, permit: &Permit, channel: &str, target: &str) -> bool {
    let own = permit.notify().and_then(|own| own.get(channel)).and_then(Value::as_str);
    let recipients = &flow.inner.parts.asking.recipients;
    own != Some(target) && !recipients.is_registered(permit.tenant(), permit.actor(), channel, target)
}

fn check_recipient(flow: &Flow, permit: &Permit, level: Level, channel: &str, target: &str) -> Result<(), ErrorBody> {
    if !is_unregistered(flow, permit, channel, target) {
        return Ok(());
    }
    let (ways, input) = match channel {
        "email" => (BY_MAIL, json!({"to": target, "subject": "-", "body": "-"})),
        _ => (BY_REQUEST, json!({"method": "POST", "url": target})),
    };
    let mut lacks = None;
    for way in ways {
        let tool = flow.inner.parts.registry.get(permit.tenant(), way.tool).map(|tool| Arc::clone(tool.spec()));
        let covered = match &tool {
            Some(tool) => permit.require_tool(tool),
            None if permit.may(way.capability) => Ok(()),
            None => Err(missing_scope_error(way.capability)),
        };
        match covered {
            Ok(()) => return tool.map_or(Ok(()), |tool| check_rules(flow, permit, level, &tool, &input)),
            Err(body) => lacks = lacks.or(Some(body)),
        }
    }
    Err(lacks.map_or_else(|| missing_scope_error(channel), |body| unregistered(body, channel, target)))
}

/// Whether the actor of a run may still notify an address when the message is sent. Addresses that are registered for
/// the actor of the run that this one repeats were kept, and count too.
pub(super) fn may_still_tell(flow: &Flow, run: &RunBrief, channel: &str, target: &str) -> Result<(), ErrorBody> {
    let recipients = &flow.inner.parts.asking.recipients;
    let (tenant, actor) = (run.tenant_id.as_str(), run.actor.as_str());
    let others = run.co_requesters.iter().flatten().map(String::as_str);
    let mut asked = std::iter::once(actor).chain(others);
    if asked.any(|actor| recipients.is_registered(tenant, actor, channel, target)) {
        return Ok(());
    }
    let Some(permit) = recipients.sender(tenant, actor)? else { return Ok(()) };
    let level = run.autonomy_level.unwrap_or(Level::Ask);
    check_recipient(flow, &permit, level, channel, target)
}

/// The rules for the tool also apply to the message. One that requires approval can't be satisfied: a message is
/// not a step that can be approved.
fn check_rules(flow: &Flow, permit: &Permit, level: Level, tool: &Spec, input: &Value) -> Result<(), ErrorBody> {
    let action = Action { tenant: permit.tenant(), actor: permit.actor(), level, node: "notify", tool, input };
    match flow.evaluate(&action) {
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

pub(crate) fn named(notify: &Value) -> impl Iterator<Item = (&'static str, &str)> {
    CHANNELS.into_iter().filter_map(|channel| Some((channel, notify.get(channel)?.as_str()?)))
}

fn unregistered(body: ErrorBody, channel: &str, target: &str) -> ErrorBody {
    let required = body.details.get("required_scope").and_then(Value::as_str).unwrap_or_default().to_owned();
    let shown = displayable_address(channel, target);
    let message = format!(
        "{shown} is not registered, and the actor lacks the scope {required}: name a registered address, or have \
         the {channel} of the actor registered"
    );
    ErrorBody { message, ..body }
}

/// The part of an address that may be shown: of a URL the scheme and host, since the rest may contain a credential.
fn displayable_address(channel: &str, target: &str) -> String {
    if channel == "email" {
        return target.to_owned();
    }
    let parts = target.split_once("://").filter(|(scheme, _)| scheme.chars().all(|c| c.is_ascii_alphanumeric()));
    let Some((scheme, rest)) = parts else { return format!("the {channel}") };
    let authority = rest.split(['/', '\\', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}")
}
