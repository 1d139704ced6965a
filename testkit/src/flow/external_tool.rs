//! Tools that follow a script. The script decides each call by tool, idempotency key and attempt.

use super::external_system::ExternalSystem;
use async_trait::async_trait;
use chimera_core::error::Code;
use chimera_core::tool::{EffectKind, Metadata, Risk, Rollback, Spec, ToolDeclaration, is_dry_run};
use chimera_engine::flow::port::{CallContext, CheckResult, CompletedCall, Tool, ToolError};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The outcome of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallBehavior {
    /// Succeeds.
    Work,
    /// Fails before anything is sent; retryable.
    RefuseBefore,
    /// Fails before anything is sent; permanent.
    RefuseForGood,
    /// Takes effect, but the answer is lost.
    LoseAnswer,
    /// Takes effect, but never answers.
    Hang,
    /// Succeeds after three seconds.
    Late,
}

/// Maps tool, idempotency key and attempt to an outcome.
pub type BehaviorScript = Arc<dyn Fn(&str, &str, u32) -> CallBehavior + Send + Sync>;

/// What the declaration of an external tool says about its calls.
#[derive(Clone, Copy, Debug)]
pub struct ExternalToolKind {
    pub name: &'static str,
    pub effect: EffectKind,
    pub idempotent: bool,
    pub checkable: bool,
}

pub struct ExternalTool {
    spec: Arc<Spec>,
    outside: Arc<ExternalSystem>,
    script: BehaviorScript,
}

impl ExternalTool {
    #[must_use]
    pub fn new(kind: ExternalToolKind, outside: Arc<ExternalSystem>, script: BehaviorScript) -> Self {
        let ExternalToolKind { name, effect, idempotent, checkable } = kind;
        let declared = ToolDeclaration {
            name,
            version: "1",
            description: "does as a test tells it",
            metadata: Metadata {
                requires_approval: false,
                dry_run_supported: true,
                idempotent,
                capabilities: vec![format!("test.{name}")],
                risk_level: Risk::Low,
            },
            effect,
            reads_when: None,
            checkable,
            rollback: if effect == EffectKind::Write { Rollback::Repeatable } else { Rollback::Unsupported },
            timeout_ms: 30_000,
            input: json!({"type": "object"}),
            output: json!({"type": "object"}),
        };
        let spec = Arc::new(declared.compile().expect("a schema that compiles"));
        Self { spec, outside, script }
    }

    fn work(&self, ctx: &CallContext, input: &Value) -> Value {
        let output = json!({"tool": self.spec.name, "echo": input});
        if self.spec.effect == EffectKind::Write {
            let made_before =
                self.spec.metadata.idempotent.then(|| self.outside.find(&self.spec.name, &ctx.idempotency_key));
            if let Some(Some(output)) = made_before {
                return output;
            }
            self.outside.record(&self.spec.name, &ctx.idempotency_key, input, output.clone());
        }
        output
    }
}

#[async_trait]
impl Tool for ExternalTool {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn answers_at_once(&self, _input: &Value) -> bool {
        true
    }

    async fn execute(&self, ctx: &CallContext, input: &Value) -> Result<Value, ToolError> {
        if is_dry_run(input) {
            return Ok(Spec::dry_run_response(json!({"tool": self.spec.name, "echo": input}), self.spec.name.clone()));
        }
        let lost = || ToolError::maybe_sent(Code::ExternalServiceUnavailable, "the answer was lost");
        match (self.script)(&self.spec.name, &ctx.idempotency_key, ctx.attempt) {
            CallBehavior::Work => Ok(self.work(ctx, input)),
            CallBehavior::RefuseBefore => Err(ToolError::not_sent(Code::ExternalServiceError, "not now")),
            CallBehavior::RefuseForGood => Err(ToolError::not_sent(Code::ValidationFailed, "never")),
            CallBehavior::LoseAnswer => {
                self.work(ctx, input);
                Err(lost())
            }
            CallBehavior::Hang => {
                self.work(ctx, input);
                std::future::pending().await
            }
            CallBehavior::Late => {
                tokio::time::sleep(Duration::from_secs(3)).await;
                Ok(self.work(ctx, input))
            }
        }
    }

    async fn rollback(&self, ctx: &CallContext, _done: &CompletedCall) -> Result<Value, ToolError> {
        let key = ctx.idempotency_key.trim_end_matches(":undo");
        self.outside.undo(&self.spec.name, key);
        Ok(json!({"undone": true}))
    }

    async fn check(&self, ctx: &CallContext, _input: &Value) -> Result<CheckResult, ToolError> {
        Ok(match self.outside.find(&self.spec.name, &ctx.idempotency_key) {
            Some(output) => CheckResult::Happened(output),
            None => CheckResult::DidNotHappen,
        })
    }
}
