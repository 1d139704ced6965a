//! Writes a document as JSON, omitting defaults.

use super::document::{
    Approval, Body, Cache, ChildWorkflow, Document, Edge, Function, Hitl, Join, MapBody, MapItem, Node, TimeoutPolicy,
    Wait,
};
use super::judge::{Judge, write_judge};
use super::logging::ExecutionLogging;
use crate::limits;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

type Object = Map<String, Value>;

fn put(object: &mut Object, name: &str, value: impl Into<Value>) {
    object.insert(name.to_owned(), value.into());
}

fn put_some<T: Into<Value>>(object: &mut Object, name: &str, value: Option<T>) {
    if let Some(value) = value {
        put(object, name, value);
    }
}

pub(super) fn write_document(document: &Document) -> Value {
    let mut out = Object::new();
    put(&mut out, "air_version", document.air_version.as_str());
    put(&mut out, "workflow_id", document.workflow_id.as_str());
    put_some(&mut out, "description", document.description.as_deref());
    put_some(&mut out, "inputs", document.inputs.clone());
    put_some(&mut out, "outputs", document.outputs.clone());
    put_some(&mut out, "timeout_seconds", document.timeout_seconds);
    put_some(&mut out, "log_executions", document.log_executions.as_ref().map(ExecutionLogging::to_value));
    put(&mut out, "nodes", document.nodes.iter().map(Node::to_value).collect::<Vec<_>>());
    put(&mut out, "edges", document.edges.iter().map(Edge::to_value).collect::<Vec<_>>());
    Value::Object(out)
}

pub(super) fn write_node(node: &Node) -> Value {
    let mut out = Object::new();
    match &node.body {
        Body::Function(function) => write_function(&mut out, function),
        Body::Hitl(hitl) => write_hitl(&mut out, hitl),
        Body::Workflow(child) => write_child(&mut out, child),
        Body::Map(each) => write_each(&mut out, each, node.judge.as_deref()),
        Body::Wait(wait) => write_wait(&mut out, wait),
        Body::Agent(members) | Body::Swarm(members) => out.extend(members.clone()),
    }
    put(&mut out, "id", node.id.as_str());
    put(&mut out, "type", node.body.kind());
    if node.join == Join::Any {
        put(&mut out, "join", "any");
    }
    if node.delay_seconds > 0 {
        put(&mut out, "delay_seconds", node.delay_seconds);
    }
    put_some(&mut out, "timeout_seconds", node.timeout_seconds);
    put_some(&mut out, "retry", node.retry.map(|retry| json!({"max": retry.max})));
    put_some(&mut out, "requires_approval", node.requires_approval.as_ref().map(write_approval));
    if !matches!(node.body, Body::Map(_)) {
        put_some(&mut out, "judge", node.judge.as_deref().map(write_judge));
    }
    put_some(&mut out, "priority", node.priority);
    Value::Object(out)
}

impl Edge {
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut out = Object::new();
        put(&mut out, "from", self.from.as_str());
        put(&mut out, "to", self.to.as_str());
        put_some(&mut out, "condition", self.condition.as_deref());
        Value::Object(out)
    }
}

fn write_function(out: &mut Object, function: &Function) {
    put(out, "fn", function.tool.as_str());
    if !function.inputs.is_empty() {
        put(out, "inputs", function.inputs.clone());
    }
    put_some(out, "cache", function.cache.map(write_cache));
}

fn write_cache(cache: Cache) -> Value {
    let mut out = Object::new();
    put_some(&mut out, "ttl_seconds", cache.ttl_seconds);
    Value::Object(out)
}

fn write_hitl(out: &mut Object, hitl: &Hitl) {
    put_some(out, "prompt", hitl.prompt.as_deref());
    put_some(out, "show", hitl.show.clone());
    if hitl.approval != Approval::default() {
        put(out, "approval", write_approval(&hitl.approval));
    }
}

pub(super) fn write_approval(approval: &Approval) -> Value {
    let mut out = Object::new();
    if approval.approvals_needed != 1 {
        put(&mut out, "approvals_needed", approval.approvals_needed);
    }
    if !approval.approvers.is_empty() {
        put(&mut out, "approvers", approval.approvers.clone());
    }
    if approval.other_than_requester {
        put(&mut out, "other_than_requester", true);
    }
    put_some(&mut out, "expires_seconds", approval.expires_seconds);
    Value::Object(out)
}

fn write_child(out: &mut Object, child: &ChildWorkflow) {
    put(out, "workflow_id", child.workflow_id.as_str());
    put_some(out, "version", child.version);
    if !child.inputs.is_empty() {
        put(out, "inputs", child.inputs.clone());
    }
}

fn write_wait(out: &mut Object, wait: &Wait) {
    if let Value::Object(members) = wait.templates() {
        out.extend(members);
    }
    if let Wait::Event(event) = wait
        && event.on_timeout != TimeoutPolicy::Fail
    {
        put(out, "on_timeout", event.on_timeout.as_str());
    }
}

fn write_each(out: &mut Object, each: &MapBody, judge: Option<&Judge>) {
    put(out, "over", each.over.clone());
    if each.max_parallel != limits::MAP_PARALLEL_DEFAULT {
        put(out, "max_parallel", each.max_parallel);
    }
    let mut item = Object::new();
    match &each.item {
        MapItem::Function(function) => {
            put(&mut item, "type", "function");
            write_function(&mut item, function);
        }
        MapItem::Workflow(child) => {
            put(&mut item, "type", "workflow");
            write_child(&mut item, child);
        }
    }
    put_some(&mut item, "judge", judge.map(write_judge));
    put(out, "do", item);
}

impl Serialize for Document {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_value().serialize(serializer)
    }
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_value().serialize(serializer)
    }
}

impl Serialize for Edge {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_value().serialize(serializer)
    }
}
