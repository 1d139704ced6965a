//! Tools that fail, hang or answer late, as the injected faults decide.
//!
//! When a call reaches the outside, the tool reads the store: the effect must already be recorded as dispatched.

use super::fault_injector::FaultInjector;
use super::invariants::InvariantChecker;
use super::port_switch::PortSwitch;
use super::worker::{LEASE_SECONDS, QUEUE};
use super::workflow::{FORBIDDEN, REJECTED};
use crate::flow::ExternalSystem;
use crate::memory::MemoryRecords;
use async_trait::async_trait;
use chimera_core::error::Code;
use chimera_core::flow::run::EffectStatus;
use chimera_core::flow::tables::{EFFECTS, EffectRow};
use chimera_core::record::StoredRow;
use chimera_core::tool::{
    EffectKind, Execution, Metadata, Risk, Rollback, Spec, ToolDeclaration, WorkerQueue, is_dry_run,
};
use chimera_engine::flow::port::{CallContext, CheckResult, CompletedCall, Tool, ToolError};
use serde_json::{Value, json};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Name, reach, idempotent, checkable.
pub const TOOLS: [(&str, EffectKind, bool, bool); 9] = [
    ("pure", EffectKind::Pure, true, false),
    ("read", EffectKind::Read, true, false),
    ("once", EffectKind::Write, false, false),
    ("again", EffectKind::Write, true, false),
    ("checked", EffectKind::Write, false, true),
    (FIXED, EffectKind::Write, true, false),
    (FIRM, EffectKind::Write, true, false),
    // Workers execute these.
    ("errand", EffectKind::Write, false, false),
    ("chore", EffectKind::Write, true, false),
];

/// The tools that workers execute.
const BY_WORKERS: [&str; 2] = ["errand", "chore"];

/// What it does can't be undone.
const FIXED: &str = "fixed";

/// Refuses for good to undo what it did.
const FIRM: &str = "firm";

/// What the tools say of themselves; compiled once for all worlds.
#[must_use]
pub fn specs() -> &'static [Arc<Spec>] {
    static SPECS: OnceLock<Vec<Arc<Spec>>> = OnceLock::new();
    SPECS.get_or_init(|| {
        let spec = |tool: &(&'static str, EffectKind, bool, bool)| {
            let mut spec = declared(*tool).compile().expect("a schema");
            if BY_WORKERS.contains(&tool.0) {
                let (name, lease_seconds) = (QUEUE.to_owned(), LEASE_SECONDS);
                spec.execution = Execution::Workers(WorkerQueue { name, lease_seconds });
            }
            Arc::new(spec)
        };
        TOOLS.iter().map(spec).collect()
    })
}

fn declared((name, effect, idempotent, checkable): (&'static str, EffectKind, bool, bool)) -> ToolDeclaration {
    ToolDeclaration {
        name,
        version: "1",
        description: "does as the weather lets it",
        metadata: Metadata {
            requires_approval: false,
            dry_run_supported: name != "once",
            idempotent,
            capabilities: vec![format!("test.{name}")],
            risk_level: Risk::Low,
        },
        effect,
        reads_when: None,
        checkable,
        rollback: match effect {
            EffectKind::Write if name == "once" => Rollback::Once,
            EffectKind::Write if name == FIXED || BY_WORKERS.contains(&name) => Rollback::Unsupported,
            EffectKind::Write => Rollback::Repeatable,
            EffectKind::Pure | EffectKind::Read => Rollback::Unsupported,
        },
        timeout_ms: 20_000,
        input: json!({"type": "object"}),
        output: json!({"type": "object"}),
    }
}

/// A tool under fault injection.
pub struct SimulatedTool {
    pub spec: Arc<Spec>,
    pub wire: Arc<PortSwitch>,
    pub outside: Arc<ExternalSystem>,
    pub weather: Arc<FaultInjector>,
    /// The store, read without faults.
    pub disk: Arc<MemoryRecords>,
    pub judge: Arc<InvariantChecker>,
}

impl SimulatedTool {
    /// A call reaches the outside. Reports a violation unless the effect is recorded as dispatched.
    async fn act(&self, ctx: &CallContext, what: &str) {
        self.wire.pass().await;
        self.judge.sent(&self.spec.name, &ctx.idempotency_key, what);
        if self.spec.effect == EffectKind::Pure {
            return;
        }
        let row = self.disk.row(&EFFECTS, vec![ctx.effect_id.into()]);
        let written = row.is_some_and(|row| {
            let row = EffectRow::decode(row).expect("a row that can be read");
            // A check changes nothing, so it may come from a node that lost the run.
            (row.status == EffectStatus::Dispatched || what == "check")
                && row.run_id == ctx.run_id
                && row.step_id == ctx.step_id
                && row.idempotency_key.starts_with(&ctx.idempotency_key)
        });
        if !written {
            self.judge.report_violation(format!(
                "{} {what} {} was sent before it was recorded",
                self.spec.name, ctx.idempotency_key
            ));
        }
    }

    /// Reports a violation if the input is one that a judge rejects, or shows an output that one rejected.
    fn check_judged(&self, ctx: &CallContext, input: &Value) {
        if self.spec.effect == EffectKind::Write && input["n"] == FORBIDDEN {
            self.judge.report_violation(format!("{} was sent, which its judge rejects", ctx.idempotency_key));
        }
        if REJECTED.iter().any(|rejected| input["seen"] == *rejected) {
            self.judge.report_violation(format!("{} saw an output that was rejected", ctx.idempotency_key));
        }
    }

    async fn delay(&self) {
        self.weather.delay().await;
        if self.weather.draw(300) {
            tokio::time::sleep(Duration::from_millis(self.weather.dice.below(2_000))).await;
        }
    }

    fn work(&self, ctx: &CallContext, input: &Value) -> Value {
        let output = json!({"tool": self.spec.name, "echo": input["n"]});
        if self.spec.effect != EffectKind::Write {
            return output;
        }
        let key = &ctx.idempotency_key;
        let before = self.outside.sent().into_iter().find(|sent| sent.key == *key && sent.tool == self.spec.name);
        match before {
            Some(sent) if sent.input != *input => {
                self.judge.report_violation(format!("{key} was sent with another input"))
            }
            Some(_) if !self.spec.metadata.idempotent => self.judge.report_violation(format!("{key} was sent twice")),
            Some(_) if self.outside.find(&self.spec.name, key).is_some() => return output,
            _ => {}
        }
        self.outside.record(&self.spec.name, key, input, output.clone());
        output
    }

    fn undo(&self, ctx: &CallContext) {
        let key = ctx.idempotency_key.trim_end_matches(":undo");
        let stood = self.outside.undo(&self.spec.name, key);
        if !stood && self.spec.rollback == Rollback::Once {
            self.judge.report_violation(format!("{key} was undone twice"));
        }
    }

    async fn execute_with_fault(&self, ctx: &CallContext, input: &Value) -> Result<Value, ToolError> {
        let lost = || ToolError::maybe_sent(Code::ExternalServiceUnavailable, "the answer was lost");
        match self.weather.dice.below(9) {
            0 | 1 => Err(ToolError::not_sent(Code::ExternalServiceError, "not now")),
            2 => Err(ToolError::not_sent(Code::RateLimited, "later").retry_after(1 + self.weather.dice.below(10))),
            3 => Err(ToolError::not_sent(Code::ValidationFailed, "never")),
            4 => {
                self.act(ctx, "execute").await;
                self.work(ctx, input);
                Err(lost())
            }
            5 => Err(lost()),
            6 => {
                self.act(ctx, "execute").await;
                self.work(ctx, input);
                std::future::pending().await
            }
            7 => std::future::pending().await,
            _ => {
                let seconds = self.weather.dice.below(30);
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                self.act(ctx, "execute").await;
                let output = self.work(ctx, input);
                tokio::time::sleep(Duration::from_secs(self.weather.dice.below(4))).await;
                Ok(output)
            }
        }
    }
}

#[async_trait]
impl Tool for SimulatedTool {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn host(&self, input: &Value) -> Option<String> {
        let sum: u32 = input["n"].to_string().bytes().map(u32::from).sum();
        Some(format!("host-{}", sum % 2))
    }

    fn answers_at_once(&self, _input: &Value) -> bool {
        true
    }

    async fn execute(&self, ctx: &CallContext, input: &Value) -> Result<Value, ToolError> {
        self.wire.pass().await;
        if is_dry_run(input) {
            return Ok(Spec::dry_run_response(
                json!({"tool": self.spec.name, "echo": input["n"]}),
                self.spec.name.clone(),
            ));
        }
        self.check_judged(ctx, input);
        if self.weather.draw_call_fault() {
            return self.execute_with_fault(ctx, input).await;
        }
        self.delay().await;
        self.act(ctx, "execute").await;
        let output = self.work(ctx, input);
        self.delay().await;
        self.wire.pass().await;
        Ok(output)
    }

    async fn rollback(&self, ctx: &CallContext, _done: &CompletedCall) -> Result<Value, ToolError> {
        self.act(ctx, "rollback").await;
        if self.spec.name == FIRM {
            return Err(ToolError::not_sent(Code::ValidationFailed, "never"));
        }
        if self.weather.draw_call_fault() {
            return match self.weather.dice.below(3) {
                0 => Err(ToolError::not_sent(Code::ExternalServiceError, "not now")),
                1 => std::future::pending().await,
                _ => {
                    self.undo(ctx);
                    Err(ToolError::maybe_sent(Code::ExternalServiceUnavailable, "the answer was lost"))
                }
            };
        }
        self.undo(ctx);
        Ok(json!({"undone": true}))
    }

    async fn check(&self, ctx: &CallContext, _input: &Value) -> Result<CheckResult, ToolError> {
        self.act(ctx, "check").await;
        if self.weather.draw_call_fault() {
            return match self.weather.dice.below(3) {
                0 => Ok(CheckResult::Unknown),
                1 => Err(ToolError::not_sent(Code::ExternalServiceError, "not now")),
                _ => std::future::pending().await,
            };
        }
        Ok(match self.outside.find(&self.spec.name, &ctx.idempotency_key) {
            Some(output) => CheckResult::Happened(output),
            None => CheckResult::DidNotHappen,
        })
    }
}
