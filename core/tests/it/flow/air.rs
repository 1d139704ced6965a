//! AIR documents: what is accepted, what is rejected and where, and the compiled graph.

use super::given::{compiled, document, echo, problem, problems, tools};
use chimera_core::flow::air::{Body, Document, Join, SCHEMA, WorkflowInfo, compile, parse};
use chimera_core::json::schema::Schema;
use serde_json::{Value, json};

fn chain(count: usize) -> Value {
    let value = |at: usize| if at == 0 { json!(0) } else { json!(format!("${{nodes.n{}.outputs.value}}", at - 1)) };
    let nodes: Vec<Value> = (0..count).map(|at| echo(&format!("n{at}"), value(at))).collect();
    let edges: Vec<Value> =
        (1..count).map(|at| json!({"from": format!("n{}", at - 1), "to": format!("n{at}")})).collect();
    document(json!(nodes), json!(edges))
}

/// A document that uses every feature of the format.
fn whole() -> Value {
    json!({
        "air_version": "1.0", "workflow_id": "whole", "description": "Everything", "timeout_seconds": 600,
        "inputs": {"type": "object", "properties": {"urls": {"type": "array", "items": {"type": "string"}}}},
        "outputs": {"said": "${nodes.say.outputs.value}"},
        "nodes": [
            {"id": "say", "type": "function", "fn": "local.echo", "inputs": {"value": 1}, "cache": {"ttl_seconds": 60},
             "retry": {"max": 2}, "timeout_seconds": 5, "delay_seconds": 3, "requires_approval": {"approvals_needed": 2}},
            {"id": "ask", "type": "hitl", "prompt": "Go on with ${nodes.say.outputs.value}?", "show": {"v": "${nodes.say.outputs}"},
             "approval": {"approvers": ["user:*"], "other_than_requester": true, "expires_seconds": 3600}},
            {"id": "each", "type": "map", "over": "${inputs.urls}", "max_parallel": 4,
             "do": {"type": "function", "fn": "local.echo", "inputs": {"message": "${item}"}}},
            {"id": "child", "type": "workflow", "workflow_id": "whole", "inputs": {"urls": []}},
            {"id": "end", "type": "function", "fn": "local.echo", "inputs": {"value": null}, "join": "any"}
        ],
        "edges": [
            {"from": "say", "to": "ask"}, {"from": "say", "to": "each"}, {"from": "ask", "to": "child"},
            {"from": "each", "to": "end"}, {"from": "child", "to": "end", "condition": "${nodes.child.outputs.success}"}
        ]
    })
}

#[test]
fn a_document_is_read_as_it_was_written_and_written_as_it_is_read() {
    let graph = compiled(whole()).unwrap();
    assert_eq!(graph.document.to_value(), whole());
    assert_eq!(parse(&whole().to_string()).unwrap(), graph.document);
    assert_eq!(graph.roots().collect::<Vec<_>>(), [0]);
    assert_eq!(graph.sinks().collect::<Vec<_>>(), [4]);
    assert_eq!(graph.position("each"), Some(2));
    assert_eq!(graph.nodes[4].node.join, Join::Any);
    assert_eq!((graph.nodes[0].outgoing.clone(), graph.nodes[4].incoming.clone()), (vec![0, 1], vec![3, 4]));
    assert!(graph.nodes[2].over.is_some() && graph.nodes[2].tool.is_some());
    assert!(graph.unsupported_node().is_none());
}

#[test]
fn what_means_the_same_has_one_digest() {
    let plain = compiled(document(json!([echo("a", json!(1))]), json!([]))).unwrap();
    let mut node = echo("a", json!(1.0));
    node.as_object_mut().unwrap().extend([
        ("join".to_owned(), json!("all")),
        ("delay_seconds".to_owned(), json!(0)),
        ("requires_approval".to_owned(), json!(false)),
    ]);
    let spelled = compiled(document(json!([node]), json!([]))).unwrap();
    assert_eq!(plain.digest, spelled.digest);
    assert_ne!(plain.digest, compiled(document(json!([echo("a", json!(2))]), json!([]))).unwrap().digest);
}

#[test]
fn what_the_format_does_not_have_is_refused_where_it_stands() {
    let node = |change: Value| {
        let mut node = echo("a", json!(1));
        node.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        document(json!([node]), json!([]))
    };
    for (document, code, path, reason) in [
        (node(json!({"retries": 3})), "unknown_member", "/nodes/0/retries", "unknown member \"retries\""),
        (
            node(json!({"timeout_second": 3})),
            "unknown_member",
            "/nodes/0/timeout_second",
            "(did you mean timeout_seconds?)",
        ),
        (node(json!({"retry": {"max": 4}})), "invalid_value", "/nodes/0/retry/max", "from 0 to 3"),
        (node(json!({"retry": {"count": 1}})), "unknown_member", "/nodes/0/retry/count", "unknown member"),
        (node(json!({"type": "functoin"})), "invalid_value", "/nodes/0/type", "(did you mean function?)"),
        (node(json!({"join": "some"})), "invalid_value", "/nodes/0/join", "\"all\" or \"any\""),
        (node(json!({"id": "9a"})), "invalid_id", "/nodes/0/id", "does not begin with a digit"),
        (node(json!({"id": "a-b"})), "invalid_id", "/nodes/0/id", "letters, digits"),
        (node(json!({"id": "CURRENT_NODE"})), "invalid_id", "/nodes/0/id", "reserved"),
        (node(json!({"id": 5})), "invalid_value", "/nodes/0/id", "must be a string, not a number"),
        (node(json!({"inputs": []})), "invalid_value", "/nodes/0/inputs", "must be an object, not an array"),
        (node(json!({"timeout_seconds": -1})), "invalid_value", "/nodes/0/timeout_seconds", "an integer"),
        (
            node(json!({"requires_approval": {"approvals_needed": 11}})),
            "invalid_value",
            "/nodes/0/requires_approval/approvals_needed",
            "from 1 to 10",
        ),
        (json!([]), "invalid_value", "", "expected an object, found an array"),
        (document(json!([]), json!([])), "invalid_value", "/nodes", "at least one node"),
        (document(json!([5]), json!([])), "invalid_value", "/nodes/0", "expected an object"),
        (
            json!({"air_version": "2.0", "workflow_id": "w", "nodes": [echo("a", json!(1))]}),
            "invalid_value",
            "/air_version",
            "must be",
        ),
        (
            json!({"air_version": "1.0", "workflow_id": "a b", "nodes": [echo("a", json!(1))]}),
            "invalid_id",
            "/workflow_id",
            "letters",
        ),
        (node(json!({"id": ""})), "invalid_value", "/nodes/0/id", "must not be empty"),
        (node(json!({"type": ""})), "invalid_value", "/nodes/0/type", "must not be empty"),
        (node(json!({"fn": ""})), "invalid_value", "/nodes/0/fn", "must not be empty"),
        (
            json!({"air_version": "", "workflow_id": "w", "nodes": [echo("a", json!(1))]}),
            "invalid_value",
            "/air_version",
            "must not be empty",
        ),
        (json!({"air_version": "1.0", "workflow_id": "w"}), "missing_member", "/nodes", "nodes is missing"),
    ] {
        let told = problems(document.clone());
        let found = told.iter().find(|(found, place, _)| (*found, place.as_str()) == (code, path));
        assert!(found.is_some_and(|(.., told)| told.contains(reason)), "{document}: {told:?}");
    }
}

#[test]
fn a_text_that_is_not_json_or_too_large_is_refused() {
    assert_eq!(parse("{").unwrap_err()[0].code.as_str(), "not_json");
    assert_eq!(parse(r#"{"a": 1, "a": 2}"#).unwrap_err()[0].code.as_str(), "not_json");
    assert_eq!(parse(&" ".repeat(3 * 1024 * 1024)).unwrap_err()[0].code.as_str(), "too_large");
    let many = document(json!((0..10_001).map(|at| echo(&format!("n{at}"), json!(1))).collect::<Vec<_>>()), json!([]));
    assert_eq!(problem(many).0, "too_large");
}

#[test]
fn edges_lead_from_one_known_node_to_another_and_only_once() {
    let with = |edges: Value| document(json!([echo("first", json!(1)), echo("second", json!(2))]), edges);
    for (edges, code, path) in [
        (json!([{"from": "first", "to": "secnod"}]), "unknown_node", "/edges/0/to"),
        (json!([{"from": "CURRENT_NODE", "to": "second"}]), "unknown_node", "/edges/0/from"),
        (json!([{"from": "first", "to": "first"}]), "self_edge", "/edges/0"),
        (
            json!([{"from": "first", "to": "second"}, {"from": "first", "to": "second", "condition": "${true}"}]),
            "duplicate_edge",
            "/edges/1",
        ),
    ] {
        let (found, place, _) = problem(with(edges.clone()));
        assert_eq!((found, place.as_str()), (code, path), "{edges}");
    }
    let twice = document(json!([echo("a", json!(1)), echo("a", json!(2))]), json!([]));
    assert_eq!(
        problem(twice),
        ("duplicate_id", "/nodes/1/id".into(), "duplicate node id a, already used at /nodes/0".into())
    );
}

#[test]
fn a_cycle_is_named_by_its_path_and_what_hangs_on_it_is_unreachable() {
    let nodes: Vec<Value> = ["start", "a", "b", "c", "lost"].iter().map(|id| echo(id, json!(1))).collect();
    let edges = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "lost")].map(|(from, to)| json!({"from": from, "to": to}));
    let told = problems(document(json!(nodes), json!(edges)));
    assert_eq!(told.len(), 2, "{told:?}");
    let (code, path, reason) = &told[0];
    assert_eq!((*code, path.as_str()), ("cycle", "/nodes/2"));
    assert_eq!(reason, "cycle: b → c → a → b");
    assert_eq!((told[1].0, told[1].1.as_str()), ("unreachable", "/nodes/4"));
}

#[test]
fn every_separate_cycle_is_named() {
    let nodes: Vec<Value> = ["a", "b", "between", "c", "d", "e"].iter().map(|id| echo(id, json!(1))).collect();
    let edges = [("a", "b"), ("b", "a"), ("b", "between"), ("between", "c"), ("c", "d"), ("d", "c"), ("d", "e")];
    let edges = edges.map(|(from, to)| json!({"from": from, "to": to}));
    let told = problems(document(json!(nodes), json!(edges)));
    let said: Vec<(&str, &str)> = told.iter().map(|(code, path, _)| (*code, path.as_str())).collect();
    let expected =
        [("cycle", "/nodes/1"), ("cycle", "/nodes/4"), ("unreachable", "/nodes/2"), ("unreachable", "/nodes/5")];
    assert_eq!(said, expected, "{told:?}");
}

#[test]
fn references_look_upstream_only() {
    let nodes =
        |value: &str| json!([echo("a", json!(1)), echo("b", json!(value)), echo("c", json!(1)), echo("d", json!(1))]);
    let edges = json!([{"from": "a", "to": "b"}, {"from": "b", "to": "c"}, {"from": "a", "to": "d"}]);
    compiled(document(nodes("${nodes.a.outputs.value}"), edges.clone())).unwrap();
    for (value, reason) in [
        ("${nodes.c.outputs.value}", "c is not upstream of b: no path leads from it to here"),
        ("${nodes.d.outputs.value}", "d is not upstream of b: no path leads from it to here"),
        ("${nodes.b.outputs.value}", "b can't see its own outputs"),
        ("${nodes.aa.outputs.value}", "there is no node aa"),
    ] {
        let told = problems(document(nodes(value), edges.clone()));
        assert_eq!(told[0], ("unknown_reference", "/nodes/1/inputs/value".into(), reason.to_owned()), "{value}");
    }
}

#[test]
fn unknown_tools_and_workflows_are_refused_with_a_guess() {
    let tool = |name: &str| document(json!([{"id": "a", "type": "function", "fn": name}]), json!([]));
    let told = problem(tool("local.ehco"));
    assert_eq!(
        told,
        ("unknown_tool", "/nodes/0/fn".into(), "there is no tool \"local.ehco\" (did you mean local.echo?)".into())
    );
    let child = |inputs: Value| {
        let nodes = json!([
            {"id": "a", "type": "workflow", "workflow_id": "child", "inputs": inputs},
            echo("b", json!("${nodes.a.outputs.total}"))
        ]);
        document(nodes, json!([{"from": "a", "to": "b"}]))
    };
    assert_eq!(problem(child(json!({}))).0, "unknown_workflow");
    let mut known = document(json!([echo("x", json!(1))]), json!([]));
    known["inputs"] = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false});
    known["outputs"] = json!({"total": "${nodes.x.outputs.value}"});
    let catalog = tools().with_workflow("child", compiled(known).unwrap().info());
    let with = |inputs: Value| compile(Document::from_value(child(inputs)).unwrap(), &catalog);
    with(json!({"n": 1})).unwrap();
    assert_eq!(with(json!({})).unwrap_err()[0].code.as_str(), "missing_input");
    assert_eq!(with(json!({"n": "${run_id}"})).unwrap_err()[0].code.as_str(), "type_mismatch");
    let other = tools().with_workflow("child", WorkflowInfo::Exists);
    compile(Document::from_value(child(json!({"what": 1}))).unwrap(), &other).unwrap();
}

#[test]
fn a_cache_is_only_for_tools_that_change_nothing() {
    let node = json!({"id": "a", "type": "function", "fn": "slack_post", "inputs": {"text": "x"}, "cache": {}});
    assert_eq!(problem(document(json!([node]), json!([]))).0, "not_cacheable");
}

#[test]
fn agents_and_swarms_are_read_and_named_as_not_yet_supported() {
    let nodes = json!([
        echo("a", json!(1)),
        {"id": "b", "type": "agent", "agent": "researcher", "inputs": {"topic": "${nodes.a.outputs.value}"}, "budget": {"usd": 1}},
        {"id": "c", "type": "swarm", "goal": "win"}
    ]);
    let edges = json!([{"from": "a", "to": "b"}, {"from": "b", "to": "c"}]);
    let graph = compiled(document(nodes.clone(), edges.clone())).unwrap();
    assert_eq!(graph.unsupported_node().unwrap().id, "b");
    assert_eq!(graph.unsupported_problem().unwrap().code.as_str(), "unsupported_node");
    assert!(matches!(&graph.nodes[1].node.body, Body::Agent(members) if members.contains_key("budget")));
    assert_eq!(graph.document.to_value()["nodes"], nodes);
    let goalless = document(json!([{"id": "c", "type": "swarm"}]), json!([]));
    assert_eq!(problem(goalless).1, "/nodes/0/goal");
    let agent = json!([{"id": "b", "type": "agent", "agent": "x", "inputs": {"t": "${nodes.z.outputs}"}}]);
    assert_eq!(problem(document(agent, json!([]))).0, "unknown_reference");
}

#[test]
fn the_schema_of_the_inputs_must_be_one() {
    let mut made = document(json!([echo("a", json!(1))]), json!([]));
    made["inputs"] = json!({"type": "strnig"});
    assert_eq!(problem(made).0, "invalid_schema");
}

#[test]
fn ten_thousand_nodes_compile() {
    let graph = compiled(chain(10_000)).unwrap();
    assert_eq!((graph.nodes.len(), graph.edges.len()), (10_000, 9_999));
}

/// The maximum number of nodes and edges, with references that have no direct edge.
#[test]
fn a_dense_graph_with_far_references_compiles() {
    let count = 10_000;
    let value = |at: usize| if at < 40 { json!(0) } else { json!(format!("${{nodes.n{}.outputs.value}}", at - 37)) };
    let nodes: Vec<Value> = (0..count).map(|at| echo(&format!("n{at}"), value(at))).collect();
    let steps =
        |at: usize| [1, 2, 3, 5, 8].into_iter().filter(move |step| *step <= at).map(move |step| (at - step, at));
    let edges =
        (0..count).flat_map(steps).map(|(from, to)| json!({"from": format!("n{from}"), "to": format!("n{to}")}));
    let graph = compiled(document(json!(nodes), edges.collect())).unwrap();
    assert!(graph.edges.len() > 49_000);
}

/// The published schema accepts and rejects the same documents as the parser.
#[test]
fn the_published_schema_agrees_with_the_reader() {
    let schema = Schema::compile(serde_json::from_str(SCHEMA).unwrap()).unwrap();
    schema.check(&whole()).unwrap();
    schema.check(&chain(3)).unwrap();
    for broken in [
        json!({"air_version": "1.0", "workflow_id": "w", "nodes": []}),
        document(json!([{"id": "9", "type": "function", "fn": "x"}]), json!([])),
        document(json!([{"id": "CURRENT_NODE", "type": "function", "fn": "x"}]), json!([])),
        document(json!([{"id": "a", "type": "function", "fn": "x", "retries": 1}]), json!([])),
        document(json!([{"id": "a", "type": "function"}]), json!([])),
        document(json!([{"id": "a", "type": "map", "over": [], "do": {"type": "hitl"}}]), json!([])),
        document(json!([{"id": "a", "type": "swarm"}]), json!([])),
        document(json!([{"id": "a", "type": "function", "fn": "x", "retry": {"max": 9}}]), json!([])),
        document(json!([echo("a", json!(1))]), json!([{"from": "a"}])),
    ] {
        assert!(schema.check(&broken).is_err(), "{broken}");
        assert!(Document::from_value(broken.clone()).is_err(), "{broken}");
    }
}
