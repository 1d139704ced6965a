//! A tool whose behaviour a test sets with closures, and a record of its calls.

use async_trait::async_trait;
use chimera_core::error::Code;
use chimera_core::tool::{
    EffectKind, Execution, Metadata, Risk, Rollback, Spec, ToolDeclaration, WorkerQueue, is_dry_run,
};
use chimera_engine::flow::port::{CallContext, CheckResult, CompletedCall, Tool, ToolError};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// A recorded call.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedCall {
    /// `execute`, `dry`, `check` or `rollback`.
    pub kind: &'static str,
    pub effect: Uuid,
    pub key: String,
    pub attempt: u32,
    pub input: Value,
    /// On the runtime's clock.
    pub at: Instant,
}

type ExecuteFn = Arc<dyn Fn(CallContext, Value) -> BoxFuture<'static, Result<Value, ToolError>> + Send + Sync>;
type RollbackFn = Arc<dyn Fn(CallContext, CompletedCall) -> Result<Value, ToolError> + Send + Sync>;
type HostFn = Arc<dyn Fn(&Value) -> Option<String> + Send + Sync>;
type CheckFn = Arc<dyn Fn(CallContext) -> Result<CheckResult, ToolError> + Send + Sync>;

/// Builds a tool from closures. Each method returns the changed builder.
#[derive(Clone)]
pub struct ScriptedTool {
    declared: ToolDeclaration,
    act: ExecuteFn,
    undo: RollbackFn,
    check: CheckFn,
    host: HostFn,
    execution: Execution,
    dry_takes: Duration,
    dry_refuses: Option<(Code, &'static str)>,
    made: Arc<Mutex<Vec<RecordedCall>>>,
}

/// Counts calls in flight by tool and by tenant, and keeps the inputs in order of start.
#[derive(Clone, Default)]
pub struct ConcurrencyProbe(Arc<Mutex<ProbeCounts>>);

#[derive(Default)]
struct ProbeCounts {
    now: BTreeMap<String, usize>,
    most: BTreeMap<String, usize>,
    order: Vec<Value>,
}

impl ConcurrencyProbe {
    fn counts(&self) -> MutexGuard<'_, ProbeCounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, names: &[String], input: &Value) {
        let mut counts = self.counts();
        for name in names {
            let now = counts.now.entry(name.clone()).or_default();
            *now += 1;
            let now = *now;
            let most = counts.most.entry(name.clone()).or_default();
            *most = now.max(*most);
        }
        counts.order.push(input.clone());
    }

    fn leave(&self, names: &[String]) {
        let mut counts = self.counts();
        names.iter().for_each(|name| *counts.now.entry(name.clone()).or_default() -= 1);
    }

    /// The highest number of concurrent calls of a tool or a tenant.
    #[must_use]
    pub fn most(&self, name: &str) -> usize {
        self.counts().most.get(name).copied().unwrap_or(0)
    }

    /// The inputs of all calls, in order of start.
    #[must_use]
    pub fn order(&self) -> Vec<Value> {
        self.counts().order.clone()
    }
}

/// The recorded calls of one tool.
#[derive(Clone)]
pub struct CallLog(Arc<Mutex<Vec<RecordedCall>>>);

impl CallLog {
    #[must_use]
    pub fn all(&self) -> Vec<RecordedCall> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The calls of one kind: `execute`, `dry`, `check` or `rollback`.
    #[must_use]
    pub fn of(&self, how: &str) -> Vec<RecordedCall> {
        self.all().into_iter().filter(|made| made.kind == how).collect()
    }

    /// The number of calls of one kind.
    #[must_use]
    pub fn count(&self, how: &str) -> usize {
        self.of(how).len()
    }
}

impl ScriptedTool {
    /// A low-risk tool that supports dry runs and echoes its input. If it writes, it can be rolled back.
    #[must_use]
    pub fn new(name: &'static str, effect: EffectKind) -> Self {
        let declared = ToolDeclaration {
            name,
            version: "1",
            description: "does as a test tells it",
            metadata: Metadata {
                requires_approval: false,
                dry_run_supported: true,
                idempotent: false,
                capabilities: vec![format!("test.{name}")],
                risk_level: Risk::Low,
            },
            effect,
            reads_when: None,
            checkable: false,
            rollback: if effect == EffectKind::Write { Rollback::Repeatable } else { Rollback::Unsupported },
            timeout_ms: 30_000,
            input: json!({"type": "object"}),
            output: json!({"type": "object"}),
        };
        Self {
            declared,
            act: Arc::new(|_, input| async move { Ok(json!({"echo": input})) }.boxed()),
            undo: Arc::new(|_, _| Ok(json!({"undone": true}))),
            check: Arc::new(|_| Ok(CheckResult::Unknown)),
            host: Arc::new(|_| None),
            execution: Execution::InProcess,
            dry_takes: Duration::ZERO,
            dry_refuses: None,
            made: Arc::default(),
        }
    }

    /// Changes the declaration.
    #[must_use]
    pub fn with_declaration(mut self, change: impl FnOnce(&mut ToolDeclaration)) -> Self {
        change(&mut self.declared);
        self
    }

    /// Sets what a real call does.
    #[must_use]
    pub fn on_execute<F>(mut self, act: impl Fn(CallContext, Value) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Value, ToolError>> + Send + 'static,
    {
        self.act = Arc::new(move |ctx, input| act(ctx, input).boxed());
        self
    }

    /// Delays each real call.
    #[must_use]
    pub fn with_delay(mut self, time: impl Fn(&Value) -> Duration + Send + Sync + 'static) -> Self {
        let act = self.act;
        let time = Arc::new(time);
        self.act = Arc::new(move |ctx, input| {
            let (act, wait) = (Arc::clone(&act), time(&input));
            async move {
                tokio::time::sleep(wait).await;
                act(ctx, input).await
            }
            .boxed()
        });
        self
    }

    /// Counts its real calls in `watch`.
    #[must_use]
    pub fn with_probe(mut self, watch: &ConcurrencyProbe) -> Self {
        let (act, watch, name) = (self.act, watch.clone(), self.declared.name);
        self.act = Arc::new(move |ctx, input| {
            let (act, watch) = (Arc::clone(&act), watch.clone());
            async move {
                let names = [name.to_owned(), ctx.tenant.clone()];
                watch.enter(&names, &input);
                let answer = act(ctx, input).await;
                watch.leave(&names);
                answer
            }
            .boxed()
        });
        self
    }

    /// Delays each dry run.
    #[must_use]
    pub fn with_dry_run_delay(mut self, time: Duration) -> Self {
        self.dry_takes = time;
        self
    }

    /// Makes dry runs fail.
    #[must_use]
    pub const fn with_dry_run_error(mut self, code: Code, why: &'static str) -> Self {
        self.dry_refuses = Some((code, why));
        self
    }

    /// Sets what a real call answers, without waiting.
    #[must_use]
    pub fn answers(
        self,
        answer: impl Fn(&CallContext, &Value) -> Result<Value, ToolError> + Send + Sync + 'static,
    ) -> Self {
        self.on_execute(move |ctx, input| std::future::ready(answer(&ctx, &input)))
    }

    /// Fails on these attempts with a retryable error.
    #[must_use]
    pub fn failing_at(self, attempts: &'static [u32]) -> Self {
        self.answers(move |ctx, input| match attempts.contains(&ctx.attempt) {
            true => Err(ToolError::not_sent(Code::ExternalServiceError, "not now")),
            false => Ok(json!({"echo": input})),
        })
    }

    /// Sets what a rollback does.
    #[must_use]
    pub fn on_rollback(
        mut self,
        undo: impl Fn(CallContext, CompletedCall) -> Result<Value, ToolError> + Send + Sync + 'static,
    ) -> Self {
        self.undo = Arc::new(undo);
        self
    }

    /// Makes it checkable, and sets what a check answers.
    #[must_use]
    pub fn on_check(
        mut self,
        check: impl Fn(CallContext) -> Result<CheckResult, ToolError> + Send + Sync + 'static,
    ) -> Self {
        self.declared.checkable = true;
        self.check = Arc::new(check);
        self
    }

    /// Takes the host of a call from its input's member `host`.
    #[must_use]
    pub fn with_host_input(mut self) -> Self {
        self.host = Arc::new(|input| input["host"].as_str().map(str::to_owned));
        self
    }

    /// Lets workers outside execute it. It has no undo then.
    #[must_use]
    pub fn by_workers(self, queue: &str, lease_seconds: u32) -> Self {
        self.executed(Execution::Workers(WorkerQueue { name: queue.to_owned(), lease_seconds }))
    }

    /// Lets a sandboxed job execute it. It has no undo then.
    #[must_use]
    pub fn by_jobs(self) -> Self {
        self.executed(Execution::Job)
    }

    fn executed(mut self, execution: Execution) -> Self {
        self.execution = execution;
        self.declared.rollback = Rollback::Unsupported;
        self
    }

    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.declared.name
    }

    /// The calls made so far and later.
    #[must_use]
    pub fn asked(&self) -> CallLog {
        CallLog(Arc::clone(&self.made))
    }

    #[must_use]
    pub fn build(self) -> Arc<dyn Tool> {
        let compiled = self.declared.clone().compile().expect("schemas that compile");
        let spec = Arc::new(Spec { execution: self.execution.clone(), ..compiled });
        Arc::new(BuiltScriptedTool { spec, puppet: self })
    }
}

struct BuiltScriptedTool {
    spec: Arc<Spec>,
    puppet: ScriptedTool,
}

impl BuiltScriptedTool {
    fn record(&self, how: &'static str, ctx: &CallContext, input: &Value) {
        let (key, input) = (ctx.idempotency_key.clone(), input.clone());
        let made =
            RecordedCall { kind: how, effect: ctx.effect_id, key, attempt: ctx.attempt, input, at: Instant::now() };
        self.puppet.made.lock().unwrap_or_else(PoisonError::into_inner).push(made);
    }
}

#[async_trait]
impl Tool for BuiltScriptedTool {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn host(&self, input: &Value) -> Option<String> {
        (self.puppet.host)(input)
    }

    fn answers_at_once(&self, _input: &Value) -> bool {
        true
    }

    async fn execute(&self, ctx: &CallContext, input: &Value) -> Result<Value, ToolError> {
        if is_dry_run(input) {
            self.record("dry", ctx, input);
            tokio::time::sleep(self.puppet.dry_takes).await;
            if let Some((code, why)) = self.puppet.dry_refuses {
                return Err(ToolError::not_sent(code, why));
            }
            let mut echo = input.clone();
            echo.as_object_mut().map(|members| members.remove("dry_run"));
            return Ok(Spec::dry_run_response(json!({"echo": echo}), self.spec.name.clone()));
        }
        self.record("execute", ctx, input);
        (self.puppet.act)(ctx.clone(), input.clone()).await
    }

    async fn rollback(&self, ctx: &CallContext, done: &CompletedCall) -> Result<Value, ToolError> {
        self.record("rollback", ctx, &done.input);
        (self.puppet.undo)(ctx.clone(), done.clone())
    }

    async fn check(&self, ctx: &CallContext, input: &Value) -> Result<CheckResult, ToolError> {
        self.record("check", ctx, input);
        (self.puppet.check)(ctx.clone())
    }
}
