//! A workflow after compilation: immutable, and shared by all runs of its version.
//!
//! Nodes and edges are meant by position, in the order of the document, so that a run's state can
//! be a plain list. A patch appends, so positions stay; taking it out again moves those of nodes that
//! a later patch added.

use super::catalog::Known;
use super::compile::output_type;
use super::document::{Body, Document, Node};
use super::problem::{Problem, ProblemCode, Problems};
use crate::flow::expr::{Template, Type};
use crate::json::Digest32;
use crate::json::schema::Schema;
use crate::tool::Spec;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// A compiled workflow.
#[derive(Clone, Debug)]
pub struct Graph {
    /// What it was compiled from.
    pub document: Document,
    /// SHA-256 of the document's canonical JSON.
    pub digest: Digest32,
    /// The nodes, in the document's order.
    pub nodes: Vec<CompiledNode>,
    /// The edges, in the document's order.
    pub edges: Vec<CompiledEdge>,
    /// Schema of a run's inputs.
    pub input_schema: Option<Arc<Schema>>,
    /// Template of a run's outputs.
    pub outputs: Option<Template>,
    /// Type of a run's outputs.
    pub output_type: Type,
    /// How many nodes start other runs.
    pub nests: usize,
    /// Whether a turn may keep a processor busy: an expression goes over lists, or the inputs are costly to check.
    pub may_take_long: bool,
    pub(super) index: BTreeMap<String, usize>,
}

/// A compiled node.
#[derive(Clone, Debug)]
pub struct CompiledNode {
    /// As it was written.
    pub node: Node,
    /// Template of what the tool or child is given; inside a map, for one item.
    pub inputs: Option<Template>,
    /// Template of the list that a map walks over.
    pub over: Option<Template>,
    /// Template of the question to a person.
    pub prompt: Option<Template>,
    /// Template of what a person is shown.
    pub show: Option<Template>,
    /// The tool it calls, alone or for each item.
    pub tool: Option<Arc<Spec>>,
    /// The tool is not set up in this process, and `tool` only stands in for it.
    pub is_tool_absent: bool,
    /// Type of its outputs.
    pub output_type: Type,
    /// Positions of the edges that lead here.
    pub incoming: Vec<usize>,
    /// Positions of the edges that start here.
    pub outgoing: Vec<usize>,
}

/// A compiled edge.
#[derive(Clone, Debug)]
pub struct CompiledEdge {
    /// Position of the node where it starts.
    pub from: usize,
    /// Position of the node where it leads.
    pub to: usize,
    /// What must be true for it to be taken.
    pub condition: Option<Template>,
}

impl Graph {
    /// Where the node of this name stands.
    #[must_use]
    pub fn position(&self, id: &str) -> Option<usize> {
        self.index.get(id).copied()
    }

    /// Positions of the nodes that no edge leads to.
    pub fn roots(&self) -> impl Iterator<Item = usize> {
        self.nodes.iter().enumerate().filter(|(_, node)| node.incoming.is_empty()).map(|(at, _)| at)
    }

    /// Positions of the nodes that no edge starts from.
    pub fn sinks(&self) -> impl Iterator<Item = usize> {
        self.nodes.iter().enumerate().filter(|(_, node)| node.outgoing.is_empty()).map(|(at, _)| at)
    }

    /// Positions of the nodes, each behind all that lead to it.
    #[must_use]
    pub fn in_order(&self) -> Vec<usize> {
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

    /// The first node of a kind that can't run yet.
    #[must_use]
    pub fn unsupported(&self) -> Option<&Node> {
        let unsupported = |node: &&Node| matches!(node.body, Body::Agent(_) | Body::Swarm(_));
        self.nodes.iter().map(|node| &node.node).find(unsupported)
    }

    /// The same as a problem, with its place.
    #[must_use]
    pub fn unsupported_problem(&self) -> Option<Problem> {
        let node = self.unsupported()?;
        let path = format!("/nodes/{}/type", self.position(&node.id)?);
        let reason = format!("node {} is of type {}, which can't run here yet", node.id, node.body.kind());
        Some(Problem::new(ProblemCode::UnsupportedNode, path, reason))
    }

    /// The graph without these nodes and the edges that touch them; the others keep what they were
    /// compiled to, and their order.
    pub(crate) fn without(&self, gone: &BTreeSet<&str>) -> Result<Self, Vec<Problem>> {
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
        let output_type = output_type(self.outputs.as_ref(), &nodes);
        let (input_schema, outputs) = (self.input_schema.clone(), self.outputs.clone());
        let (nests, may_take_long) =
            (nests(&nodes), loops(&nodes, &edges, outputs.as_ref()) || is_costly(input_schema.as_deref()));
        out.or(Self { document, digest, nodes, edges, input_schema, outputs, output_type, nests, may_take_long, index })
    }

    /// What a workflow that starts this one may know of it.
    #[must_use]
    pub fn known(&self) -> Known {
        Known::Shape { inputs: self.input_schema.clone(), outputs: self.output_type.clone() }
    }
}

/// Whether checking a run's inputs may take long.
pub(super) fn is_costly(inputs: Option<&Schema>) -> bool {
    inputs.is_some_and(Schema::may_take_long)
}

/// Whether an expression of a graph goes over lists.
pub(super) fn loops(nodes: &[CompiledNode], edges: &[CompiledEdge], outputs: Option<&Template>) -> bool {
    let of_node = |node: &CompiledNode| {
        [&node.inputs, &node.over, &node.prompt, &node.show].into_iter().flatten().any(Template::loops)
    };
    let of_edge = |edge: &CompiledEdge| edge.condition.as_ref().is_some_and(Template::loops);
    nodes.iter().any(of_node) || edges.iter().any(of_edge) || outputs.is_some_and(Template::loops)
}

/// How many of the nodes start other runs.
pub(super) fn nests(nodes: &[CompiledNode]) -> usize {
    nodes.iter().filter(|compiled| compiled.node.child().is_some()).count()
}
