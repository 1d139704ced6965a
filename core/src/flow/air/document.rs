//! The parts of an AIR document, as they are written.
//!
//! These types carry what the author wrote, with defaults filled in; they are not checked against
//! anything but their own shape. Writing a document out again leaves defaults away, so two texts
//! that mean the same have one digest.

use serde_json::{Map, Value};

/// A workflow.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Version of the format: `1.0` (or `0.1`, which is the same).
    pub air_version: String,
    /// Name of the workflow.
    pub workflow_id: String,
    /// What it is for.
    pub description: Option<String>,
    /// JSON Schema of a run's inputs.
    pub inputs: Option<Value>,
    /// Templates of a run's outputs; without them, the outputs of the last nodes by node id.
    pub outputs: Option<Map<String, Value>>,
    /// How long a run may take.
    pub timeout_seconds: Option<u32>,
    /// What is done.
    pub nodes: Vec<Node>,
    /// In which order.
    pub edges: Vec<Edge>,
}

/// One thing that is done.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its name, unique in the document.
    pub id: String,
    /// What it does.
    pub body: Body,
    /// When it may start, if several edges lead to it.
    pub join: Join,
    /// A durable wait before it starts.
    pub delay_seconds: u32,
    /// How long one try may take.
    pub timeout_seconds: Option<u32>,
    /// How often it is tried again.
    pub retry: Option<Retry>,
    /// Approval that this node needs even where its tool doesn't.
    pub requires_approval: Option<Approval>,
}

/// What a node does.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Calls a tool.
    Function(Function),
    /// Asks a person.
    Hitl(Hitl),
    /// Starts another workflow and waits for it.
    Workflow(Child),
    /// Does one thing for each item of a list.
    Map(Each),
    /// Runs a sandboxed agent; its members are kept as written.
    Agent(Map<String, Value>),
    /// Pursues a goal by a swarm; its members are kept as written.
    Swarm(Map<String, Value>),
}

impl Body {
    /// The word of `type`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Function(_) => "function",
            Self::Hitl(_) => "hitl",
            Self::Workflow(_) => "workflow",
            Self::Map(_) => "map",
            Self::Agent(_) => "agent",
            Self::Swarm(_) => "swarm",
        }
    }
}

/// When a node with several incoming edges may start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Join {
    /// When every edge is decided and at least one was taken.
    #[default]
    All,
    /// As soon as one edge is taken.
    Any,
}

/// How often a node is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Tries after the first.
    pub max: u32,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Name of the tool; `fn` on the wire.
    pub tool: String,
    /// Templates of its input.
    pub inputs: Map<String, Value>,
    /// Whether an earlier answer may be used again.
    pub cache: Option<Cache>,
}

/// How long an answer may be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Seconds; without it, until it is invalidated.
    pub ttl_seconds: Option<u32>,
}

/// A question to a person.
#[derive(Clone, Debug, PartialEq)]
pub struct Hitl {
    /// Template of the question.
    pub prompt: Option<String>,
    /// Template of what the person is shown.
    pub show: Option<Value>,
    /// Who may decide.
    pub approval: Approval,
}

/// Who must agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// How many people.
    pub approvals_needed: u32,
    /// Patterns of actors that may decide; empty means any person.
    pub approvers: Vec<String>,
    /// The person who asked may not decide.
    pub other_than_requester: bool,
    /// How long the question stands.
    pub expires_seconds: Option<u32>,
}

impl Default for Approval {
    fn default() -> Self {
        Self { approvals_needed: 1, approvers: Vec::new(), other_than_requester: false, expires_seconds: None }
    }
}

/// A run of another workflow.
#[derive(Clone, Debug, PartialEq)]
pub struct Child {
    /// Its name.
    pub workflow_id: String,
    /// Its version; without it, the newest when the outermost run was asked for.
    pub version: Option<i64>,
    /// Templates of its inputs.
    pub inputs: Map<String, Value>,
}

/// One thing for each item of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Each {
    /// Template that gives the list.
    pub over: Value,
    /// How many at a time.
    pub max_parallel: u32,
    /// What is done; `do` on the wire. Its templates see `item` and `index`.
    pub item: Item,
}

/// What is done for one item.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// Calls a tool.
    Function(Function),
    /// Starts another workflow.
    Workflow(Child),
}

/// A way from one node to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Where it starts.
    pub from: String,
    /// Where it leads.
    pub to: String,
    /// `${…}` that must be true for it to be taken.
    pub condition: Option<String>,
}

impl Node {
    /// The tool that this node calls, alone or for each item.
    #[must_use]
    pub const fn function(&self) -> Option<&Function> {
        match &self.body {
            Body::Function(function) => Some(function),
            Body::Map(each) => match &each.item {
                Item::Function(function) => Some(function),
                Item::Workflow(_) => None,
            },
            _ => None,
        }
    }

    /// Names the version of the workflow that this node starts, if it does not say.
    pub const fn pin(&mut self, newest: i64) {
        let child = match &mut self.body {
            Body::Workflow(child) => child,
            Body::Map(each) => match &mut each.item {
                Item::Workflow(child) => child,
                Item::Function(_) => return,
            },
            _ => return,
        };
        if child.version.is_none() {
            child.version = Some(newest);
        }
    }

    /// The workflow that this node starts, alone or for each item.
    #[must_use]
    pub const fn child(&self) -> Option<&Child> {
        match &self.body {
            Body::Workflow(child) => Some(child),
            Body::Map(each) => match &each.item {
                Item::Workflow(child) => Some(child),
                Item::Function(_) => None,
            },
            _ => None,
        }
    }
}
