//! The types of an AIR document.
//!
//! They hold what the author wrote, with defaults filled in, and are validated only for their own
//! shape. Serialization omits defaults, so equivalent texts have the same digest.

use super::judge::Judge;
use super::logging::ExecutionLogging;
use super::problem::{DocumentProblem, Problems};
use super::{parse, write};
use crate::words::words;
use serde_json::{Map, Value, json};

#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// The format version: `1.0`, or `0.1`, which means the same.
    pub air_version: String,
    pub workflow_id: String,
    pub description: Option<String>,
    /// The JSON Schema of a run's inputs.
    pub inputs: Option<Value>,
    /// The templates of a run's outputs. Without them, a run returns the outputs of its sink nodes by node id.
    pub outputs: Option<Map<String, Value>>,
    pub timeout_seconds: Option<u32>,
    /// The records that the calls of a run leave. Without it, none.
    pub log_executions: Option<ExecutionLogging>,
    pub nodes: Vec<Node>,
    pub edges: Vec<Edge>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Unique in the document.
    pub id: String,
    pub body: Body,
    pub join: Join,
    /// A durable delay before it starts.
    pub delay_seconds: u32,
    /// The timeout of one attempt.
    pub timeout_seconds: Option<u32>,
    pub retry: Option<Retry>,
    /// The approval that this node needs in addition to what its tool requires.
    pub requires_approval: Option<Approval>,
    /// Decides on what it sends or returns. In a map, on each item.
    pub judge: Option<Box<Judge>>,
    /// The priority of its calls, instead of the run's.
    pub priority: Option<i32>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Calls a tool.
    Function(Function),
    /// Asks a person (human in the loop).
    Hitl(Hitl),
    /// Starts a child run of a workflow and waits for it.
    Workflow(ChildWorkflow),
    /// Calls a tool or starts a workflow for each item of a list.
    Map(MapBody),
    /// Waits for a time or an event.
    Wait(Wait),
    /// Runs a sandboxed agent. Its members are kept verbatim.
    Agent(Map<String, Value>),
    /// Pursues a goal with a swarm. Its members are kept verbatim.
    Swarm(Map<String, Value>),
}

words! {
    /// The type of a node, as on the wire.
    NodeKind {
        Function = "function",
        Hitl = "hitl",
        Workflow = "workflow",
        Map = "map",
        Wait = "wait",
        Agent = "agent",
        Swarm = "swarm",
    }
}

impl Body {
    /// The value of `type` on the wire.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        self.node_kind().as_str()
    }

    #[must_use]
    pub const fn node_kind(&self) -> NodeKind {
        match self {
            Self::Function(_) => NodeKind::Function,
            Self::Hitl(_) => NodeKind::Hitl,
            Self::Workflow(_) => NodeKind::Workflow,
            Self::Map(_) => NodeKind::Map,
            Self::Wait(_) => NodeKind::Wait,
            Self::Agent(_) => NodeKind::Agent,
            Self::Swarm(_) => NodeKind::Swarm,
        }
    }
}

/// When a node with several incoming edges may start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Join {
    /// When every edge is decided and at least one is taken.
    #[default]
    All,
    /// As soon as one edge is taken.
    Any,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Retries after the first attempt.
    pub max: u32,
}

/// A tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// `fn` on the wire.
    pub tool: String,
    pub inputs: Map<String, Value>,
    /// Whether a cached output may be used.
    pub cache: Option<Cache>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// `None`: until it is invalidated.
    pub ttl_seconds: Option<u32>,
}

/// A question to a person.
#[derive(Clone, Debug, PartialEq)]
pub struct Hitl {
    pub prompt: Option<String>,
    /// The template of the data shown with the prompt.
    pub show: Option<Value>,
    pub approval: Approval,
}

/// Who must approve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    pub approvals_needed: u32,
    /// Patterns of actors that may decide. Empty: any person.
    pub approvers: Vec<String>,
    /// Whether the requester is excluded.
    pub other_than_requester: bool,
    /// The lifetime of the approval request.
    pub expires_seconds: Option<u32>,
}

impl Default for Approval {
    fn default() -> Self {
        Self { approvals_needed: 1, approvers: Vec::new(), other_than_requester: false, expires_seconds: None }
    }
}

/// A child run of a workflow.
#[derive(Clone, Debug, PartialEq)]
pub struct ChildWorkflow {
    pub workflow_id: String,
    /// `None`: the newest version when the root run was requested.
    pub version: Option<i64>,
    pub inputs: Map<String, Value>,
}

/// The body of a map node.
#[derive(Clone, Debug, PartialEq)]
pub struct MapBody {
    /// The template of the list.
    pub over: Value,
    pub max_parallel: u32,
    /// `do` on the wire. Its templates can read `item` and `index`.
    pub item: MapItem,
}

/// What a map does for one item.
#[derive(Clone, Debug, PartialEq)]
pub enum MapItem {
    Function(Function),
    Workflow(ChildWorkflow),
}

/// What a wait node waits for.
#[derive(Clone, Debug, PartialEq)]
pub enum Wait {
    /// The template of an RFC 3339 time.
    Until(Value),
    /// The template of a number of seconds.
    ForSeconds(Value),
    Event(EventWait),
}

/// An event that somebody publishes. The timeout is that of the node.
#[derive(Clone, Debug, PartialEq)]
pub struct EventWait {
    pub name: String,
    /// The template of its key.
    pub key: Value,
    pub on_timeout: TimeoutPolicy,
}

words! {
    /// What a wait without its event does after its timeout.
    TimeoutPolicy {
        /// The node fails.
        Fail = "fail",
        /// The node completes without an event.
        Continue = "continue",
    }
}

impl Wait {
    /// The templates of its members, as in the document.
    #[must_use]
    pub fn templates(&self) -> Value {
        match self {
            Self::Until(until) => json!({"until": until}),
            Self::ForSeconds(seconds) => json!({"for_seconds": seconds}),
            Self::Event(event) => json!({"event": {"name": event.name, "key": event.key}}),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    pub from: String,
    pub to: String,
    /// The edge is taken if this `${…}` is true.
    pub condition: Option<String>,
}

impl Document {
    pub fn from_value(value: Value) -> Result<Self, Vec<DocumentProblem>> {
        let mut out = Problems::default();
        match parse::read_document(value, &mut out) {
            Some(document) => out.into_result(document),
            None => Err(out.into_vec()),
        }
    }

    #[must_use]
    pub fn to_value(&self) -> Value {
        write::write_document(self)
    }
}

impl Node {
    #[must_use]
    pub fn to_value(&self) -> Value {
        write::write_node(self)
    }

    /// The tool call of this node, directly or for each item of its map.
    #[must_use]
    pub const fn function(&self) -> Option<&Function> {
        match &self.body {
            Body::Function(function) => Some(function),
            Body::Map(each) => match &each.item {
                MapItem::Function(function) => Some(function),
                MapItem::Workflow(_) => None,
            },
            _ => None,
        }
    }

    /// Sets the version of the child workflow if the node gives none.
    pub const fn pin(&mut self, newest: i64) {
        let child = match &mut self.body {
            Body::Workflow(child) => child,
            Body::Map(each) => match &mut each.item {
                MapItem::Workflow(child) => child,
                MapItem::Function(_) => return,
            },
            _ => return,
        };
        if child.version.is_none() {
            child.version = Some(newest);
        }
    }

    /// The child workflow of this node, directly or for each item of its map.
    #[must_use]
    pub const fn child(&self) -> Option<&ChildWorkflow> {
        match &self.body {
            Body::Workflow(child) => Some(child),
            Body::Map(each) => match &each.item {
                MapItem::Workflow(child) => Some(child),
                MapItem::Function(_) => None,
            },
            _ => None,
        }
    }
}
