//! What a node's outputs are: the values that a run records, and the types that expressions are checked against.
//!
//! Value and type are next to each other, so that they change together. The outputs of a `function` node are those
//! of its tool, and the outputs of a `workflow` node are the result of its child run. `agent` and `swarm` nodes have
//! no known outputs yet.

use crate::error::ErrorBody;
use crate::flow::air::Wait;
use crate::flow::event::ReceivedEvent;
use crate::flow::expr::{Shape, Type};
use crate::time::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

fn closed(members: &[(&str, Type)]) -> Type {
    let named = members.iter().map(|(name, known)| ((*name).to_owned(), known.clone())).collect();
    let required = members.iter().map(|(name, _)| (*name).to_owned()).collect();
    Type::Object(Arc::new(Shape { named, required, open: false }))
}

/// The outputs of a `hitl` node that was approved. A rejected one fails.
pub(crate) fn approved(by: &[String], notes: Option<&str>) -> Value {
    json!({"decision": "approve", "approved_by": by, "notes": notes, "success": true})
}

pub(crate) fn approved_type() -> Type {
    closed(&[
        ("decision", Type::Text),
        ("approved_by", Type::List(Arc::new(Type::Text))),
        ("notes", Type::Text),
        ("success", Type::Bool),
    ])
}

/// The outputs of a `wait` node whose time has come.
pub(crate) fn waited_until(until: Timestamp) -> Value {
    json!({"until": until, "success": true})
}

/// The outputs of a `wait` node that got its event.
pub(crate) fn received(event: &ReceivedEvent) -> Value {
    json!({
        "timed_out": false, "event_id": event.event_id, "name": event.name, "key": event.key, "payload": event.payload,
        "sent_by": event.sent_by, "sent_at": event.sent_at, "success": true,
    })
}

/// The outputs of a `wait` node that goes on without its event.
pub(crate) fn timed_out(name: &str, key: &str) -> Value {
    json!({
        "timed_out": true, "event_id": null, "name": name, "key": key, "payload": null, "sent_by": null,
        "sent_at": null, "success": true,
    })
}

pub(crate) fn waited_type(wait: &Wait) -> Type {
    let text = |name: &'static str| (name, Type::Text);
    match wait {
        Wait::Until(_) | Wait::ForSeconds(_) => closed(&[text("until"), ("success", Type::Bool)]),
        Wait::Event(_) => closed(&[
            ("timed_out", Type::Bool),
            text("event_id"),
            text("name"),
            text("key"),
            ("payload", Type::Any),
            text("sent_by"),
            text("sent_at"),
            ("success", Type::Bool),
        ]),
    }
}

/// The outputs of a `map` node: those of its items, in the order of the list.
pub(crate) fn mapped(items: Vec<Value>) -> Value {
    json!({ "items": items })
}

pub(crate) fn mapped_type(item: Type) -> Type {
    completed_type(closed(&[("items", Type::List(Arc::new(item)))]))
}

/// The outputs of a node that completed, as expressions see them: with `success`.
pub(crate) fn completed(mut output: Value) -> Value {
    if let Some(members) = output.as_object_mut()
        && !members.contains_key("success")
    {
        members.insert("success".to_owned(), Value::Bool(true));
    }
    output
}

pub(crate) fn completed_type(output: Type) -> Type {
    output.with_member("success", Type::Bool)
}

/// The outputs of a node that failed, as conditions see them.
pub(crate) fn failed(error: &ErrorBody) -> Value {
    json!({"success": false, "error": {
        "code": error.code,
        "message": error.message,
        "error_type": error.error_type,
        "retryable": error.retryable,
        "details": error.details,
    }})
}

/// The type of `error` of a node that failed.
pub(crate) fn error_type() -> Type {
    let details = Shape { open: true, required: BTreeSet::new(), ..Shape::default() };
    closed(&[
        ("code", Type::Text),
        ("message", Type::Text),
        ("error_type", Type::Text),
        ("retryable", Type::Bool),
        ("details", Type::Object(Arc::new(details))),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;
    use crate::flow::air::{EventWait, TimeoutPolicy};

    /// The members and types of a value are exactly those of its type. Null has every type.
    fn matches(value: &Value, known: &Type) -> bool {
        match (value, known) {
            (Value::Null, _) | (_, Type::Any) => true,
            (Value::Array(items), Type::List(item)) => items.iter().all(|value| matches(value, item)),
            (Value::Object(members), Type::Object(shape)) if shape.open => {
                members.iter().all(|(name, value)| shape.named.get(name).is_none_or(|known| matches(value, known)))
            }
            (Value::Object(members), Type::Object(shape)) => {
                members.keys().eq(shape.named.keys())
                    && members.iter().all(|(name, value)| matches(value, &shape.named[name]))
            }
            (value, known) => Type::from_value(value) == *known,
        }
    }

    #[test]
    fn every_value_has_the_members_of_its_type_and_no_others() {
        let ann = ["user_ann".to_owned()];
        assert!(matches(&completed(approved(&ann, Some("go on"))), &completed_type(approved_type())));
        assert!(matches(&approved(&ann, None), &approved_type()));
        let item = Type::closed_object([("n".to_owned(), Type::Int)]);
        let items = vec![completed(json!({"n": 1})), completed(json!({"n": 2}))];
        assert!(matches(&completed(mapped(items)), &mapped_type(completed_type(item))));
        assert!(matches(&completed(mapped(Vec::new())), &mapped_type(Type::Any)));
        let timed = Wait::ForSeconds(json!(1));
        assert!(matches(&waited_until(Timestamp::from_micros(0)), &waited_type(&timed)));
        let key = json!("k");
        let event = Wait::Event(EventWait { name: "e".to_owned(), key, on_timeout: TimeoutPolicy::Fail });
        let sent = ReceivedEvent {
            event_id: "e1".to_owned(),
            name: "e".to_owned(),
            key: "k".to_owned(),
            payload: json!({"n": 1}),
            sent_by: "user_ann".to_owned(),
            sent_at: "1970-01-01T00:00:00Z".to_owned(),
        };
        assert!(matches(&received(&sent), &waited_type(&event)) && matches(&timed_out("e", "k"), &waited_type(&event)));
        let error = ErrorBody::new(Code::Internal, "broken").with("item", 3);
        assert!(matches(&failed(&error)["error"], &error_type()));
        assert!(!matches(&json!({"decision": "approve", "approved": true}), &approved_type()));
    }

    #[test]
    fn a_tool_keeps_a_success_of_its_own() {
        let own = Type::closed_object([("success".to_owned(), Type::Text)]);
        assert_eq!(completed_type(own.clone()), own);
        assert_eq!(completed(json!({"success": "yes"})), json!({"success": "yes"}));
        assert_eq!(completed_type(Type::Any), Type::Any);
        assert_eq!(completed(json!([1])), json!([1]));
    }
}
