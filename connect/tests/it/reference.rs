//! `docs/reference/tools.md` matches the specs of the tools.

use crate::fixtures::every_tool;
use chimera_connect::flow::declared::load;
use chimera_core::tool::{EffectKind, Risk, Rollback, Spec};
use serde_json::Value;
use std::fmt::Write;
use std::path::Path;
use tempfile::TempDir;

const fn yes(holds: bool) -> &'static str {
    if holds { "yes" } else { "no" }
}

/// The section of one tool.
fn section(spec: &Spec) -> String {
    let effect = match spec.effect {
        EffectKind::Pure => "pure",
        EffectKind::Read => "read",
        EffectKind::Write => "write",
    };
    let risk = match spec.metadata.risk_level {
        Risk::Low => "low",
        Risk::Medium => "medium",
        Risk::High => "high",
    };
    let capabilities: Vec<String> = spec.metadata.capabilities.iter().map(|name| format!("`{name}`")).collect();
    let mut text = format!("### `{}`\n\n{}\n\n", spec.name, spec.description);
    text.push_str("| effect | risk | approval | dry run | idempotent | undo | lookup | capabilities |\n");
    text.push_str("|---|---|---|---|---|---|---|---|\n");
    let _ = writeln!(
        text,
        "| {effect} | {risk} | {} | {} | {} | {} | {} | {} |\n",
        yes(spec.metadata.requires_approval),
        yes(spec.metadata.dry_run_supported),
        yes(spec.metadata.idempotent),
        match spec.rollback {
            Rollback::Unsupported => "no",
            Rollback::Once => "once",
            Rollback::Repeatable => "yes",
        },
        yes(spec.checkable),
        capabilities.join(", ")
    );
    let _ = writeln!(text, "Inputs: {}.\n", members(spec.input.document()));
    let _ = writeln!(text, "Outputs: {}.", members(spec.output.document()));
    text
}

/// The properties of a schema; required ones are bold.
fn members(schema: &Value) -> String {
    let required = |name: &String| schema["required"].as_array().is_some_and(|all| all.iter().any(|one| one == name));
    let properties = schema["properties"].as_object().unwrap().iter();
    let shown = properties.map(|(name, property)| {
        let name = if required(name) { format!("**`{name}`**") } else { format!("`{name}`") };
        match (&property["description"], &property["default"]) {
            (Value::String(words), _) => format!("{name} ({words})"),
            (_, Value::Null) => name,
            (_, default) => format!("{name} (default `{default}`)"),
        }
    });
    shown.collect::<Vec<_>>().join(", ")
}

#[tokio::test]
async fn the_reference_of_tools_is_what_the_tools_say() {
    let home = TempDir::new().unwrap();
    let mut tools = every_tool(home.path()).await;
    tools.sort_by(|a, b| a.spec().name.cmp(&b.spec().name));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(root.join("docs/reference/tools.md")).unwrap_or_default();
    let sections: Vec<String> = tools.iter().map(|tool| section(tool.spec())).collect();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let head = page.split("### ").next().unwrap_or_default();
        std::fs::write(root.join("docs/reference/tools.md"), format!("{head}{}", sections.join("\n"))).unwrap();
        return;
    }
    if !sections.iter().all(|section| page.contains(section)) {
        let copy = root.join("target/reference-tools.md");
        std::fs::write(&copy, sections.join("\n")).unwrap();
        panic!("docs/reference/tools.md is out of date; the right sections are in {}", copy.display());
    }
}

#[test]
fn the_example_of_the_guide_is_a_file_that_can_be_read() {
    let guide = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guides/tools.md")).unwrap();
    let (_, example) = guide.split_once("```toml\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let loaded = load(example, "desk.toml").unwrap();
    let names: Vec<&str> = loaded.iter().map(|declared| declared.spec().name.as_str()).collect();
    assert_eq!(names, ["desk.tickets.list", "desk.tickets.create"]);
    assert!(loaded[1].spec().is_reversible() && loaded[1].spec().checkable);
}
