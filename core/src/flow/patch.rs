//! A patch adds nodes to a running graph.
//!
//! What runs or has run stays as it is: nodes and edges are only appended, edges lead only from
//! nodes that have finished, are current or are new, and only to new nodes. The approval of a
//! patch covers [`digest`]; [`inverse`] says what to take out again while it is pending.

use super::air::{
    CURRENT_NODE, Catalog, Edge, Graph, Members, Node, Problem, ProblemCode, Problems, compile_onto, read_edges,
    read_nodes,
};
use super::pins::Pins;
use crate::json::{self, Digest32};
use crate::limits::{JUSTIFICATION_CHARS_MAX, PATCH_EDGES_MAX, PATCH_NODES_MAX, WORKFLOW_BYTES_MAX};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// The version of the format.
pub const PATCH_VERSION: &str = "0.1";

/// Nodes and edges to add.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    /// Version of the format.
    pub patch_version: String,
    /// Nodes to add.
    pub add_nodes: Vec<Node>,
    /// Edges to add; `from` may be `CURRENT_NODE` until it is proposed.
    pub add_edges: Vec<Edge>,
    /// Why.
    pub justification: String,
    /// The versions of the workflows that it starts, within each other: what it was judged by.
    pub pins: Pins,
    /// The versions of the tools that it calls, by their names, as the run found them: what people approve. Patches
    /// that were put on before they were kept have none.
    pub tools: BTreeMap<String, String>,
    /// How many calls it adds, with those of the workflows that it starts, if somebody counted them.
    pub calls: Option<usize>,
    /// Who wrote the versions of the workflows that it starts, within each other.
    pub authors: Vec<String>,
}

/// The member of a stored patch that holds its pins. Whoever proposes one does not choose them.
const PINS: &str = "workflow_versions";

/// The member of a stored patch that holds the versions of its tools. Nobody chooses those either.
const TOOLS: &str = "tool_versions";

/// The member of a stored patch that says how many calls it adds.
const CALLS: &str = "calls";

/// The member of a stored patch that names who wrote the workflows that it starts.
const AUTHORS: &str = "workflow_authors";

/// What takes a patch out again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inverse {
    /// Names of the nodes that were added.
    pub remove_nodes: Vec<String>,
    /// The edges that were added, with the names they have in the graph.
    pub remove_edges: Vec<Edge>,
}

impl Patch {
    /// Reads a patch from its text.
    pub fn parse(text: &str) -> Result<Self, Vec<Problem>> {
        if text.len() > WORKFLOW_BYTES_MAX {
            let reason = format!("the patch has {} bytes, at most {WORKFLOW_BYTES_MAX}", text.len());
            return Err(vec![Problem::new(ProblemCode::TooLarge, "", reason)]);
        }
        let value =
            json::parse_exact(text).map_err(|error| vec![Problem::new(ProblemCode::NotJson, "", error.to_string())])?;
        Self::from_value(value)
    }

    /// Reads a patch that is JSON already.
    pub fn from_value(value: Value) -> Result<Self, Vec<Problem>> {
        let mut out = Problems::default();
        let mut members = Members::of(value, "", &mut out);
        let patch = Self {
            patch_version: members.text("patch_version", &mut out),
            add_nodes: read_nodes(&mut members, "add_nodes", PATCH_NODES_MAX, &mut out),
            add_edges: read_edges(&mut members, "add_edges", PATCH_EDGES_MAX, &mut out),
            justification: members.text("justification", &mut out),
            pins: Pins::default(),
            tools: BTreeMap::new(),
            calls: None,
            authors: Vec::new(),
        };
        if !patch.patch_version.is_empty() && patch.patch_version != PATCH_VERSION {
            out.add(ProblemCode::InvalidValue, "/patch_version", "patch_version must be \"0.1\"");
        }
        if patch.justification.chars().count() > JUSTIFICATION_CHARS_MAX {
            let reason = format!("justification has at most {JUSTIFICATION_CHARS_MAX} characters");
            out.add(ProblemCode::TooLarge, "/justification", reason);
        }
        if patch.justification.trim().is_empty() && out.is_empty() {
            out.add(ProblemCode::InvalidValue, "/justification", "a patch says why");
        }
        if patch.add_nodes.is_empty() && out.is_empty() {
            out.add(ProblemCode::InvalidValue, "/add_nodes", "a patch adds at least one node");
        }
        members.finish(&mut out);
        out.or(patch)
    }

    /// Reads a patch as it is stored, with its pins and the versions of its tools.
    pub fn from_stored(mut value: Value) -> Result<Self, Vec<Problem>> {
        let mut take = |member| value.as_object_mut().and_then(|members| members.remove(member));
        let (pins, tools, calls, authors) = (take(PINS), take(TOOLS), take(CALLS), take(AUTHORS));
        let calls = calls.and_then(|calls| usize::try_from(calls.as_u64()?).ok());
        let tools = tools.as_ref().and_then(Value::as_object).into_iter().flatten();
        let tools = tools.filter_map(|(tool, version)| Some((tool.clone(), version.as_str()?.to_owned()))).collect();
        let authors = authors.as_ref().and_then(Value::as_array).into_iter().flatten();
        let authors = authors.filter_map(|author| Some(author.as_str()?.to_owned())).collect();
        let patch = Self::from_value(value)?;
        Ok(Self { pins: pins.as_ref().map(Pins::from_value).unwrap_or_default(), tools, calls, authors, ..patch })
    }

    /// Puts in the versions that its tools have here; one that is not here keeps the version that it had.
    pub fn name_tools(&mut self, catalog: &dyn Catalog) {
        for function in self.add_nodes.iter().filter_map(Node::function) {
            if let Some(spec) = catalog.tool(&function.tool) {
                self.tools.insert(spec.name.clone(), spec.version.clone());
            }
        }
    }

    /// The patch as JSON.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut value = json!({
            "patch_version": self.patch_version,
            "add_nodes": self.add_nodes.iter().map(Node::to_value).collect::<Vec<_>>(),
            "add_edges": self.add_edges.iter().map(Edge::to_value).collect::<Vec<_>>(),
            "justification": self.justification,
        });
        if !self.pins.is_empty() {
            value[PINS] = self.pins.to_value();
        }
        if !self.tools.is_empty() {
            value[TOOLS] = json!(self.tools);
        }
        if let Some(calls) = self.calls {
            value[CALLS] = calls.into();
        }
        if !self.authors.is_empty() {
            value[AUTHORS] = json!(self.authors);
        }
        value
    }

    /// The edges with `CURRENT_NODE` put in, or why that can't be.
    fn edges(&self, current: &[&str]) -> Result<Vec<Edge>, Vec<Problem>> {
        let mut out = Problems::default();
        let put_in = |(at, edge): (usize, &Edge)| {
            if edge.from != CURRENT_NODE {
                return edge.clone();
            }
            let [only] = current else {
                let reason = format!("{CURRENT_NODE} needs exactly one current node, and there are {}", current.len());
                out.add(ProblemCode::AmbiguousCurrent, format!("/add_edges/{at}/from"), reason);
                return edge.clone();
            };
            Edge { from: (*only).to_owned(), ..edge.clone() }
        };
        let edges = self.add_edges.iter().enumerate().map(put_in).collect();
        out.or(edges)
    }
}

/// The graph with the patch on it; problems point into the patch.
pub fn apply(
    graph: &Graph,
    patch: &Patch,
    current: &[&str],
    finished: &[&str],
    catalog: &dyn Catalog,
) -> Result<Graph, Vec<Problem>> {
    let edges = patch.edges(current)?;
    permitted(graph, patch, &edges, current, finished)?;
    let mut document = graph.document.clone();
    document.nodes.extend(patch.add_nodes.iter().cloned());
    document.edges.extend(edges);
    compile_onto(Some(graph), document, catalog)
        .map_err(|problems| problems.into_iter().map(|problem| into_patch(problem, graph)).collect())
}

/// Whether each edge starts where it may and leads to something new, and something leads to each
/// new node.
fn permitted(
    graph: &Graph,
    patch: &Patch,
    edges: &[Edge],
    current: &[&str],
    finished: &[&str],
) -> Result<(), Vec<Problem>> {
    let mut out = Problems::default();
    let new: BTreeSet<&str> = patch.add_nodes.iter().map(|node| node.id.as_str()).collect();
    let open: BTreeSet<&str> = current.iter().chain(finished).copied().collect();
    for (at, edge) in edges.iter().enumerate() {
        let old = |id: &str| graph.position(id).is_some() && !new.contains(id);
        if old(&edge.from) && !open.contains(edge.from.as_str()) {
            let reason = format!("{} has not begun: a patch starts from nodes that are finished or current", edge.from);
            out.add(ProblemCode::ForbiddenEdge, format!("/add_edges/{at}/from"), reason);
        }
        if old(&edge.to) {
            let reason = format!("{} is not new: a patch changes nothing that is there", edge.to);
            out.add(ProblemCode::ForbiddenEdge, format!("/add_edges/{at}/to"), reason);
        }
    }
    for (at, node) in patch.add_nodes.iter().enumerate().filter(|(_, node)| graph.position(&node.id).is_some()) {
        let reason = format!("there is a node {} already", node.id);
        out.add(ProblemCode::DuplicateId, format!("/add_nodes/{at}/id"), reason);
    }
    let led_to: BTreeSet<&str> = edges.iter().map(|edge| edge.to.as_str()).collect();
    for (at, node) in patch.add_nodes.iter().enumerate().filter(|(_, node)| !led_to.contains(node.id.as_str())) {
        let reason = format!("no edge leads to {}", node.id);
        out.add(ProblemCode::Unreachable, format!("/add_nodes/{at}"), reason);
    }
    out.or(())
}

/// The same problem, as seen from the patch.
pub(crate) fn into_patch(problem: Problem, graph: &Graph) -> Problem {
    let moved = [("/nodes/", "/add_nodes/", graph.nodes.len()), ("/edges/", "/add_edges/", graph.edges.len())]
        .into_iter()
        .find_map(|(from, to, before)| {
            let rest = problem.path.strip_prefix(from)?;
            let (at, tail) = rest.split_once('/').map_or((rest, String::new()), |(at, tail)| (at, format!("/{tail}")));
            let at = at.parse::<usize>().ok()?.checked_sub(before)?;
            Some(format!("{to}{at}{tail}"))
        });
    Problem { path: moved.unwrap_or(problem.path), ..problem }
}

/// What takes the patch out again; `current` as it was when the patch was applied.
#[must_use]
pub fn inverse(patch: &Patch, current: &[&str]) -> Inverse {
    Inverse {
        remove_nodes: patch.add_nodes.iter().map(|node| node.id.clone()).collect(),
        remove_edges: patch.edges(current).unwrap_or_else(|_| patch.add_edges.clone()),
    }
}

/// The member that holds the number of the entry with which a patch was applied.
const APPLIED_SEQ: &str = "applied_seq";

impl Inverse {
    /// As it is stored.
    #[must_use]
    pub fn to_value(&self) -> Value {
        json!({"remove_nodes": self.remove_nodes, "remove_edges": self.remove_edges})
    }

    /// As it is stored of a patch whose entry has this number within its run.
    #[must_use]
    pub fn applied_at(&self, seq: i64) -> Value {
        let mut value = self.to_value();
        value[APPLIED_SEQ] = json!(seq);
        value
    }

    /// Takes the number of a patch's entry out of what is stored of it; none: it was not kept.
    pub fn take_applied_at(value: &mut Value) -> Option<i64> {
        value.as_object_mut()?.remove(APPLIED_SEQ)?.as_i64()
    }

    /// Reads it back.
    pub fn from_value(value: Value) -> Result<Self, Vec<Problem>> {
        let mut out = Problems::default();
        let mut members = Members::of(value, "", &mut out);
        let names = members.list("remove_nodes", &mut out).unwrap_or_default();
        let remove_nodes = names.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let remove_edges = read_edges(&mut members, "remove_edges", PATCH_EDGES_MAX, &mut out);
        members.finish(&mut out);
        out.or(Self { remove_nodes, remove_edges })
    }
}

/// The graph without what a patch added; every node it takes out must still be `pending`, and no
/// other node may hang on one.
pub fn revert(graph: &Graph, inverse: &Inverse, pending: &[&str]) -> Result<Graph, Vec<Problem>> {
    let mut out = Problems::default();
    let gone: BTreeSet<&str> = inverse.remove_nodes.iter().map(String::as_str).collect();
    for (at, id) in inverse.remove_nodes.iter().enumerate() {
        let path = || format!("/remove_nodes/{at}");
        if graph.position(id).is_none() {
            out.add(ProblemCode::UnknownNode, path(), format!("there is no node {id}"));
        } else if !pending.contains(&id.as_str()) {
            out.add(ProblemCode::NotPending, path(), format!("{id} has begun and can't be taken out"));
        }
    }
    let hangs = |edge: &&Edge| gone.contains(edge.from.as_str()) && !gone.contains(edge.to.as_str());
    if let Some(edge) = graph.document.edges.iter().find(hangs) {
        let reason = format!("{} hangs on {}: take out the later patch first", edge.to, edge.from);
        out.add(ProblemCode::ForbiddenEdge, "/remove_nodes", reason);
    }
    out.or(())?;
    graph.without(&gone)
}

/// What one graph has and the other has not.
#[must_use]
pub fn diff(before: &Graph, after: &Graph) -> Value {
    let nodes = |one: &Graph, other: &Graph| -> Vec<Value> {
        let only = one.nodes.iter().filter(|node| other.position(&node.node.id).is_none());
        only.map(|node| node.node.to_value()).collect()
    };
    let edges = |one: &Graph, other: &Graph| -> Vec<Value> {
        let known: BTreeSet<(&str, &str)> =
            other.document.edges.iter().map(|edge| (edge.from.as_str(), edge.to.as_str())).collect();
        let only = one.document.edges.iter().filter(|edge| !known.contains(&(edge.from.as_str(), edge.to.as_str())));
        only.map(Edge::to_value).collect()
    };
    json!({
        "digest": {"before": before.digest, "after": after.digest},
        "nodes": {"added": nodes(after, before), "removed": nodes(before, after)},
        "edges": {"added": edges(after, before), "removed": edges(before, after)},
    })
}

/// What an approval of the patch covers: this patch on this plan and no other, with its tools as they are.
#[must_use]
pub fn digest(plan: Digest32, patch: &Patch) -> Digest32 {
    let patch = Digest32::of(&patch.to_value());
    Digest32(Sha256::new().chain_update(b"chimera patch 1\0").chain_update(plan).chain_update(patch).finalize().into())
}
