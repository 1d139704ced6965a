//! Patches of running graphs.

use super::given::{compiled, document, echo, tools};
use super::values::Run;
use chimera_core::flow::air::Graph;
use chimera_core::flow::patch::{Inverse, Patch, apply, diff, digest, inverse, revert};
use chimera_core::json::Digest32;
use serde_json::{Value, json};

/// The example of the intents specification, verbatim.
fn example() -> Value {
    json!({
        "patch_version": "0.1",
        "add_nodes": [
            {"id": "upload_to_s3", "type": "function", "fn": "s3_upload", "inputs": {"bucket": "acme", "key_template": "uploads/${run_id}.bin"}},
            {"id": "notify_email", "type": "function", "fn": "email_send", "inputs": {"to": "ops@acme.com", "subject": "Upload OK ${run_id}"}},
            {"id": "notify_slack", "type": "function", "fn": "slack_post", "inputs": {"channel_alias": "incidents", "text": "Upload FAILED ${run_id}"}}
        ],
        "add_edges": [
            {"from": "CURRENT_NODE", "to": "upload_to_s3"},
            {"from": "upload_to_s3", "to": "notify_email", "condition": "${nodes.upload_to_s3.outputs.success == true}"},
            {"from": "upload_to_s3", "to": "notify_slack", "condition": "${nodes.upload_to_s3.outputs.success == false}"}
        ],
        "justification": "Notify stakeholders after file upload"
    })
}

fn running() -> Graph {
    let nodes = json!([echo("parse", json!(1)), echo("review", json!(2)), echo("later", json!(3))]);
    compiled(document(nodes, json!([{"from": "parse", "to": "review"}, {"from": "review", "to": "later"}]))).unwrap()
}

fn patch(value: Value) -> Patch {
    Patch::from_value(value).unwrap()
}

/// Applies a patch while `review` is current and `parse` has completed; returns the first problem.
fn refused(value: Value) -> (&'static str, String) {
    let problems = match Patch::from_value(value) {
        Ok(patch) => apply(&running(), &patch, &["review"], &["parse"], &tools()).map(drop).unwrap_err(),
        Err(problems) => problems,
    };
    (problems[0].code.as_str(), problems[0].path.clone())
}

/// INTENT-030, INTENT-031, INTENT-032, INTENT-035
#[test]
fn the_example_adds_three_nodes_and_three_edges() {
    let patch = Patch::parse(&example().to_string()).unwrap();
    assert_eq!(patch.to_value(), example());
    let before = running();
    let after = apply(&before, &patch, &["review"], &["parse"], &tools()).unwrap();
    assert_eq!((after.nodes.len(), after.edges.len()), (6, 5));
    assert_eq!(after.document.edges[2].from, "review");
    assert_eq!(after.nodes[1].outgoing, [1, 2]);
    let shown = diff(&before, &after);
    assert_eq!(shown["nodes"]["added"].as_array().unwrap().len(), 3);
    assert_eq!(shown["edges"]["added"][0], json!({"from": "review", "to": "upload_to_s3"}));
    assert_eq!((&shown["nodes"]["removed"], &shown["edges"]["removed"]), (&json!([]), &json!([])));
    assert_ne!(shown["digest"]["before"], shown["digest"]["after"]);
}

/// INTENT-033, INTENT-034
#[test]
fn conditions_of_the_example_route_by_the_outcome_of_the_upload() {
    let after = apply(&running(), &patch(example()), &["review"], &["parse"], &tools()).unwrap();
    let routes = |outputs: Value| {
        let run = Run::default().node("upload_to_s3", outputs);
        [3, 4].map(|edge: usize| after.edges[edge].condition.as_ref().unwrap().render(&run).unwrap())
    };
    assert_eq!(routes(json!({"key": "k"})), [json!(true), json!(false)]);
    assert_eq!(routes(json!({"success": false, "error": {}})), [json!(false), json!(true)]);
    let key = after.nodes[3].inputs.as_ref().unwrap().render(&Run::default()).unwrap();
    assert_eq!(key["key_template"], "uploads/7f3a.bin");
}

/// INTENT-031
#[test]
fn a_patch_is_checked_against_the_tools() {
    let with = |node: Value| {
        let mut made = example();
        made["add_nodes"][1] = node;
        made
    };
    let node = |change: Value| {
        let mut node = example()["add_nodes"][1].clone();
        node.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        with(node)
    };
    assert_eq!(refused(node(json!({"fn": "email_sned"}))), ("unknown_tool", "/add_nodes/1/fn".into()));
    assert_eq!(refused(node(json!({"inputs": {"to": "x"}}))), ("missing_input", "/add_nodes/1/inputs/subject".into()));
    assert_eq!(
        refused(node(json!({"inputs": {"to": 5, "subject": "x"}}))),
        ("invalid_input", "/add_nodes/1/inputs/to".into())
    );
    assert_eq!(refused(node(json!({"id": "review"}))), ("duplicate_id", "/add_nodes/1/id".into()));
    assert_eq!(refused(node(json!({"colour": "red"}))), ("unknown_member", "/add_nodes/1/colour".into()));
    let later = json!({"inputs": {"to": "x", "subject": "${nodes.later.outputs.value}"}});
    assert_eq!(refused(node(later)), ("unknown_reference", "/add_nodes/1/inputs/subject".into()));
    let parse = json!({"inputs": {"to": "x", "subject": "${nodes.parse.outputs.message}"}});
    apply(&running(), &patch(node(parse)), &["review"], &["parse"], &tools()).unwrap();
}

#[test]
fn edges_start_from_what_has_begun_and_lead_to_what_is_new() {
    let with = |edges: Value| {
        let mut made = example();
        made["add_edges"] = edges;
        made["add_nodes"].as_array_mut().unwrap().truncate(1);
        made
    };
    let to = |from: &str| json!({"from": from, "to": "upload_to_s3"});
    for from in ["parse", "review", "CURRENT_NODE"] {
        apply(&running(), &patch(with(json!([to(from)]))), &["review"], &["parse"], &tools()).unwrap();
    }
    assert_eq!(refused(with(json!([to("later")]))), ("forbidden_edge", "/add_edges/0/from".into()));
    assert_eq!(
        refused(with(json!([to("review"), {"from": "upload_to_s3", "to": "later"}]))),
        ("forbidden_edge", "/add_edges/1/to".into())
    );
    assert_eq!(refused(with(json!([to("review"), to("gone")]))), ("unknown_node", "/add_edges/1/from".into()));
    assert_eq!(refused(with(json!([]))), ("unreachable", "/add_nodes/0".into()));
    let mut twins =
        with(json!([to("review"), {"from": "upload_to_s3", "to": "b"}, {"from": "b", "to": "upload_to_s3"}]));
    twins["add_nodes"].as_array_mut().unwrap().push(echo("b", json!(1)));
    assert_eq!(refused(twins).0, "cycle");
}

#[test]
fn the_current_node_must_be_one() {
    for current in [&[][..], &["parse", "review"][..]] {
        let problems = apply(&running(), &patch(example()), current, &[], &tools()).map(drop).unwrap_err();
        assert_eq!((problems[0].code.as_str(), problems[0].path.as_str()), ("ambiguous_current", "/add_edges/0/from"));
    }
}

#[test]
fn a_patch_says_what_it_is_and_why() {
    for (member, value, code) in [
        ("justification", json!(" "), "invalid_value"),
        ("justification", json!(null), "invalid_value"),
        ("patch_version", json!("0.2"), "invalid_value"),
        ("add_nodes", json!([]), "invalid_value"),
        ("remove_nodes", json!([]), "unknown_member"),
    ] {
        let mut made = example();
        made[member] = value;
        assert_eq!(refused(made), (code, format!("/{member}")), "{member}");
    }
}

#[test]
fn the_inverse_takes_out_what_is_pending() {
    let (before, patch) = (running(), patch(example()));
    let after = apply(&before, &patch, &["review"], &["parse"], &tools()).unwrap();
    let stored = inverse(&patch, &["review"]).to_value();
    let inverse = Inverse::from_value(stored).unwrap();
    assert_eq!(inverse.remove_edges[0].from, "review");
    let all = ["upload_to_s3", "notify_email", "notify_slack"];
    let back = revert(&after, &inverse, &all).unwrap();
    assert_eq!(back.digest, before.digest);
    let ways = |graph: &Graph| {
        graph.nodes.iter().map(|node| (node.incoming.clone(), node.outgoing.clone())).collect::<Vec<_>>()
    };
    assert_eq!(ways(&back), ways(&before));
    let begun = revert(&after, &inverse, &all[1..]).map(drop).unwrap_err();
    assert_eq!((begun[0].code.as_str(), begun[0].path.as_str()), ("not_pending", "/remove_nodes/0"));
}

#[test]
fn an_approval_covers_one_patch_on_one_plan() {
    let first = patch(example());
    let mut other = example();
    other["add_nodes"][1]["inputs"]["to"] = json!("someone@else.com");
    let base = digest(Digest32([1; 32]), &first);
    assert_eq!(base, digest(Digest32([1; 32]), &patch(example())));
    assert_ne!(base, digest(Digest32([2; 32]), &first));
    assert_ne!(base, digest(Digest32([1; 32]), &patch(other)));
}

#[test]
fn old_nodes_keep_the_tools_they_were_compiled_with() {
    let mut only_new = example();
    only_new["add_nodes"].as_array_mut().unwrap().truncate(1);
    only_new["add_edges"].as_array_mut().unwrap().truncate(1);
    let graph = running();
    let after = apply(&graph, &patch(only_new), &["review"], &["parse"], &tools()).unwrap();
    assert!(std::sync::Arc::ptr_eq(after.nodes[0].tool.as_ref().unwrap(), graph.nodes[0].tool.as_ref().unwrap()));
}

/// INTENT-036
#[test]
fn that_a_patch_waits_for_a_person_is_stored_and_not_the_proposers_to_say() {
    let node = json!({"id": "more", "type": "function", "fn": "s3_upload", "inputs": {}});
    let document = json!({
        "patch_version": "0.1", "justification": "x", "add_nodes": [node], "add_edges": [{"from": "a", "to": "more"}],
    });
    let free = Patch::from_value(document.clone()).unwrap();
    let waiting = Patch { waits: true, ..free.clone() };
    assert!(
        Patch::from_stored(waiting.to_value()).unwrap().waits && !Patch::from_stored(free.to_value()).unwrap().waits
    );
    let plan = Digest32::ZERO;
    assert_ne!(digest(plan, &free), digest(plan, &waiting));
    let mut claimed = document;
    claimed["waits_for_approval"] = json!(false);
    assert!(Patch::from_value(claimed).is_err());
}
