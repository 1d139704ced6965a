//! Fixtures for the tests of several rooms.

use chimera_core::tool::{EffectKind, Metadata, Rollback, Spec, ToolDeclaration};
use serde_json::{Value, json};
use std::sync::Arc;

/// A tool with minimal metadata.
pub(crate) fn tool(name: &'static str, effect: EffectKind, input: Value, output: Value) -> Arc<Spec> {
    let declared = ToolDeclaration {
        name,
        version: "1",
        description: "",
        metadata: Metadata::default(),
        effect,
        reads_when: None,
        checkable: false,
        rollback: Rollback::Unsupported,
        timeout_ms: 1_000,
        input,
        output,
    };
    Arc::new(declared.compile().unwrap())
}

/// The schema of an object with these members and no others.
pub(crate) fn closed(properties: Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}
