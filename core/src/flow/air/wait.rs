//! Reads the members of a wait node, and says what type each template must have.
//!
//! A wait node waits for one thing. Constants are checked here, so that a mistyped time or name is found before any run.

use super::document::{EventWait, TimeoutPolicy, Wait};
use super::problem::{ProblemCode, Problems};
use super::read::Members;
use crate::flow::event::{check_event_key, check_event_name};
use crate::flow::expr::Type;
use crate::limits::FLOW_SECONDS_MAX;
use crate::time::Timestamp;
use serde_json::Value;

/// The members of which a wait node has exactly one.
const KINDS: [&str; 3] = ["until", "for_seconds", "event"];

/// Reports members that other nodes have and a wait can't use.
pub(super) fn check_members(members: &Members, out: &mut Problems) {
    let calls = "a wait node calls nothing";
    for name in ["retry", "requires_approval", "priority"] {
        if members.peek(name).is_some() {
            out.add(ProblemCode::InvalidValue, members.path(name), format!("{calls}, so it can't have {name}"));
        }
    }
    if members.peek("event").is_some() {
        return;
    }
    for name in ["timeout_seconds", "on_timeout"] {
        if members.peek(name).is_some() {
            let reason = format!("{name} is only for a wait for an event");
            out.add(ProblemCode::InvalidValue, members.path(name), reason);
        }
    }
}

pub(super) fn read(members: &mut Members, out: &mut Problems) -> Wait {
    let given: Vec<&str> = KINDS.into_iter().filter(|name| members.peek(name).is_some()).collect();
    match given.as_slice() {
        [] => out.add(
            ProblemCode::MissingMember,
            members.path("until"),
            "a wait node needs one of until, for_seconds and event",
        ),
        [_] => {}
        [.., last] => {
            let reason =
                format!("a wait node has only one of until, for_seconds and event, not {}", given.join(" and "));
            out.add(ProblemCode::InvalidValue, members.path(last), reason);
        }
    }
    let until = members.take("until");
    let seconds = members.take("for_seconds");
    let event = members.inner("event", out);
    let on_timeout = read_policy(members, out);
    if let Some(inner) = event {
        return Wait::Event(read_event(inner, on_timeout, out));
    }
    if let Some(seconds) = seconds {
        let constant = seconds.as_i64().filter(|seconds| (1..=i64::from(FLOW_SECONDS_MAX)).contains(seconds));
        if constant.is_none() && !is_template(&seconds) {
            let reason = format!("for_seconds must be an integer from 1 to {FLOW_SECONDS_MAX}, or a ${{…}}");
            out.add(ProblemCode::InvalidValue, members.path("for_seconds"), reason);
        }
        return Wait::ForSeconds(seconds);
    }
    let until = until.unwrap_or_default();
    let is_time = until.as_str().is_some_and(|text| text.parse::<Timestamp>().is_ok());
    if !is_time && !is_template(&until) && given.contains(&"until") {
        let reason = "until must be an RFC 3339 time such as \"2030-01-31T09:00:00Z\", or a ${…}";
        out.add(ProblemCode::InvalidValue, members.path("until"), reason);
    }
    Wait::Until(until)
}

fn read_policy(members: &mut Members, out: &mut Problems) -> TimeoutPolicy {
    let Some(word) = members.optional_text("on_timeout", out) else { return TimeoutPolicy::Fail };
    TimeoutPolicy::parse(&word).unwrap_or_else(|| {
        let reason = "on_timeout must be \"fail\" or \"continue\"";
        out.add(ProblemCode::InvalidValue, members.path("on_timeout"), reason);
        TimeoutPolicy::Fail
    })
}

fn read_event(mut members: Members, on_timeout: TimeoutPolicy, out: &mut Problems) -> EventWait {
    let name = members.text("name", out);
    if let Some(reason) = Some(&name).filter(|name| !name.is_empty()).and_then(|name| check_event_name(name).err()) {
        out.add(ProblemCode::InvalidValue, members.path("name"), reason);
    }
    let is_given = members.peek("key").is_some();
    let key = members.value("key", out);
    let constant = key.as_str().filter(|_| !is_template(&key));
    match constant.map(check_event_key) {
        Some(Err(reason)) => out.add(ProblemCode::InvalidValue, members.path("key"), reason),
        None if !key.is_string() && is_given => {
            out.add(ProblemCode::InvalidValue, members.path("key"), "key must be a string");
        }
        _ => {}
    }
    members.finish(out);
    EventWait { name, key, on_timeout }
}

fn is_template(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.contains("${"))
}

/// The type that the templates of a wait must have.
pub(super) fn expected_type(wait: &Wait) -> Type {
    let one = |name: &str, known: Type| Type::closed_object([(name.to_owned(), known)]);
    match wait {
        Wait::Until(_) => one("until", Type::Text),
        Wait::ForSeconds(_) => one("for_seconds", Type::Int),
        Wait::Event(_) => {
            let members = ["name", "key"].map(|name| (name.to_owned(), Type::Text));
            one("event", Type::closed_object(members))
        }
    }
}
