//! Tools that workers outside execute, declared in a file with `kind = "worker"`.
//!
//! Such a tool has no address: its calls become work items of a queue. The process itself only answers dry runs, with a
//! mock response.

use super::load::{FilePosition, check_entry, definition, definition_version, destinations, parse};
use super::{DeclareError, FileTool};
use async_trait::async_trait;
use chimera_core::error::Code;
use chimera_core::json::schema::Schema;
use chimera_core::limits::{
    DECLARED_TOOLS_MAX, WORK_LEASE_SECONDS_DEFAULT, WORK_LEASE_SECONDS_MAX, WORK_QUEUE_CHARS_MAX,
    WORK_TIMEOUT_SECONDS_MAX,
};
use chimera_core::tool::{EffectKind, Execution, Metadata, Rollback, Spec, WorkerQueue, with_dry_run};
use chimera_engine::flow::port::{CallContext, Tool, ToolError};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The value of `kind` in such a file.
pub(super) const KIND: &str = "worker";

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkerFile {
    #[serde(rename = "kind")]
    _kind: String,
    queue: String,
    #[serde(default = "lease_seconds")]
    lease_seconds: u32,
    #[serde(rename = "tool")]
    tools: Vec<WorkerEntry>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkerEntry {
    name: String,
    version: String,
    description: String,
    effect: EffectKind,
    /// From the queue to the outcome.
    timeout_seconds: u32,
    metadata: Metadata,
    input: Value,
    output: Value,
}

const fn lease_seconds() -> u32 {
    WORK_LEASE_SECONDS_DEFAULT
}

/// A tool that workers execute.
pub struct WorkerTool {
    spec: Arc<Spec>,
}

/// The tools of a document of this kind.
pub(super) fn worker_tools(document: &Value, at: &FilePosition<'_>) -> Result<Vec<FileTool>, DeclareError> {
    let file: WorkerFile = parse(document, at)?;
    at.child("tool").demand(
        (1..=DECLARED_TOOLS_MAX).contains(&file.tools.len()),
        &format!("a file has 1 to {DECLARED_TOOLS_MAX} tools"),
    )?;
    let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-');
    let named = (1..=WORK_QUEUE_CHARS_MAX).contains(&file.queue.len()) && file.queue.bytes().all(inside);
    at.child("queue").demand(named, &format!("1 to {WORK_QUEUE_CHARS_MAX} characters of a-z, 0-9, '_' and '-'"))?;
    let leased = (1..=WORK_LEASE_SECONDS_MAX).contains(&file.lease_seconds);
    at.child("lease_seconds").demand(leased, &format!("1 to {WORK_LEASE_SECONDS_MAX}"))?;
    let mut names = BTreeSet::new();
    file.tools
        .iter()
        .enumerate()
        .map(|(index, entry)| {
            let at = at.child("tool").child(&entry.name);
            at.demand(names.insert(&entry.name), "duplicate tool name")?;
            let mut spec = worker_spec(entry, &file, &at)?;
            let definition = definition(document, index, Value::Null);
            spec.version = definition_version(&entry.version, &definition);
            Ok(FileTool { tool: Arc::new(WorkerTool { spec: Arc::new(spec) }), definition: Arc::new(definition) })
        })
        .collect()
}

fn worker_spec(entry: &WorkerEntry, file: &WorkerFile, at: &FilePosition<'_>) -> Result<Spec, DeclareError> {
    check_entry(&entry.name, entry.effect, &entry.metadata, &entry.input, at)?;
    let timed = (1..=WORK_TIMEOUT_SECONDS_MAX).contains(&entry.timeout_seconds);
    at.child("timeout_seconds").demand(timed, &format!("1 to {WORK_TIMEOUT_SECONDS_MAX}"))?;
    at.child("metadata.dry_run_supported")
        .demand(!entry.metadata.dry_run_supported, "a dry run of a worker's tool is always a mock response")?;
    destinations(&entry.input, &at.child("input"))?;
    Ok(Spec {
        name: entry.name.clone(),
        version: entry.version.clone(),
        description: entry.description.clone(),
        metadata: entry.metadata.clone(),
        effect: entry.effect,
        reads_when: None,
        checkable: false,
        rollback: Rollback::Unsupported,
        timeout_ms: u64::from(entry.timeout_seconds) * 1_000,
        execution: Execution::Workers(WorkerQueue { name: file.queue.clone(), lease_seconds: file.lease_seconds }),
        input: at.child("input").ok(Schema::compile(with_dry_run(entry.input.clone())))?,
        output: at.child("output").ok(Schema::compile(entry.output.clone()))?,
    })
}

#[async_trait]
impl Tool for WorkerTool {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    async fn execute(&self, _: &CallContext, _: &Value) -> Result<Value, ToolError> {
        let message = format!("{} is executed by workers, not by this process", self.spec.name);
        Err(ToolError::not_sent(Code::ToolUnavailable, message))
    }
}
