//! Fixtures of this room: tools with realistic schemas, short documents, and a run's values.

use crate::given::{closed, tool};
use chimera_core::flow::air::{Catalog, Document, DocumentProblem, Graph, WorkflowInfo, compile};
use chimera_core::tool::{EffectKind, Spec};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A catalog of tools and child workflows.
#[derive(Default)]
pub(super) struct Tools {
    tools: BTreeMap<String, Arc<Spec>>,
    pub(super) workflows: BTreeMap<String, WorkflowInfo>,
}

impl Catalog for Tools {
    fn tool(&self, name: &str) -> Option<Arc<Spec>> {
        self.tools.get(name).cloned()
    }

    fn workflow(&self, id: &str, _: Option<i64>) -> WorkflowInfo {
        self.workflows.get(id).cloned().unwrap_or(WorkflowInfo::Missing)
    }

    fn tool_names(&self) -> Vec<String> {
        self.tools.keys().cloned().collect()
    }
}

impl Tools {
    pub(super) fn with(mut self, name: &'static str, effect: EffectKind, input: Value, output: Value) -> Self {
        self.tools.insert(name.to_owned(), tool(name, effect, input, output));
        self
    }

    pub(super) fn with_workflow(mut self, id: &str, known: WorkflowInfo) -> Self {
        self.workflows.insert(id.to_owned(), known);
        self
    }
}

/// Tools with schemas like the shipped ones.
pub(super) fn tools() -> Tools {
    let text = json!({"type": "string"});
    let words = json!({"type": "array", "items": text});
    let mut echo = closed(json!({"message": text, "value": true}), &[]);
    echo["anyOf"] = json!([{"required": ["message"]}, {"required": ["value"]}]);
    let summary = json!({"text": {"type": "string", "minLength": 1}, "sentences": {"type": "integer", "minimum": 1, "maximum": 50}});
    let summarized = json!({"summary": text, "sentences": words, "sentences_in_text": {"type": "integer"}});
    let pdf = json!({"markdown": text, "title": text, "page_size": {"enum": ["A4", "Letter"]}});
    let made = json!({"artifact": text, "bytes": {"type": "integer"}, "pages": {"type": "integer"}});
    let request = json!({"method": {"enum": ["GET", "POST"]}, "url": {"type": "string", "minLength": 8}, "body": true, "headers": {"type": "object"}});
    let answer = json!({"type": "object", "properties": {"status": {"type": "integer"}, "body": true}});
    let mail = json!({"to": text, "subject": text, "body": text, "attachments": words});
    let upload = json!({"content": text, "content_type": text, "bucket": text, "key_template": text, "artifact": text});
    Tools::default()
        .with("local.echo", EffectKind::Pure, echo, closed(json!({"message": text, "value": true}), &[]))
        .with("local.summarize", EffectKind::Pure, closed(summary, &["text"]), closed(summarized, &["summary"]))
        .with("local.markdown_to_pdf", EffectKind::Pure, closed(pdf, &["markdown"]), closed(made, &["artifact"]))
        .with("http.request", EffectKind::Write, closed(request, &["url"]), answer)
        .with(
            "email_send",
            EffectKind::Write,
            closed(mail, &["to", "subject"]),
            closed(json!({"message_id": text}), &[]),
        )
        .with(
            "slack_post",
            EffectKind::Write,
            closed(json!({"channel_alias": text, "text": text}), &["text"]),
            closed(json!({"ts": text}), &[]),
        )
        .with(
            "s3_upload",
            EffectKind::Write,
            closed(upload, &["bucket", "key_template"]),
            closed(json!({"success": {"type": "boolean"}, "key": text, "url": text}), &["key", "url"]),
        )
}

/// A workflow with these nodes and edges.
pub(super) fn document(nodes: Value, edges: Value) -> Value {
    json!({"air_version": "1.0", "workflow_id": "w", "nodes": nodes, "edges": edges})
}

/// Parses and compiles.
pub(super) fn compiled(document: Value) -> Result<Graph, Vec<DocumentProblem>> {
    compile(Document::from_value(document)?, &tools())
}

/// Code, path and reason of every problem.
pub(super) fn problems(document: Value) -> Vec<(&'static str, String, String)> {
    let told = compiled(document).map(drop).unwrap_err();
    told.into_iter().map(|problem| (problem.code.as_str(), problem.path, problem.reason)).collect()
}

/// The only problem of a document.
pub(super) fn problem(document: Value) -> (&'static str, String, String) {
    let mut all = problems(document);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

/// A node that echoes something.
pub(super) fn echo(id: &str, value: Value) -> Value {
    json!({"id": id, "type": "function", "fn": "local.echo", "inputs": {"value": value}})
}
