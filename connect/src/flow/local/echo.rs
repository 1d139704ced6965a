//! `local.echo`: returns its input.
//!
//! For trying out a workflow, and for joining values of several nodes into one output. A dry run returns the same
//! values, because the tool has no side effects.

use async_trait::async_trait;
use chimera_core::json::schema::InvalidSchema;
use chimera_core::tool::{EffectKind, Metadata, Risk, Rollback, Spec, ToolDeclaration, is_dry_run};
use chimera_engine::flow::port::{CallContext, Tool, ToolError};
use serde_json::{Map, Value, json};
use std::sync::Arc;

pub(super) struct Echo {
    spec: Arc<Spec>,
}

impl Echo {
    pub(super) fn new() -> Result<Self, InvalidSchema> {
        let declared = ToolDeclaration {
            name: "local.echo",
            version: "1",
            description: "Gives its message and value back.",
            metadata: Metadata {
                requires_approval: false,
                dry_run_supported: true,
                idempotent: true,
                capabilities: vec!["local.echo".to_owned()],
                risk_level: Risk::Low,
            },
            effect: EffectKind::Pure,
            reads_when: None,
            checkable: false,
            rollback: Rollback::Unsupported,
            timeout_ms: 5_000,
            input: json!({
                "type": "object",
                "properties": {"message": {"type": "string"}, "value": true},
                "anyOf": [{"required": ["message"]}, {"required": ["value"]}],
                "additionalProperties": false
            }),
            output: json!({
                "type": "object",
                "properties": {"message": {"type": "string"}, "value": true},
                "additionalProperties": false
            }),
        };
        Ok(Self { spec: Arc::new(declared.compile()?) })
    }
}

#[async_trait]
impl Tool for Echo {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn answers_at_once(&self, _input: &Value) -> bool {
        true
    }

    async fn execute(&self, _ctx: &CallContext, input: &Value) -> Result<Value, ToolError> {
        let given = |name: &str| input.get(name).map(|value| (name.to_owned(), value.clone()));
        let output: Map<String, Value> = ["message", "value"].into_iter().filter_map(given).collect();
        let output = Value::Object(output);
        Ok(if is_dry_run(input) { Spec::dry_run_response(output, "give the input back") } else { output })
    }
}
