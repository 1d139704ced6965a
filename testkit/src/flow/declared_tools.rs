//! Declared tools that a test changes while an engine runs, and a record of which definition was called.

use async_trait::async_trait;
use chimera_core::json::schema::Schema;
use chimera_core::tool::{EffectKind, Execution, Metadata, Rollback, Spec, WorkerQueue, with_dry_run};
use chimera_engine::flow::port::{
    CallContext, CompletedCall, DeclarationProblem, Declarations, DeclaredTool, Tool, ToolError, ToolSource,
};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use uuid::Uuid;

/// A call that reached a declared tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredCall {
    pub run: Uuid,
    pub tenant: String,
    pub tool: String,
    /// The version of the definition that was called.
    pub version: String,
    /// `execute` or `rollback`.
    pub kind: &'static str,
}

/// A source of tools that write and answer with their version.
#[derive(Clone, Default)]
pub struct ScriptedSource {
    now: Arc<Mutex<Declarations>>,
    calls: Arc<Mutex<Vec<DeclaredCall>>>,
    /// Whether stored definitions can't be used.
    is_forgetful: bool,
}

struct VersionedTool {
    spec: Arc<Spec>,
    calls: Arc<Mutex<Vec<DeclaredCall>>>,
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ScriptedSource {
    /// Another process: the same record of calls, and nothing declared.
    #[must_use]
    pub fn elsewhere(&self) -> Self {
        Self { now: Arc::default(), calls: Arc::clone(&self.calls), is_forgetful: false }
    }

    /// Can't use stored definitions.
    #[must_use]
    pub fn forgetful(self) -> Self {
        Self { is_forgetful: true, ..self }
    }

    /// Declares a tool of the default tenant in this version instead of any other.
    #[must_use]
    pub fn with(self, name: &str, version: &str) -> Self {
        self.declare(None, name, version);
        self
    }

    /// The same while engines use it, for any tenant.
    pub fn declare(&self, tenant: Option<&str>, name: &str, version: &str) {
        self.add(tenant, name, json!({"name": name, "version": version}));
    }

    /// Declares a tool that workers execute: its calls go to this queue, and its output has a member of this name.
    pub fn declare_worker(&self, tenant: Option<&str>, (name, version): (&str, &str), queue: &str, output: &str) {
        self.add(tenant, name, json!({"name": name, "version": version, "queue": queue, "output": output}));
    }

    fn add(&self, tenant: Option<&str>, name: &str, document: Value) {
        self.remove(tenant, name);
        let tool = self.build(&document).expect("a tool");
        let (tenant, file) = (tenant.map(str::to_owned), Arc::from("test.toml"));
        lock(&self.now).tools.push(DeclaredTool { tenant, file, tool, document: Arc::new(document) });
    }

    pub fn remove(&self, tenant: Option<&str>, name: &str) {
        lock(&self.now).tools.retain(|tool| tool.tenant.as_deref() != tenant || tool.tool.spec().name != name);
    }

    pub fn disable(&self, name: &str, reason: &str) {
        lock(&self.now).disabled.insert(name.to_owned(), reason.to_owned());
    }

    pub fn enable(&self, name: &str) {
        lock(&self.now).disabled.remove(name);
    }

    pub fn break_file(&self, file: &str, reason: &str) {
        let problem = DeclarationProblem { file: file.to_owned(), reason: reason.to_owned(), is_in_use: true };
        lock(&self.now).problems = vec![problem];
    }

    /// The calls that reached a tool, in order.
    #[must_use]
    pub fn calls(&self) -> Vec<DeclaredCall> {
        lock(&self.calls).clone()
    }

    /// The versions that were called, in order.
    #[must_use]
    pub fn versions(&self) -> Vec<String> {
        self.calls().into_iter().map(|call| call.version).collect()
    }

    fn build(&self, document: &Value) -> Result<Arc<dyn Tool>, String> {
        let text = |member: &str| document[member].as_str().map(str::to_owned).ok_or_else(|| format!("no {member}"));
        let schema = |value| Schema::compile(value).map_err(|error| error.to_string());
        let queue = document["queue"].as_str();
        let workers = |queue: &str| Execution::Workers(WorkerQueue { name: queue.to_owned(), lease_seconds: 60 });
        let output = document["output"].as_str().map(|member| json!({"type": "object", "required": [member]}));
        let spec = Spec {
            name: text("name")?,
            version: text("version")?,
            description: "answers with its version".to_owned(),
            metadata: Metadata { capabilities: vec!["test.declared".to_owned()], ..Metadata::default() },
            effect: EffectKind::Write,
            reads_when: None,
            checkable: false,
            rollback: if queue.is_some() { Rollback::Unsupported } else { Rollback::Repeatable },
            timeout_ms: if queue.is_some() { 3_600_000 } else { 30_000 },
            execution: queue.map_or(Execution::InProcess, workers),
            input: schema(with_dry_run(json!({"type": "object"})))?,
            output: schema(output.unwrap_or_else(|| json!({"type": "object"})))?,
        };
        Ok(Arc::new(VersionedTool { spec: Arc::new(spec), calls: Arc::clone(&self.calls) }))
    }
}

#[async_trait]
impl ToolSource for ScriptedSource {
    async fn read(&self, _at_once: bool) -> Result<Declarations, String> {
        Ok(lock(&self.now).clone())
    }

    fn restore(&self, document: &Value) -> Result<Arc<dyn Tool>, String> {
        if self.is_forgetful { Err("it can't be read".to_owned()) } else { self.build(document) }
    }
}

impl VersionedTool {
    fn note(&self, ctx: &CallContext, kind: &'static str) -> Value {
        let (run, tenant) = (ctx.run_id, ctx.tenant.clone());
        let (tool, version) = (self.spec.name.clone(), self.spec.version.clone());
        lock(&self.calls).push(DeclaredCall { run, tenant, tool, version: version.clone(), kind });
        json!({"version": version})
    }
}

#[async_trait]
impl Tool for VersionedTool {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    async fn execute(&self, ctx: &CallContext, _input: &Value) -> Result<Value, ToolError> {
        Ok(self.note(ctx, "execute"))
    }

    async fn rollback(&self, ctx: &CallContext, _done: &CompletedCall) -> Result<Value, ToolError> {
        Ok(self.note(ctx, "rollback"))
    }
}
