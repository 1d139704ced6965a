//! Wait nodes and priorities in documents.

use super::given::{compiled, document, echo, problems, tools};
use chimera_core::flow::air::{Document, DocumentProblem, SCHEMA, Source};
use chimera_core::json::Position;
use chimera_core::json::schema::Schema;
use serde_json::{Value, json};

fn wait(members: Value) -> Value {
    let mut node = json!({"id": "w", "type": "wait"});
    for (name, value) in members.as_object().unwrap() {
        node[name] = value.clone();
    }
    node
}

fn event(key: &str) -> Value {
    json!({"name": "payment.received", "key": key})
}

#[test]
fn a_wait_is_written_as_it_was_read_without_defaults() {
    for members in [
        json!({"until": "2030-01-31T09:00:00+01:00"}),
        json!({"until": "${inputs.at}"}),
        json!({"for_seconds": 60}),
        json!({"for_seconds": "${inputs.n}"}),
        json!({"event": event("order-${inputs.id}"), "timeout_seconds": 60, "on_timeout": "continue"}),
        json!({"event": event("k")}),
    ] {
        let made = document(json!([wait(members.clone())]), json!([]));
        let read = Document::from_value(made.clone()).unwrap();
        assert_eq!(read.to_value(), made, "{members}");
        compiled(made).unwrap();
    }
    let default = document(json!([wait(json!({"event": event("k"), "on_timeout": "fail"}))]), json!([]));
    assert_eq!(Document::from_value(default).unwrap().to_value()["nodes"][0].get("on_timeout"), None);
}

#[test]
fn what_a_wait_can_not_have_is_refused_by_the_reader_and_by_the_schema() {
    let schema = Schema::compile(serde_json::from_str(SCHEMA).unwrap()).unwrap();
    for (members, code, path) in [
        (json!({}), "missing_member", "/nodes/0/until"),
        (json!({"until": "2030-01-01T00:00:00Z", "for_seconds": 1}), "invalid_value", "/nodes/0/for_seconds"),
        (json!({"for_seconds": 0}), "invalid_value", "/nodes/0/for_seconds"),
        (json!({"for_seconds": 7_776_001}), "invalid_value", "/nodes/0/for_seconds"),
        (json!({"event": {"name": "a b", "key": "k"}}), "invalid_value", "/nodes/0/event/name"),
        (json!({"event": {"name": "${inputs.x}", "key": "k"}}), "invalid_value", "/nodes/0/event/name"),
        (json!({"event": {"name": "a"}}), "missing_member", "/nodes/0/event/key"),
        (json!({"event": {"name": "a", "key": 7}}), "invalid_value", "/nodes/0/event/key"),
        (json!({"event": {"name": "a", "key": "k", "where": 1}}), "unknown_member", "/nodes/0/event/where"),
        (json!({"event": event("k"), "on_timeout": "stop"}), "invalid_value", "/nodes/0/on_timeout"),
        (json!({"event": event("k"), "retry": {"max": 1}}), "invalid_value", "/nodes/0/retry"),
        (json!({"event": event("k"), "requires_approval": true}), "invalid_value", "/nodes/0/requires_approval"),
        (json!({"event": event("k"), "priority": 1}), "invalid_value", "/nodes/0/priority"),
        (json!({"for_seconds": 1, "timeout_seconds": 1}), "invalid_value", "/nodes/0/timeout_seconds"),
        (json!({"for_seconds": 1, "on_timeout": "fail"}), "invalid_value", "/nodes/0/on_timeout"),
        (json!({"for_seconds": 1, "colour": 1}), "unknown_member", "/nodes/0/colour"),
    ] {
        let made = document(json!([wait(members.clone())]), json!([]));
        let found = problems(made.clone());
        assert!(found.iter().any(|(c, p, _)| *c == code && p == path), "{members}: {found:?}");
        assert!(schema.check(&made).is_err(), "{members}");
    }
    let soon = document(json!([wait(json!({"until": "tomorrow"}))]), json!([]));
    assert_eq!(problems(soon)[0].1, "/nodes/0/until");
}

/// Everything that is wrong is said at once, with its place.
#[test]
fn the_templates_and_outputs_of_a_wait_are_checked() {
    let text = r#"{
  "air_version": "1.0", "workflow_id": "w",
  "inputs": {"type": "object", "properties": {"n": {"type": "integer"}}},
  "nodes": [
    {"id": "a", "type": "wait", "until": "${inputs.n}"},
    {"id": "b", "type": "wait", "for_seconds": "${nodes.nobody.outputs.x}"},
    {"id": "c", "type": "wait", "event": {"name": "e", "key": "${inputs.n}"}},
    {"id": "d", "type": "wait", "event": {"name": "e", "key": "k-${nodes.e.outputs.value}"}},
    {"id": "e", "type": "function", "fn": "local.echo",
     "inputs": {"message": "${nodes.c.outputs.timed_out}", "value": "${nodes.c.outputs.amount}"}},
    {"id": "f", "type": "function", "fn": "local.echo",
     "inputs": {"message": "${nodes.a.outputs.until}", "value": "${nodes.a.outputs.payload}"}}
  ],
  "edges": [{"from": "a", "to": "f"}, {"from": "c", "to": "e"}, {"from": "d", "to": "e"}]
}"#;
    let found = Source::read(text).compile(&tools()).map(drop).unwrap_err();
    let row = |problem: DocumentProblem| {
        let Position { line, column } = problem.position.unwrap();
        (line, column, problem.code.as_str(), problem.path)
    };
    let found: Vec<_> = found.into_iter().map(row).collect();
    let expected = [
        (5, 42, "type_mismatch", "/nodes/0/until"),
        (6, 48, "unknown_reference", "/nodes/1/for_seconds"),
        (7, 63, "type_mismatch", "/nodes/2/event/key"),
        (8, 63, "unknown_reference", "/nodes/3/event/key"),
        (10, 28, "type_mismatch", "/nodes/4/inputs/message"),
        (10, 69, "unknown_reference", "/nodes/4/inputs/value"),
        (12, 65, "unknown_reference", "/nodes/5/inputs/value"),
    ];
    assert_eq!(found, expected.map(|(line, column, code, path)| (line, column, code, path.to_owned())));
}

#[test]
fn a_priority_is_from_one_to_ten() {
    let with = |priority: Value| {
        let mut node = echo("a", json!(1));
        node["priority"] = priority;
        document(json!([node]), json!([]))
    };
    let graph = compiled(with(json!(3))).unwrap();
    assert_eq!(
        (graph.nodes[0].node.priority, &graph.document.to_value()["nodes"][0]["priority"]),
        (Some(3), &json!(3))
    );
    for bad in [json!(0), json!(11), json!("1"), json!(1.5)] {
        assert_eq!(problems(with(bad.clone()))[0].1, "/nodes/0/priority", "{bad}");
    }
}
