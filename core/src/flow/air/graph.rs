//! A compiled workflow: immutable, and shared by all runs of its version.
//!
//! Nodes and edges are identified by their position in the document, so that a run's state can be a
//! plain list. A patch appends, so positions stay. Removing a patch shifts the positions of nodes
//! that a later patch added.

use super::catalog::WorkflowInfo;
use super::compile::type_of_sinks;
use super::document::{Body, Document, Node};
use super::judge::SharedJudge;
use super::problem::{DocumentProblem, ProblemCode, Problems};
use crate::flow::expr::{Template, Type};
use crate::json::Digest32;
use crate::json::schema::Schema;
use crate::tool::Spec;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct Graph {
    pub document: Document,
    /// SHA-256 of the document's canonical JSON.
    pub digest: Digest32,
    /// In document order.
    pub nodes: Vec<CompiledNode>,
    /// In document order.
    pub edges: Vec<CompiledEdge>,
    pub input_schema: Option<Arc<Schema>>,
    /// The template of a run's outputs.
    pub outputs: Option<Template>,
    pub output_type: Type,
    /// The number of nodes that start child runs.
    pub child_nodes: usize,
    /// Whether a turn may use much CPU time: an expression iterates over lists, or the inputs are costly to validate.
    pub may_take_long: bool,
    pub(super) index: BTreeMap<String, usize>,
}

#[derive(Clone, Debug)]
pub struct CompiledNode {
    pub node: Node,
    /// The template of the input of the tool or child run. In a map, of one item.
    pub inputs: Option<Template>,
    /// The template of a map's list.
    pub over: Option<Template>,
    /// The template of a `hitl` node's question.
    pub prompt: Option<Template>,
    /// The template of the data shown with the question.
    pub show: Option<Template>,
    /// The tool it calls, directly or for each item of its map.
    pub tool: Option<Arc<Spec>>,
    /// Decides on what it sends or returns. In a map, on each item.
    pub judge: Option<SharedJudge>,
    /// The tool is not configured in this process, and `tool` is a placeholder.
    pub is_tool_absent: bool,
    pub output_type: Type,
    /// Positions of the incoming edges.
    pub incoming: Vec<usize>,
    /// Positions of the outgoing edges.
    pub outgoing: Vec<usize>,
}

#[derive(Clone, Debug)]
pub struct CompiledEdge {
    /// The position of the start node.
    pub from: usize,
    /// The position of the end node.
    pub to: usize,
    /// The edge is taken if this is true.
    pub condition: Option<Template>,
}

impl Graph {
    /// The position of the node with this id.
    #[must_use]
    pub fn position(&self, id: &str) -> Option<usize> {
        self.index.get(id).copied()
    }

    /// Positions of the nodes without incoming edges.
    pub fn roots(&self) -> impl Iterator<Item = usize> {
        self.nodes.iter().enumerate().filter(|(_, node)| node.incoming.is_empty()).map(|(at, _)| at)
    }

    /// Positions of the nodes without outgoing edges.
    pub fn sinks(&self) -> impl Iterator<Item = usize> {
        self.nodes.iter().enumerate().filter(|(_, node)| node.outgoing.is_empty()).map(|(at, _)| at)
    }

    /// Positions of the nodes, in topological order.
    #[must_use]
    pub fn topological_order(&self) -> Vec<usize> {
        let mut waiting: Vec<usize> = self.nodes.iter().map(|node| node.incoming.len()).collect();
        let mut queue: VecDeque<usize> = self.roots().collect();
        let mut order = Vec::with_capacity(waiting.len());
        while let Some(node) = queue.pop_front() {
            order.push(node);
            for edge in &self.nodes[node].outgoing {
                let to = self.edges[*edge].to;
                waiting[to] -= 1;
                if waiting[to] == 0 {
                    queue.push_back(to);
                }
            }
        }
        order
    }

    /// The first node of a type that is not supported yet.
    #[must_use]
    pub fn unsupported_node(&self) -> Option<&Node> {
        let unsupported = |node: &&Node| matches!(node.body, Body::Agent(_) | Body::Swarm(_));
        self.nodes.iter().map(|node| &node.node).find(unsupported)
    }

    /// The same, as a problem.
    #[must_use]
    pub fn unsupported_problem(&self) -> Option<DocumentProblem> {
        let node = self.unsupported_node()?;
        let path = format!("/nodes/{}/type", self.position(&node.id)?);
        let reason = format!("node {} has the type {}, which is not supported yet", node.id, node.body.kind());
        Some(DocumentProblem::new(ProblemCode::UnsupportedNode, path, reason))
    }

    /// The graph without these nodes and their edges. The others stay compiled as they are, in the same
    /// order.
    pub(crate) fn without(&self, gone: &BTreeSet<&str>) -> Result<Self, Vec<DocumentProblem>> {
        let stays = |node: &CompiledNode| !gone.contains(node.node.id.as_str());
        let mut document = self.document.clone();
        document.nodes.retain(|node| !gone.contains(node.id.as_str()));
        document.edges.retain(|edge| !gone.contains(edge.from.as_str()) && !gone.contains(edge.to.as_str()));
        let mut nodes: Vec<CompiledNode> = self.nodes.iter().filter(|node| stays(node)).cloned().collect();
        let index: BTreeMap<String, usize> =
            nodes.iter().enumerate().map(|(at, node)| (node.node.id.clone(), at)).collect();
        nodes.iter_mut().for_each(|node| {
            node.incoming.clear();
            node.outgoing.clear();
        });
        let mut edges = Vec::with_capacity(document.edges.len());
        for edge in &self.edges {
            let place = |at: usize| index.get(&self.nodes[at].node.id).copied();
            if let (Some(from), Some(to)) = (place(edge.from), place(edge.to)) {
                nodes[from].outgoing.push(edges.len());
                nodes[to].incoming.push(edges.len());
                edges.push(CompiledEdge { from, to, condition: edge.condition.clone() });
            }
        }
        let out = Problems::default();
        let digest = Digest32::of(&document.to_value());
        // The templates of the outputs name no node that a patch added.
        let output_type = if self.outputs.is_some() { self.output_type.clone() } else { type_of_sinks(&nodes) };
        let (input_schema, outputs) = (self.input_schema.clone(), self.outputs.clone());
        let (nests, may_take_long) = (
            count_child_nodes(&nodes),
            has_loops(&nodes, &edges, outputs.as_ref()) || is_costly(input_schema.as_deref()),
        );
        out.into_result(Self {
            document,
            digest,
            nodes,
            edges,
            input_schema,
            outputs,
            output_type,
            child_nodes: nests,
            may_take_long,
            index,
        })
    }

    /// Bytes that the compiled patterns of its schemas take at most.
    #[must_use]
    pub fn pattern_bytes(&self) -> usize {
        let judges = self.nodes.iter().filter_map(|node| node.judge.as_ref()).map(|judge| judge.pattern_bytes());
        judges.fold(self.input_schema.as_ref().map_or(0, |schema| schema.pattern_bytes()), usize::saturating_add)
    }

    /// The interface of this workflow, for workflows that start it.
    #[must_use]
    pub fn info(&self) -> WorkflowInfo {
        WorkflowInfo::Interface { inputs: self.input_schema.clone(), outputs: self.output_type.clone() }
    }
}

/// Whether validating a run's inputs may take long.
pub(super) fn is_costly(inputs: Option<&Schema>) -> bool {
    inputs.is_some_and(Schema::is_expensive)
}

/// Whether an expression of the graph iterates over lists, or a judge is costly.
pub(super) fn has_loops(nodes: &[CompiledNode], edges: &[CompiledEdge], outputs: Option<&Template>) -> bool {
    let of_node = |node: &CompiledNode| {
        let judges = node.judge.as_ref().is_some_and(|judge| judge.is_costly());
        judges || [&node.inputs, &node.over, &node.prompt, &node.show].into_iter().flatten().any(Template::loops)
    };
    let of_edge = |edge: &CompiledEdge| edge.condition.as_ref().is_some_and(Template::loops);
    nodes.iter().any(of_node) || edges.iter().any(of_edge) || outputs.is_some_and(Template::loops)
}

/// The number of nodes that start child runs.
pub(super) fn count_child_nodes(nodes: &[CompiledNode]) -> usize {
    nodes.iter().filter(|compiled| compiled.node.child().is_some()).count()
}
