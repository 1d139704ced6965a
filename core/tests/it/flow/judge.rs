//! Judges in a document: what is accepted, what is written back, and where each fault is.

use super::given::tools;
use chimera_core::flow::air::{DocumentProblem, Graph, SCHEMA, Source, WorkflowInfo, parse};
use chimera_core::json::Position;
use chimera_core::json::schema::Schema;
use serde_json::{Value, json};

fn checked(text: &str) -> Result<Graph, Vec<DocumentProblem>> {
    Source::read(text).compile(&tools().with_workflow("child", WorkflowInfo::Exists))
}

const BROKEN: &str = r#"{
  "air_version": "1.0", "workflow_id": "w", "log_executions": {"agent_type": "boss"},
  "nodes": [
    {"id": "a", "type": "function", "fn": "local.summarize", "inputs": {"text": "${output.x}", "sentences": "${judge.rejectoins}"},
     "judge": {"schema": {"type": "strnig"}, "bytes_max": 0, "retries": 4, "on_exhausted": "giveup", "colour": 1,
      "checks": [
        {"require": "${size(output.sumary) < 9}"},
        {"require": "${output.sentences}", "on_fail": "shout"},
        {"require": "${input.text == nodes.b.outputs}"},
        {"require": "${output.summary == 'x'} and more"},
        {"message": "no condition"}
      ]}},
    {"id": "b", "type": "function", "fn": "s3_upload", "inputs": {"bucket": "x", "key_template": "y"},
     "judge": {"checks": [{"require": "${output.success}"}], "retries": 1}},
    {"id": "c", "type": "workflow", "workflow_id": "child", "judge": {"bytes_max": 10, "retries": 1}},
    {"id": "d", "type": "map", "over": [1], "do": {"type": "function", "fn": "local.echo", "inputs": {"value": "${item}"},
     "judge": {}}},
    {"id": "e", "type": "hitl", "judge": {"bytes_max": 1}}
  ]
}
"#;

#[test]
fn every_fault_of_a_judge_is_told_with_its_place() {
    let problems = checked(BROKEN).map(drop).unwrap_err();
    let row = |problem: &DocumentProblem| {
        let Position { line, .. } = problem.position.expect("every problem has a position");
        (line, problem.code.as_str(), problem.path.clone())
    };
    let found: Vec<_> = problems.iter().map(row).collect();
    for expected in [
        (2, "invalid_value", "/log_executions/agent_type"),
        (4, "unknown_reference", "/nodes/0/inputs/text"),
        (4, "unknown_reference", "/nodes/0/inputs/sentences"),
        (5, "invalid_schema", "/nodes/0/judge/schema"),
        (5, "invalid_value", "/nodes/0/judge/bytes_max"),
        (5, "invalid_value", "/nodes/0/judge/retries"),
        (5, "invalid_value", "/nodes/0/judge/on_exhausted"),
        (5, "unknown_member", "/nodes/0/judge/colour"),
        (7, "unknown_reference", "/nodes/0/judge/checks/0/require"),
        (8, "type_mismatch", "/nodes/0/judge/checks/1/require"),
        (8, "invalid_value", "/nodes/0/judge/checks/1/on_fail"),
        (9, "unknown_reference", "/nodes/0/judge/checks/2/require"),
        (10, "invalid_expression", "/nodes/0/judge/checks/3/require"),
        (11, "missing_member", "/nodes/0/judge/checks/4/require"),
        (14, "unknown_reference", "/nodes/1/judge/checks/0/require"),
        (14, "invalid_value", "/nodes/1/judge/retries"),
        (15, "invalid_value", "/nodes/2/judge/retries"),
        (17, "missing_member", "/nodes/3/do/judge"),
        (18, "unknown_member", "/nodes/4/judge"),
    ] {
        let (line, code, path) = expected;
        assert!(found.contains(&(line, code, path.to_owned())), "{expected:?} is missing in {found:#?}");
    }
    let told = |path: &str| problems.iter().find(|problem| problem.path == path).map(|problem| problem.reason.clone());
    assert_eq!(
        told("/nodes/1/judge/checks/0/require").unwrap(),
        "output is not known here: calls of s3_upload are judged before they are sent"
    );
    assert_eq!(told("/nodes/0/inputs/text").unwrap(), "output is only known in the checks of a judge");
}

fn judged(judge: &Value) -> Value {
    json!({
        "air_version": "1.0", "workflow_id": "w", "edges": [],
        "nodes": [
            {"id": "a", "type": "function", "fn": "local.echo", "inputs": {"value": "${judge.feedback}"}, "judge": judge},
            {"id": "m", "type": "map", "over": [1], "do": {
                "type": "function", "fn": "local.echo", "inputs": {"value": "${item}"}, "judge": judge,
            }},
        ],
    })
}

#[test]
fn a_judge_is_written_as_it_was_read_without_defaults() {
    let judge = json!({
        "schema": {"type": "object"}, "bytes_max": 100, "retries": 2, "on_exhausted": "escalate",
        "checks": [{"require": "${output.value != null}", "message": "empty", "on_fail": "escalate"}],
        "approval": {"other_than_requester": true},
    });
    let document = judged(&judge);
    assert_eq!(parse(&document.to_string()).unwrap().to_value(), document);
    let defaults = json!({"bytes_max": 100, "retries": 0, "on_exhausted": "fail", "checks": [], "approval": {}});
    assert_eq!(parse(&judged(&defaults).to_string()).unwrap().to_value(), judged(&json!({"bytes_max": 100})));
    let logged = |logging: Value| {
        let mut document = judged(&json!({"bytes_max": 1}));
        document["log_executions"] = logging;
        parse(&document.to_string()).unwrap().to_value()["log_executions"].clone()
    };
    assert_eq!(logged(json!({"agent_type": "worker", "execution_type": "task_execution"})), json!({}));
    assert_eq!(logged(json!({"agent_type": "planner"})), json!({"agent_type": "planner"}));
}

/// Two documents that differ only in their judge are two workflows.
#[test]
fn a_judge_is_part_of_the_digest() {
    let digest = |judge: Value| checked(&judged(&judge).to_string()).unwrap().digest;
    assert_ne!(digest(json!({"bytes_max": 1})), digest(json!({"bytes_max": 2})));
}

#[test]
fn the_schema_for_editors_accepts_and_refuses_the_same_judges() {
    let schema = Schema::compile(serde_json::from_str(SCHEMA).unwrap()).unwrap();
    for (judge, accepted) in [
        (json!({"bytes_max": 1}), true),
        (json!({"checks": [{"require": "${true}"}]}), true),
        (json!({"schema": {}, "retries": 3, "on_exhausted": "fail"}), true),
        (json!({}), false),
        (json!({"checks": []}), false),
        (json!({"checks": [{}]}), false),
        (json!({"bytes_max": 0}), false),
        (json!({"bytes_max": 1, "retries": 4}), false),
        (json!({"bytes_max": 1, "on_exhausted": "no"}), false),
        (json!({"bytes_max": 1, "other": 1}), false),
    ] {
        let document = judged(&judge);
        assert_eq!(schema.check(&document).is_ok(), accepted, "{judge}");
        assert_eq!(checked(&document.to_string()).is_ok(), accepted, "{judge}");
    }
}
