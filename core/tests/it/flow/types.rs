//! Type errors and unknown references are found before a run.

use super::given::{Tools, compiled, document, echo, problem, tools};
use chimera_core::flow::air::{Catalog, Document, WorkflowInfo, compile};
use chimera_core::tool::Spec;
use serde_json::{Value, json};
use std::sync::Arc;

/// A workflow whose second node has the expression; the first one summarizes.
fn with(expression: &str) -> Value {
    let first = json!({"id": "sum", "type": "function", "fn": "local.summarize", "inputs": {"text": "x"}});
    let nodes = json!([first, echo("say", json!(format!("${{{expression}}}")))]);
    let mut made = document(nodes, json!([{"from": "sum", "to": "say"}]));
    made["inputs"] = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string"}, "count": {"type": "integer"}, "maybe": {"type": ["string", "null"]},
            "rows": {"type": "array", "items": {"type": "object", "properties": {"id": {"type": "integer"}}, "additionalProperties": false}},
            "open": {"type": "object"}, "any": true
        },
        "additionalProperties": false
    });
    made
}

#[test]
fn what_must_be_wrong_is_refused() {
    for (expression, code, reason) in [
        ("inputs.nmae", "unknown_reference", "there is no member nmae (did you mean name?)"),
        ("inputs.name.first", "type_mismatch", "string has no member first"),
        ("inputs.name + inputs.count", "type_mismatch", "cannot apply + to string and integer"),
        ("inputs.name == inputs.count", "type_mismatch", "string == integer: the two types are never equal"),
        ("inputs.count && true", "type_mismatch", "&& needs a boolean, not integer"),
        ("!inputs.name", "type_mismatch", "! needs a boolean, not string"),
        ("-inputs.name", "type_mismatch", "cannot apply - to string"),
        ("inputs.name < 3", "type_mismatch", "cannot apply < to string and integer"),
        ("inputs.name in inputs.count", "type_mismatch", "cannot apply in to string and integer"),
        ("inputs.rows.map(r, r.idd)", "unknown_reference", "there is no member idd (did you mean id?)"),
        ("inputs.rows.filter(r, r.id)", "type_mismatch", "filter needs a boolean, not integer"),
        ("inputs.name.map(r, r)", "type_mismatch", "a macro iterates over a list, not over string"),
        ("inputs.rows['x']", "type_mismatch", "array of object has no member x"),
        ("inputs.count.startsWith('x')", "type_mismatch", "startsWith takes a string, not integer"),
        ("size(inputs.count)", "type_mismatch", "size can't take integer"),
        ("inputs.name ? 1 : 2", "type_mismatch", "? needs a boolean, not string"),
        ("nodes.sum.outputs.sumary", "unknown_reference", "there is no member sumary (did you mean summary?)"),
        ("nodes.sum.outputs.summary * 2", "type_mismatch", "cannot apply * to string and integer"),
        ("nodes.sum.outputs.success == 'yes'", "type_mismatch", "boolean == string: the two types are never equal"),
        ("nodes.smu.outputs.summary", "unknown_reference", "there is no node smu (did you mean sum?)"),
        ("item", "unknown_reference", "item is only known inside a map"),
    ] {
        let (found, path, told) = problem(with(expression));
        assert_eq!((found, path.as_str()), (code, "/nodes/1/inputs/value"), "{expression}");
        assert!(told.contains(reason), "{expression}: {told}");
    }
}

#[test]
fn what_may_be_right_is_let_through() {
    for expression in [
        "inputs.maybe == null ? 'none' : inputs.maybe + '!'",
        "inputs.open.anything.at[0].all",
        "inputs.any + 1 > 2 || inputs.any == 'x'",
        "inputs.count * 2.5",
        "inputs.rows.map(r, r.id + 1)[0] > 3",
        "inputs.rows.exists(r, r.id == inputs.count)",
        "nodes.sum.outputs.sentences.map(s, s.size())",
        "nodes.sum.outputs.success && nodes.sum.outputs.error == null",
        "nodes.sum.outputs.error.code",
        "has(nodes.sum.outputs.summary)",
        "run_id + inputs.name",
        "inputs.count > 1 ? inputs.name : null",
    ] {
        compiled(with(expression)).unwrap_or_else(|problems| panic!("{expression}: {problems:?}"));
    }
}

#[test]
fn a_condition_is_a_boolean() {
    let with = |condition: &str| {
        let nodes = json!([echo("a", json!(1)), echo("b", json!(2))]);
        document(nodes, json!([{"from": "a", "to": "b", "condition": condition}]))
    };
    compiled(with("${nodes.a.outputs.success == true}")).unwrap();
    compiled(with("${nodes.a.outputs.value}")).unwrap();
    compiled(with("${true}")).unwrap();
    let (code, path, reason) = problem(with("${run_id}"));
    assert_eq!(
        (code, path.as_str(), reason.as_str()),
        ("type_mismatch", "/edges/0/condition", "a condition must be a boolean, not string")
    );
    assert_eq!(problem(with("nodes.a.outputs.success")).0, "invalid_expression");
    assert_eq!(problem(with("x ${true}")).0, "invalid_expression");
    assert_eq!(problem(with("${nodes.b.outputs.success}")).2, "b is not upstream of a: no path leads from it to here");
}

#[test]
fn inputs_fit_the_schema_of_the_tool() {
    let with = |inputs: Value| {
        document(json!([{"id": "a", "type": "function", "fn": "local.summarize", "inputs": inputs}]), json!([]))
    };
    compiled(with(json!({"text": "x", "sentences": 3, "dry_run": true}))).unwrap();
    for (inputs, code, path, reason) in [
        (json!({}), "missing_input", "text", "the input text is missing"),
        (json!({"sentences": "${index}"}), "missing_input", "text", "the input text is missing"),
        (
            json!({"text": "x", "sentence": 3}),
            "unknown_input",
            "sentence",
            "there is no input sentence (did you mean sentences?)",
        ),
        (
            json!({"text": "${run_id}", "sentence": 3}),
            "unknown_input",
            "sentence",
            "there is no input sentence (did you mean sentences?)",
        ),
        (json!({"text": ""}), "invalid_input", "text", "value is shorter than 1 character"),
        (
            json!({"text": "${run_id}", "sentences": 99}),
            "invalid_input",
            "sentences",
            "value is greater than the maximum of 50",
        ),
        (json!({"text": 5}), "invalid_input", "text", "value is not of type \"string\""),
        (
            json!({"text": "x", "sentences": "${run_id}"}),
            "type_mismatch",
            "sentences",
            "expected integer, found string",
        ),
        (
            json!({"text": "x", "sentences": "${run_id} "}),
            "type_mismatch",
            "sentences",
            "expected integer, found string",
        ),
        (json!({"text": ["${run_id}"]}), "type_mismatch", "text", "expected string, found array"),
        (json!({"text": {"a": "${run_id}"}}), "type_mismatch", "text", "expected string, found object"),
    ] {
        let all = super::given::problems(with(inputs.clone()));
        let found = all.iter().find(|(found, ..)| *found == code);
        let (_, place, told) = found.unwrap_or_else(|| panic!("{inputs}: {all:?}"));
        assert_eq!((place.as_str(), told.as_str()), (&*format!("/nodes/0/inputs/{path}"), reason), "{inputs}");
    }
}

#[test]
fn a_map_goes_over_a_list_and_knows_its_item() {
    let with = |over: Value, value: &str| {
        let item = json!({"type": "function", "fn": "local.echo", "inputs": {"value": value}});
        let mut made = document(json!([{"id": "m", "type": "map", "over": over, "do": item}]), json!([]));
        made["inputs"] = json!({"type": "object", "properties": {"n": {"type": "integer"}, "rows": {"type": "array", "items": {"type": "string"}}}});
        made
    };
    compiled(with(json!("${inputs.rows}"), "${item.size() + index}")).unwrap();
    compiled(with(json!(["a", "${run_id}"]), "${item.x}")).unwrap();
    assert_eq!(problem(with(json!("${inputs.n}"), "x")).2, "a map iterates over an array, not over integer");
    assert_eq!(problem(with(json!({"a": 1}), "x")).1, "/nodes/0/over");
    let (code, path, reason) = problem(with(json!("${inputs.rows}"), "${item.x}"));
    assert_eq!(
        (code, path.as_str(), reason.as_str()),
        ("type_mismatch", "/nodes/0/do/inputs/value", "string has no member x")
    );
    assert_eq!(problem(with(json!("${[item]}"), "x")).0, "unknown_reference");
}

/// A workflow with one node of every type, and an echo of the expression behind them.
fn behind_every_node(expression: &str) -> Value {
    let item = json!({"type": "function", "fn": "local.summarize", "inputs": {"text": "${item}"}});
    let nodes = json!([
        {"id": "sum", "type": "function", "fn": "local.summarize", "inputs": {"text": "x"}},
        {"id": "dry", "type": "function", "fn": "local.summarize", "inputs": {"text": "x", "dry_run": true}},
        {"id": "fetch", "type": "function", "fn": "http.request", "inputs": {"url": "http://x"}},
        {"id": "ask", "type": "hitl"},
        {"id": "each", "type": "map", "over": ["a"], "do": item},
        {"id": "all", "type": "map", "over": ["a"], "do": {"type": "workflow", "workflow_id": "child"}},
        {"id": "child", "type": "workflow", "workflow_id": "child"},
        {"id": "plain", "type": "workflow", "workflow_id": "plain"},
        {"id": "own", "type": "workflow", "workflow_id": "w"},
        {"id": "old", "type": "workflow", "workflow_id": "exists"},
        {"id": "agent", "type": "agent", "agent": "x"},
        {"id": "swarm", "type": "swarm", "goal": "x"},
        echo("say", json!(format!("${{{expression}}}")))
    ]);
    let names: Vec<&str> = nodes.as_array().unwrap().iter().map(|node| node["id"].as_str().unwrap()).collect();
    let edges = names.windows(2).map(|pair| json!({"from": pair[0], "to": pair[1]})).collect();
    document(nodes, edges)
}

/// Code and reason of the only problem, if there is one.
fn told(expression: &str) -> Option<(&'static str, String)> {
    let plain = document(json!([{"id": "last", "type": "hitl"}]), json!([]));
    let mut typed = document(json!([echo("x", json!(1))]), json!([]));
    typed["outputs"] = json!({"total": "${1 + 1}", "rows": ["${run_id}"], "deep": {"id": "${run_id}"}, "any": "${nodes.x.outputs.value}"});
    let catalog = tools()
        .with_workflow("child", compiled(typed).unwrap().info())
        .with_workflow("plain", compiled(plain).unwrap().info())
        .with_workflow("exists", WorkflowInfo::Exists);
    let document = Document::from_value(behind_every_node(expression)).unwrap();
    let problems = compile(document, &catalog).err()?;
    assert_eq!(problems.len(), 1, "{expression}: {problems:?}");
    Some((problems[0].code.as_str(), problems[0].reason.clone()))
}

#[test]
fn the_outputs_of_every_type_of_node_are_known() {
    for expression in [
        "nodes.sum.outputs.summary + nodes.sum.outputs.error.message",
        "nodes.sum.outputs.error.details.anything.at.all",
        "nodes.dry.outputs.would_execute",
        "nodes.fetch.outputs.whatever",
        "nodes.ask.outputs.decision == 'approve' && nodes.ask.outputs.approved_by[0] == 'user_ann'",
        "nodes.ask.outputs.notes + '!'",
        "has(nodes.ask.outputs.notes) && nodes.ask.outputs.success",
        "nodes.each.outputs.items.map(i, i.summary)[0] + '!'",
        "nodes.each.outputs.items[0].success && nodes.each.outputs.success",
        "nodes.all.outputs.items[0].total + 1",
        "nodes.child.outputs.total + 1",
        "nodes.child.outputs.rows[0] + nodes.child.outputs.deep.id",
        "nodes.child.outputs.any.x",
        "nodes.child.outputs.success ? nodes.child.outputs.error.code : 'x'",
        "nodes.plain.outputs.last.approved_by[0]",
        "nodes.own.outputs.any.x",
        "nodes.old.outputs.any.x",
        "nodes.agent.outputs.any.x",
        "nodes.swarm.outputs.any.x",
    ] {
        assert_eq!(told(expression), None, "{expression}");
    }
    let (reference, mismatch) = ("unknown_reference", "type_mismatch");
    for (expression, code, reason) in [
        ("nodes.sum.outputs.sucess", reference, "there is no member sucess (did you mean success?)"),
        ("nodes.sum.outputs.eror", reference, "there is no member eror (did you mean error?)"),
        ("nodes.sum.outputs.error.mesage", reference, "there is no member mesage (did you mean message?)"),
        ("nodes.ask.outputs.approved", reference, "there is no member approved (did you mean approved_by?)"),
        ("has(nodes.ask.outputs.approved)", reference, "there is no member approved (did you mean approved_by?)"),
        ("nodes.ask.outputs.approved_by + '!'", mismatch, "cannot apply + to array of string and string"),
        ("nodes.ask.outputs.decision == true", mismatch, "string == boolean: the two types are never equal"),
        ("nodes.each.outputs.item", reference, "there is no member item (did you mean items?)"),
        ("nodes.each.outputs[0]", mismatch, "object can't be indexed by integer"),
        ("nodes.each.outputs.items[0].sumary", reference, "there is no member sumary (did you mean summary?)"),
        ("nodes.each.outputs.items[0].error", reference, "there is no member error"),
        ("nodes.all.outputs.items[0].totl", reference, "there is no member totl (did you mean total?)"),
        ("nodes.child.outputs.totl", reference, "there is no member totl (did you mean total?)"),
        ("nodes.child.outputs.total + 'x'", mismatch, "cannot apply + to integer and string"),
        ("nodes.child.outputs.deep.di", reference, "there is no member di"),
        ("nodes.plain.outputs.last.approved", reference, "there is no member approved (did you mean approved_by?)"),
    ] {
        assert_eq!(told(expression), Some((code, reason.to_owned())), "{expression}");
    }
}

/// The tools, for a document that was stored.
struct Stored(Tools);

impl Catalog for Stored {
    fn tool(&self, name: &str) -> Option<Arc<Spec>> {
        self.0.tool(name)
    }

    fn workflow(&self, _: &str, _: Option<i64>) -> WorkflowInfo {
        WorkflowInfo::Exists
    }

    fn allows_placeholders(&self) -> bool {
        true
    }
}

/// Its runs go on, as they did when the outputs of these nodes were not known.
#[test]
fn a_stored_document_may_read_what_a_person_or_a_map_never_gives() {
    for expression in ["nodes.ask.outputs.approved", "nodes.each.outputs.item", "nodes.sum.outputs.error.x"] {
        let read = |catalog: &dyn Catalog| {
            compile(Document::from_value(behind_every_node(expression)).unwrap(), catalog).map(drop)
        };
        assert!(read(&Stored(tools())).is_ok(), "{expression}");
        assert!(told(expression).is_some(), "{expression}");
    }
}
