//! Fixtures of this room: tools of every reach and risk, and short plans.

use chimera_core::act::risk::score;
use chimera_core::flow::plan::{Plan, PlanStep};
use chimera_core::flow::risk::Score;
use chimera_core::tool::{EffectKind, Metadata, ReadOnlyInputs, Risk, Rollback, Spec, ToolDeclaration};
use serde_json::{Value, json};
use std::path::Path;

/// A tool by its name.
pub(super) fn tool(name: &str) -> Option<Spec> {
    let (name, effect, risk_level, capability, requires_approval) = match name {
        "local.note" => ("local.note", EffectKind::Pure, Risk::Low, "local.note", false),
        "local.summarize" => ("local.summarize", EffectKind::Pure, Risk::Low, "local.summarize", false),
        "local.markdown_to_pdf" => ("local.markdown_to_pdf", EffectKind::Pure, Risk::Low, "local.convert", false),
        "local.translate" => ("local.translate", EffectKind::Pure, Risk::Low, "external_api", false),
        "local.medium" => ("local.medium", EffectKind::Pure, Risk::Medium, "local.medium", false),
        "local.high" => ("local.high", EffectKind::Pure, Risk::High, "local.high", false),
        "store.put" => ("store.put", EffectKind::Write, Risk::Low, "store.put", false),
        "github.issues" => ("github.issues", EffectKind::Read, Risk::Low, "github.read", false),
        "mail.fetch" => ("mail.fetch", EffectKind::Read, Risk::Low, "mail.read", false),
        "http.request" => ("http.request", EffectKind::Write, Risk::Medium, "external_api", false),
        "slack_post" => ("slack_post", EffectKind::Write, Risk::Medium, "external_api", false),
        "db.execute" => ("db.execute", EffectKind::Write, Risk::Medium, "db.execute", false),
        "ledger.book" => ("ledger.book", EffectKind::Write, Risk::Medium, "ledger.book", true),
        "sms.send" => ("sms.send", EffectKind::Write, Risk::High, "external_api", false),
        "email_send" => ("email_send", EffectKind::Write, Risk::High, "external_api", true),
        "payment.send" => ("payment.send", EffectKind::Write, Risk::High, "payment.send", true),
        _ => return None,
    };
    let reads_when = ReadOnlyInputs { member: "method", values: &["GET", "HEAD"], deletes: &["DELETE"] };
    let declared = ToolDeclaration {
        name,
        version: "1",
        description: "",
        metadata: Metadata {
            requires_approval,
            risk_level,
            capabilities: vec![capability.to_owned()],
            ..Metadata::default()
        },
        effect,
        reads_when: (name == "http.request").then_some(reads_when),
        checkable: false,
        rollback: Rollback::Unsupported,
        timeout_ms: 1_000,
        input: json!({"type": "object"}),
        output: json!({"type": "object"}),
    };
    Some(declared.compile().unwrap())
}

/// A plan from tools and their inputs.
pub(super) fn plan<const N: usize>(steps: [(&str, Value); N]) -> Plan {
    let step = |(index, (tool, input)): (usize, (&str, Value))| PlanStep {
        id: format!("s{}", index + 1),
        tool: tool.to_owned(),
        input,
    };
    Plan { steps: steps.into_iter().enumerate().map(step).collect(), more: false }
}

/// A plan of one step that adds nothing by itself.
pub(super) fn note(input: Value) -> Plan {
    plan([("local.note", input)])
}

/// The score of a plan with these tools.
pub(super) fn scored(plan: &Plan) -> Score {
    score(plan, &|name: &str| tool(name).map(Box::new))
}

pub(super) fn cases(file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(file)).unwrap();
    serde_json::from_str(&text).unwrap()
}
