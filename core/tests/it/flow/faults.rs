//! All faults of a document are reported together, each with its place in the text.

use super::given::{document, echo, tools};
use chimera_core::flow::air::{DocumentProblem, Graph, Source, WorkflowInfo};
use chimera_core::json::Position;
use chimera_core::limits::{JSON_DEPTH_MAX, PROBLEMS_MAX, WORKFLOW_BYTES_MAX};
use serde_json::{Value, json};

fn checked(text: &str) -> Result<Graph, Vec<DocumentProblem>> {
    Source::read(text).compile(&tools().with_workflow("child", WorkflowInfo::Exists))
}

/// Line, column, code and pointer of every problem.
fn told(text: &str) -> Vec<(usize, usize, &'static str, String)> {
    let problems = checked(text).map(drop).unwrap_err();
    let row = |problem: DocumentProblem| {
        let Position { line, column } = problem.position.expect("every problem has a position");
        (line, column, problem.code.as_str(), problem.path)
    };
    problems.into_iter().map(row).collect()
}

fn rows(expected: &[(usize, usize, &'static str, &str)]) -> Vec<(usize, usize, &'static str, String)> {
    expected.iter().map(|(line, column, code, path)| (*line, *column, *code, (*path).to_owned())).collect()
}

/// One problem of every stage.
const BROKEN: &str = r#"{
  "air_version": "1.0",
  "workflow_id": "w",
  "colour": "red",
  "inputs": {"type": "strnig"},
  "nodes": [
    {"id": "first", "type": "function", "fn": "local.ehco", "inputs": {"value": "${1 +}"}},
    {"id": "ask", "type": "hitl", "prompt": "${nodes.frist.outputs}", "retry": {"max": 9}},
    {"id": "say", "type": "function", "fn": "local.echo",
     "inputs": {"message": "${nodes.ask.outputs.approved}", "value": "${nodes.late.outputs.value}", "loud": true}},
    {"id": "late", "type": "function", "fn": "local.echo", "inputs": {"value": 0.10000000000000000001}},
    {"id": "a", "type": "function", "fn": "local.echo", "inputs": {"value": "${nodes.b.outputs.valeu}"}},
    {"id": "b", "type": "workflow", "workflow_id": "nowhere"}
  ],
  "edges": [
    {"from": "first", "to": "ask"},
    {"from": "ask", "to": "say", "condition": "${run_id}"},
    {"from": "say", "to": "late"},
    {"from": "late", "to": "late"},
    {"from": "a", "to": "b"},
    {"from": "b", "to": "a"}
  ]
}
"#;

#[test]
fn the_faults_of_every_stage_are_told_at_once_in_the_order_of_the_text() {
    let expected = [
        (4, 13, "unknown_member", "/colour"),
        (5, 13, "invalid_schema", "/inputs"),
        (7, 47, "unknown_tool", "/nodes/0/fn"),
        (7, 81, "invalid_expression", "/nodes/0/inputs/value"),
        (8, 45, "unknown_reference", "/nodes/1/prompt"),
        (8, 88, "invalid_value", "/nodes/1/retry/max"),
        (10, 28, "unknown_reference", "/nodes/2/inputs/message"),
        (10, 70, "unknown_reference", "/nodes/2/inputs/value"),
        (10, 109, "unknown_input", "/nodes/2/inputs/loud"),
        (11, 80, "not_json", "/nodes/3/inputs/value"),
        (13, 5, "cycle", "/nodes/5"),
        (13, 52, "unknown_workflow", "/nodes/5/workflow_id"),
        (17, 47, "type_mismatch", "/edges/1/condition"),
        (19, 5, "self_edge", "/edges/3"),
    ];
    assert_eq!(told(BROKEN), rows(&expected));
}

#[test]
fn a_fault_says_what_is_wrong_and_what_to_do() {
    let problems = checked(BROKEN).map(drop).unwrap_err();
    let said = |path: &str| {
        let found = problems.iter().find(|problem| problem.path == path).unwrap();
        (found.reason.as_str(), found.hint.as_deref().unwrap_or_default())
    };
    assert_eq!(
        said("/nodes/2/inputs/message"),
        (
            "there is no member approved (did you mean approved_by?)",
            "its members are approved_by, decision, error, notes, success"
        )
    );
    assert_eq!(
        said("/nodes/2/inputs/value"),
        (
            "late is not upstream of say: no path leads from it to here",
            "add an edge from late to say, or to a node before it"
        )
    );
    assert_eq!(
        said("/nodes/3/inputs/value"),
        ("the number has more digits than a double holds", "write it as a string")
    );
    assert_eq!(said("/nodes/0/fn").0, "there is no tool \"local.ehco\" (did you mean local.echo?)");
    assert_eq!(said("/nodes/1/prompt").0, "there is no node frist (did you mean first?)");
}

#[test]
fn a_text_that_is_not_json_has_one_fault_with_its_place() {
    for (text, line, column, reason) in [
        ("", 1, 1, "invalid JSON: the text ends too early"),
        ("{\n  \"a\": [1,\n  é]}", 3, 3, "invalid JSON: unexpected 'é'"),
        ("{\"é\": \"\\ud800\"}", 1, 10, "invalid Unicode"),
        ("{}\n{}", 2, 1, "there is more text after the document"),
        (&format!("\n{}", "[".repeat(200)), 2, JSON_DEPTH_MAX + 1, "nested too deeply"),
    ] {
        let problems = checked(text).map(drop).unwrap_err();
        assert_eq!(problems.len(), 1, "{text}: {problems:?}");
        let Position { line: found, column: at } = problems[0].position.unwrap();
        assert_eq!((problems[0].code.as_str(), found, at), ("not_json", line, column), "{text}");
        assert_eq!(problems[0].reason, reason, "{text}");
    }
    let large = told(&" ".repeat(WORKFLOW_BYTES_MAX + 1));
    assert_eq!(large, rows(&[(1, 1, "too_large", "")]));
}

#[test]
fn duplicate_members_and_numbers_that_can_not_be_kept_are_told_with_the_rest() {
    let text = r#"{
  "air_version": "1.0", "workflow_id": "w",
  "nodes": [{"id": "x", "type": "none"}],
  "nodes": [
    {"id": "a", "type": "function", "fn": "local.echo", "fn": "local.ehco", "inputs": {"value": [1e999, 18446744073709551616],
     "value": {"a": 0.1, "a": 0.10000000000000000001}}, "timeout_seconds": 1.00000000000000000001}
  ]
}"#;
    let expected = [
        (4, 3, "not_json", "/nodes"),
        (5, 43, "unknown_tool", "/nodes/0/fn"),
        (5, 57, "not_json", "/nodes/0/fn"),
        (5, 98, "not_json", "/nodes/0/inputs/value/0"),
        (5, 105, "not_json", "/nodes/0/inputs/value/1"),
        (6, 6, "not_json", "/nodes/0/inputs/value"),
        (6, 26, "not_json", "/nodes/0/inputs/value/a"),
        (6, 31, "not_json", "/nodes/0/inputs/value/a"),
        (6, 76, "not_json", "/nodes/0/timeout_seconds"),
    ];
    let mut found = told(text);
    // The tool is looked for where the last value is.
    let tool = found.iter_mut().find(|row| row.2 == "unknown_tool").unwrap();
    assert_eq!((tool.0, tool.1), (5, 63));
    (tool.0, tool.1) = (5, 43);
    found.sort();
    assert_eq!(found, rows(&expected));
    let reasons: Vec<String> = checked(text).map(drop).unwrap_err().into_iter().map(|problem| problem.reason).collect();
    assert!(reasons.contains(&"duplicate member \"nodes\"".to_owned()), "{reasons:?}");
    assert!(reasons.contains(&"the integer does not fit in 64 bits".to_owned()), "{reasons:?}");
}

/// A fault that only follows from another one would send people looking for nothing.
#[test]
fn what_only_follows_from_another_fault_is_not_told() {
    let one = |document: Value| {
        let found = told(&document.to_string());
        assert_eq!(found.len(), 1, "{document}: {found:?}");
        (found[0].2, found[0].3.clone())
    };
    let edge = |from: &str, to: &str| json!({"from": from, "to": to});
    let read = echo("read", json!("${nodes.a.outputs.value}"));
    // A malformed id still is one, and a missing one may be any.
    let mut node = echo("9", json!(1));
    let last = echo("last", json!(1));
    assert_eq!(one(document(json!([node, last]), json!([edge("9", "last")]))).0, "invalid_id");
    node.as_object_mut().unwrap().remove("id");
    assert_eq!(one(document(json!([node, read]), json!([edge("a", "read")]))).1, "/nodes/0/id");
    // An edge to nowhere may be the one that makes a node upstream.
    let nodes = json!([echo("a", json!(1)), read]);
    assert_eq!(one(document(nodes.clone(), json!([edge("a", "raed")]))).0, "unknown_node");
    assert_eq!(one(document(nodes.clone(), json!([{"from": "a"}]))).0, "missing_member");
    assert_eq!(one(document(nodes, json!({"from": "a"}))), ("invalid_value", "/edges".to_owned()));
    // Nothing is known of what a node without a tool needs and gives.
    for broken in [json!({"id": "a", "type": "function"}), json!({"id": "a", "type": "functoin"})] {
        one(document(json!([broken, read]), json!([edge("a", "read")])));
    }
    let each = json!({"id": "a", "type": "map", "do": {"type": "function", "fn": "local.echo", "inputs": {"value": "${item.x}"}}});
    assert_eq!(one(document(json!([each]), json!([]))), ("missing_member", "/nodes/0/over".to_owned()));
    let each = json!({"id": "a", "type": "map", "over": "${1 +}", "do": {"type": "function", "fn": "local.echo", "inputs": {"value": "${item}"}}});
    assert_eq!(one(document(json!([each]), json!([]))).0, "invalid_expression");
    let child = json!({"id": "a", "type": "workflow", "workflow_id": "not a name"});
    assert_eq!(one(document(json!([child, read]), json!([edge("a", "read")]))).0, "invalid_id");
    // A schema is not asked about a value that has no expression.
    let upload =
        json!({"id": "a", "type": "function", "fn": "s3_upload", "inputs": {"bucket": "${(}", "key_template": "k"}});
    assert_eq!(one(document(json!([upload]), json!([]))).1, "/nodes/0/inputs/bucket");
}

#[test]
fn every_fault_of_one_template_and_one_expression_is_told() {
    let value = json!({
        "a": ["${1 +}", "${nodes.gone.outputs}", {"b": "${nope}"}],
        "c": "${run_id.x} and ${run_id.y}",
        "d": "${inputs.a && inputs.x && inputs.y || inputs.x}"
    });
    let mut made = document(json!([echo("n", value)]), json!([]));
    made["inputs"] = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": false});
    let problems = checked(&made.to_string()).map(drop).unwrap_err();
    let said: Vec<(&str, &str)> =
        problems.iter().map(|problem| (problem.path.as_str(), problem.reason.as_str())).collect();
    let at = |path: &str| said.iter().filter(|(found, _)| *found == format!("/nodes/0/inputs/value{path}")).count();
    assert_eq!([at("/a/0"), at("/a/1"), at("/a/2/b"), at("/c"), at("/d"), said.len()], [1, 1, 1, 2, 3, 8], "{said:?}");
}

#[test]
fn faults_are_limited_in_number() {
    let nodes: Vec<Value> =
        (0..200).map(|at| json!({"id": format!("n{at}"), "type": "function", "fn": "gone"})).collect();
    let found = told(&document(json!(nodes), json!([])).to_string());
    assert_eq!(found.len(), PROBLEMS_MAX);
    assert!(found.is_sorted());
    let many: Vec<String> = (0..200).map(|_| "${1 +}".to_owned()).collect();
    assert_eq!(told(&document(json!([echo("n", json!(many))]), json!([])).to_string()).len(), PROBLEMS_MAX);
    let numbers: Vec<String> = (0..5_000).map(|at| format!("\"a{at}\": 1e999")).collect();
    assert_eq!(told(&format!("{{{}}}", numbers.join(","))).len(), PROBLEMS_MAX);
}

/// A long name is part of the pointer to everything inside it.
#[test]
fn a_long_name_around_many_values_costs_no_more_than_its_length() {
    let items: Vec<Value> = (0..40_000).map(|at| if at % 200 == 0 { json!("${run_id}") } else { json!(at) }).collect();
    let name = "x".repeat(1_000_000);
    let value = json!({ name.as_str(): items, "last": "${run_id.x}" });
    let found = told(&document(json!([echo("n", value)]), json!([])).to_string());
    assert_eq!((found.len(), found[0].2, found[0].3.as_str()), (1, "type_mismatch", "/nodes/0/inputs/value/last"));
}
