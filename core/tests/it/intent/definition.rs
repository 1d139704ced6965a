//! The allowlist of intents.

use chimera_core::intent::{Dispatch, IntentCatalog, IntentDefinition, InvalidDefinition};
use serde_json::{Value, json};

fn check(intent: &str, args: &Value) -> bool {
    IntentCatalog::built_in().unwrap().get(intent).unwrap().schema.check(args).is_ok()
}

/// INTENT-053, INTENT-055, INTENT-056
#[test]
fn eight_intents_have_a_schema_and_an_example_that_fits() {
    let catalog = IntentCatalog::built_in().unwrap();
    let names: Vec<&str> = catalog.iter().map(|intent| intent.name.as_str()).collect();
    let expected = [
        "artifact.get",
        "cache.invalidate",
        "graph.patch",
        "hitl.approve",
        "kb.search",
        "logs.stream",
        "run.replay",
        "workflow.start",
    ];
    assert_eq!(names, expected);
    for intent in catalog.iter() {
        let id = format!("https://aob.dev/schemas/intents/{}.json", intent.name);
        assert_eq!(intent.schema.document()["$id"], id);
        assert_eq!(intent.schema.check(intent.example().unwrap()), Ok(()), "{}", intent.name);
        assert!(intent.title().is_some());
    }
    assert!(catalog.get("shell.run").is_none());
}

/// INTENT-022, INTENT-025, INTENT-026, INTENT-027, INTENT-028, INTENT-042
#[test]
fn arguments_are_checked_against_the_schema_of_their_type() {
    let run = "7f3e6f0c-8d7a-7c52-9d0b-1f2e3d4c5b6a";
    for (intent, args, fits) in [
        ("workflow.start", json!({"workflow_id": "lead_flow", "inputs": {"priority": "high"}}), true),
        ("workflow.start", json!({"inputs": {}}), false),
        ("workflow.start", json!({"workflow_id": "a", "inputs": []}), false),
        ("run.replay", json!({"run_id": run, "from_node": "parse", "mode": "shadow"}), true),
        ("run.replay", json!({"run_id": run, "from_node": "parse", "mode": "retry"}), false),
        ("run.replay", json!({"run_id": run, "from_node": "parse"}), false),
        ("hitl.approve", json!({"run_id": run, "node_id": "review", "decision": "approve"}), true),
        ("hitl.approve", json!({"run_id": run, "node_id": "review", "decision": "request_changes"}), false),
        ("hitl.approve", json!({"run_id": run, "decision": "request_changes", "reason": "shorter"}), true),
        ("hitl.approve", json!({"run_id": run, "decision": "maybe"}), false),
        ("hitl.approve", json!({"run_id": run, "decision": "reject", "digest": "xyz"}), false),
        ("cache.invalidate", json!({"scope": "workflow", "key": "a:sha256:1"}), true),
        ("cache.invalidate", json!({"scope": "workflow", "prefix": "a:"}), true),
        ("cache.invalidate", json!({"scope": "workflow", "workflow_id": "w"}), true),
        ("cache.invalidate", json!({"scope": "workflow"}), false),
        ("cache.invalidate", json!({"scope": "workflow", "key": "a", "prefix": "a"}), false),
        ("cache.invalidate", json!({"scope": "planet", "key": "a"}), false),
        ("cache.invalidate", json!({"scope": "tenant"}), true),
        ("logs.stream", json!({"run_id": run, "filter": "warn"}), false),
        ("logs.stream", json!({"run_id": run}), true),
        ("kb.search", json!({"q": "x", "k": 0}), false),
    ] {
        assert_eq!(check(intent, &args), fits, "{intent} {args}");
    }
}

/// INTENT-029, INTENT-030, INTENT-031, INTENT-032
#[test]
fn a_patch_needs_a_run_and_the_four_members() {
    let example = IntentCatalog::built_in().unwrap().get("graph.patch").unwrap().example().unwrap().clone();
    assert!(check("graph.patch", &example));
    for missing in
        ["/run_id", "/patch", "/patch/patch_version", "/patch/add_nodes", "/patch/add_edges", "/patch/justification"]
    {
        let mut args = example.clone();
        let (parent, name) = missing.rsplit_once('/').unwrap();
        args.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(name);
        assert!(!check("graph.patch", &args), "{missing}");
    }
    for wrong in [
        "/patch/add_nodes/0/id",
        "/patch/add_edges/0/from",
        "/patch/add_edges/1/condition",
        "/patch/add_nodes/0/inputs",
    ] {
        let mut args = example.clone();
        *args.pointer_mut(wrong).unwrap() = json!(7);
        assert!(!check("graph.patch", &args), "{wrong}");
    }
}

/// INTENT-024
#[test]
fn an_intent_needs_its_action_on_the_resource_it_names() {
    let catalog = IntentCatalog::built_in().unwrap();
    let needs = |intent: &str, args: Value| catalog.get(intent).unwrap().requires.for_args(&args);
    assert_eq!(needs("workflow.start", json!({"workflow_id": "lead_flow"})), "runs:start@workflow/lead_flow");
    assert_eq!(needs("logs.stream", json!({"run_id": "7f"})), "logs:read@run/7f");
    assert_eq!(needs("artifact.get", json!({"artifact": "cas://sha256:ab"})), "artifacts:read@artifact/sha256:ab");
    assert_eq!(needs("cache.invalidate", json!({"scope": "tenant"})), "cache:invalidate@workflow/*");
    assert_eq!(needs("kb.search", json!({"q": "x"})), "kb:search");
}

/// INTENT-007
#[test]
fn a_file_adds_an_intent_without_code() {
    let file = json!({
        "type": "lead.enrich",
        "schema": {"type": "object", "required": ["company"], "properties": {"company": {"type": "string"}}, "examples": [{"company": "Acme"}]},
        "capability": "leads:enrich",
        "resource": {"kind": "company", "argument": "company"},
        "dispatch": {"workflow": "lead_flow"},
    });
    let defined = IntentDefinition::read(file.clone()).unwrap();
    assert_eq!(defined.dispatch, Dispatch::Workflow("lead_flow".to_owned()));
    assert_eq!(defined.schema.document()["$id"], "https://aob.dev/schemas/intents/lead.enrich.json");
    assert_eq!(defined.requires.for_args(&json!({"company": "Acme"})), "leads:enrich@company/Acme");
    let catalog = IntentCatalog::built_in().unwrap().with(defined).unwrap();
    assert!(catalog.get("lead.enrich").unwrap().schema.check(&json!({})).is_err());
    let again = IntentDefinition::read(file.clone()).unwrap();
    assert_eq!(catalog.with(again).unwrap_err(), InvalidDefinition::Duplicate("lead.enrich".to_owned()));
    for (member, wrong) in [
        ("type", json!("workflow.start")),
        ("type", json!("Lead Enrich")),
        ("type", json!("enrich")),
        ("schema", json!({"type": "array"})),
        ("schema", json!({"type": "object", "examples": [{"n": 1}], "properties": {"n": {"type": "string"}}})),
        ("schema", json!({"type": "object", "properties": {"x": {"$ref": "https://example.com/x.json"}}})),
        ("capability", json!("*")),
        ("capability", json!("leads:*")),
        ("capability", json!("enrich")),
        ("dispatch", json!({})),
        ("dispatch", json!({"workflow": "a", "tool": "b"})),
        ("surprise", json!(1)),
    ] {
        let mut bad = file.clone();
        bad[member] = wrong.clone();
        assert!(IntentDefinition::read(bad).is_err(), "{member} {wrong}");
    }
}
