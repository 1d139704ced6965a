//! A patch adds nodes to a running graph.
//!
//! It never changes what is running or has run: nodes and edges are only appended. An added edge
//! starts at a finished, current or new node and ends at a new one. The approval of a patch covers
//! [`digest`]; [`inverse`] removes the patch while its nodes are pending.

use super::air::{
    CURRENT_NODE, Catalog, DocumentProblem, Edge, Graph, Members, Node, ProblemCode, Problems, compile_onto,
    read_edges, read_nodes,
};
use super::pins::{Pins, read_tools};
use crate::json::{self, Digest32};
use crate::limits::{JUSTIFICATION_CHARS_MAX, PATCH_EDGES_MAX, PATCH_NODES_MAX, WORKFLOW_BYTES_MAX};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

pub const PATCH_VERSION: &str = "0.1";

#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    pub patch_version: String,
    pub add_nodes: Vec<Node>,
    /// `from` may be `CURRENT_NODE` until the patch is proposed.
    pub add_edges: Vec<Edge>,
    pub justification: String,
    /// The versions of all child workflows, nested ones included, that the patch was evaluated with.
    pub pins: Pins,
    /// Tool versions by tool name, as resolved when the patch was proposed, and those of the declared tools of its
    /// child workflows. The approval covers them. Patches stored before this was recorded have none.
    pub tools: BTreeMap<String, String>,
    /// The number of calls that it adds, those of child workflows included, if they were counted.
    pub calls: Option<usize>,
    /// The authors of all child workflow versions, nested ones included.
    pub authors: Vec<String>,
    /// A person must approve it, whatever the level of the run: its author could not run it freely.
    pub waits: bool,
}

/// The member of a stored patch that holds its pins. A proposer cannot set it.
const PINS: &str = "workflow_versions";

/// The member of a stored patch that holds its tool versions. A proposer cannot set it.
pub(crate) const TOOLS: &str = "tool_versions";

/// The member of a stored patch that holds the number of calls it adds.
const CALLS: &str = "calls";

/// The member of a stored patch that holds the authors of its child workflows.
const AUTHORS: &str = "workflow_authors";

/// The member of a stored patch that says that a person must approve it. A proposer cannot set it.
const WAITS: &str = "waits_for_approval";

/// What a patch added, to remove it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inverse {
    pub remove_nodes: Vec<String>,
    /// With `CURRENT_NODE` resolved.
    pub remove_edges: Vec<Edge>,
}

impl Patch {
    pub fn parse(text: &str) -> Result<Self, Vec<DocumentProblem>> {
        if text.len() > WORKFLOW_BYTES_MAX {
            let reason = format!("the patch has {} bytes, at most {WORKFLOW_BYTES_MAX}", text.len());
            return Err(vec![DocumentProblem::new(ProblemCode::TooLarge, "", reason)]);
        }
        let value = json::parse_exact(text)
            .map_err(|error| vec![DocumentProblem::new(ProblemCode::NotJson, "", error.to_string())])?;
        Self::from_value(value)
    }

    pub fn from_value(value: Value) -> Result<Self, Vec<DocumentProblem>> {
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
            waits: false,
        };
        if !patch.patch_version.is_empty() && patch.patch_version != PATCH_VERSION {
            out.add(ProblemCode::InvalidValue, "/patch_version", "patch_version must be \"0.1\"");
        }
        if patch.justification.chars().count() > JUSTIFICATION_CHARS_MAX {
            let reason = format!("justification has at most {JUSTIFICATION_CHARS_MAX} characters");
            out.add(ProblemCode::TooLarge, "/justification", reason);
        }
        if patch.justification.trim().is_empty() && out.is_empty() {
            out.add(ProblemCode::InvalidValue, "/justification", "justification must not be blank");
        }
        if patch.add_nodes.is_empty() && out.is_empty() {
            out.add(ProblemCode::InvalidValue, "/add_nodes", "a patch must add at least one node");
        }
        members.finish(&mut out);
        out.into_result(patch)
    }

    /// Reads the stored form, with the members that a proposer cannot set.
    pub fn from_stored(mut value: Value) -> Result<Self, Vec<DocumentProblem>> {
        let mut take = |member| value.as_object_mut().and_then(|members| members.remove(member));
        let (pins, tools, calls, authors) = (take(PINS), take(TOOLS), take(CALLS), take(AUTHORS));
        let waits = take(WAITS).is_some_and(|waits| waits == Value::Bool(true));
        let calls = calls.and_then(|calls| usize::try_from(calls.as_u64()?).ok());
        let (pins, tools) = (Pins::from_values(pins.as_ref(), None), read_tools(tools.as_ref()));
        let authors = authors.as_ref().and_then(Value::as_array).into_iter().flatten();
        let authors = authors.filter_map(|author| Some(author.as_str()?.to_owned())).collect();
        let patch = Self::from_value(value)?;
        Ok(Self { pins, tools, calls, authors, waits, ..patch })
    }

    /// Records the current versions of its tools. A tool missing from the catalog keeps its recorded version.
    pub fn record_tool_versions(&mut self, catalog: &dyn Catalog) {
        for function in self.add_nodes.iter().filter_map(Node::function) {
            if let Some(spec) = catalog.tool(&function.tool) {
                self.tools.insert(spec.name.clone(), spec.version.clone());
            }
        }
    }

    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut value = json!({
            "patch_version": self.patch_version,
            "add_nodes": self.add_nodes.iter().map(Node::to_value).collect::<Vec<_>>(),
            "add_edges": self.add_edges.iter().map(Edge::to_value).collect::<Vec<_>>(),
            "justification": self.justification,
        });
        if let Some(pins) = self.pins.workflows_value() {
            value[PINS] = pins;
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
        if self.waits {
            value[WAITS] = true.into();
        }
        value
    }

    /// The edges with `CURRENT_NODE` resolved.
    fn resolve_edges(&self, current: &[&str]) -> Result<Vec<Edge>, Vec<DocumentProblem>> {
        let mut out = Problems::default();
        let put_in = |(at, edge): (usize, &Edge)| {
            if edge.from != CURRENT_NODE {
                return edge.clone();
            }
            let [only] = current else {
                let reason = format!("{CURRENT_NODE} needs exactly one current node, but there are {}", current.len());
                out.add(ProblemCode::AmbiguousCurrent, format!("/add_edges/{at}/from"), reason);
                return edge.clone();
            };
            Edge { from: (*only).to_owned(), ..edge.clone() }
        };
        let edges = self.add_edges.iter().enumerate().map(put_in).collect();
        out.into_result(edges)
    }
}

/// The graph with the patch applied. Problem paths point into the patch.
pub fn apply(
    graph: &Graph,
    patch: &Patch,
    current: &[&str],
    finished: &[&str],
    catalog: &dyn Catalog,
) -> Result<Graph, Vec<DocumentProblem>> {
    let edges = patch.resolve_edges(current)?;
    check_edges(graph, patch, &edges, current, finished)?;
    let mut document = graph.document.clone();
    document.nodes.extend(patch.add_nodes.iter().cloned());
    document.edges.extend(edges);
    compile_onto(Some(graph), document, catalog)
        .map_err(|problems| problems.into_iter().map(|problem| relocate_problem(problem, graph)).collect())
}

/// Checks that every edge starts at an allowed node and ends at a new one, and that every new node has an
/// incoming edge.
fn check_edges(
    graph: &Graph,
    patch: &Patch,
    edges: &[Edge],
    current: &[&str],
    finished: &[&str],
) -> Result<(), Vec<DocumentProblem>> {
    let mut out = Problems::default();
    let new: BTreeSet<&str> = patch.add_nodes.iter().map(|node| node.id.as_str()).collect();
    let open: BTreeSet<&str> = current.iter().chain(finished).copied().collect();
    for (at, edge) in edges.iter().enumerate() {
        let old = |id: &str| graph.position(id).is_some() && !new.contains(id);
        if old(&edge.from) && !open.contains(edge.from.as_str()) {
            let reason = format!("{} has not started: start from a finished, current or new node", edge.from);
            out.add(ProblemCode::ForbiddenEdge, format!("/add_edges/{at}/from"), reason);
        }
        if old(&edge.to) {
            let reason = format!("{} already exists: an added edge must lead to a new node", edge.to);
            out.add(ProblemCode::ForbiddenEdge, format!("/add_edges/{at}/to"), reason);
        }
    }
    for (at, node) in patch.add_nodes.iter().enumerate().filter(|(_, node)| graph.position(&node.id).is_some()) {
        let reason = format!("duplicate node id {}", node.id);
        out.add(ProblemCode::DuplicateId, format!("/add_nodes/{at}/id"), reason);
    }
    let led_to: BTreeSet<&str> = edges.iter().map(|edge| edge.to.as_str()).collect();
    for (at, node) in patch.add_nodes.iter().enumerate().filter(|(_, node)| !led_to.contains(node.id.as_str())) {
        let reason = format!("no edge leads to {}", node.id);
        out.add(ProblemCode::Unreachable, format!("/add_nodes/{at}"), reason);
    }
    out.into_result(())
}

/// Maps the path of a problem in the patched document to a path in the patch.
pub(crate) fn relocate_problem(problem: DocumentProblem, graph: &Graph) -> DocumentProblem {
    let moved = [("/nodes/", "/add_nodes/", graph.nodes.len()), ("/edges/", "/add_edges/", graph.edges.len())]
        .into_iter()
        .find_map(|(from, to, before)| {
            let rest = problem.path.strip_prefix(from)?;
            let (at, tail) = rest.split_once('/').map_or((rest, String::new()), |(at, tail)| (at, format!("/{tail}")));
            let at = at.parse::<usize>().ok()?.checked_sub(before)?;
            Some(format!("{to}{at}{tail}"))
        });
    DocumentProblem { path: moved.unwrap_or(problem.path), ..problem }
}

/// What the patch adds, to remove it again. `current` is what it was when the patch was applied.
#[must_use]
pub fn inverse(patch: &Patch, current: &[&str]) -> Inverse {
    Inverse {
        remove_nodes: patch.add_nodes.iter().map(|node| node.id.clone()).collect(),
        remove_edges: patch.resolve_edges(current).unwrap_or_else(|_| patch.add_edges.clone()),
    }
}

/// The member that holds the sequence number, within the run, of the ledger entry that applied the patch.
const APPLIED_SEQ: &str = "applied_seq";

impl Inverse {
    /// The stored form.
    #[must_use]
    pub fn to_value(&self) -> Value {
        json!({"remove_nodes": self.remove_nodes, "remove_edges": self.remove_edges})
    }

    /// The stored form, with the sequence number of the ledger entry that applied the patch.
    #[must_use]
    pub fn to_value_applied_at(&self, seq: i64) -> Value {
        let mut value = self.to_value();
        value[APPLIED_SEQ] = json!(seq);
        value
    }

    /// Removes and returns that sequence number. `None` if it was not recorded.
    pub fn take_applied_at(value: &mut Value) -> Option<i64> {
        value.as_object_mut()?.remove(APPLIED_SEQ)?.as_i64()
    }

    /// Reads the stored form.
    pub fn from_value(value: Value) -> Result<Self, Vec<DocumentProblem>> {
        let mut out = Problems::default();
        let mut members = Members::of(value, "", &mut out);
        let names = members.list("remove_nodes", &mut out).unwrap_or_default();
        let remove_nodes = names.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let remove_edges = read_edges(&mut members, "remove_edges", PATCH_EDGES_MAX, &mut out);
        members.finish(&mut out);
        out.into_result(Self { remove_nodes, remove_edges })
    }
}

/// The graph without what a patch added. Every node to remove must still be `pending`, and no other
/// node may depend on one.
pub fn revert(graph: &Graph, inverse: &Inverse, pending: &[&str]) -> Result<Graph, Vec<DocumentProblem>> {
    let mut out = Problems::default();
    let gone: BTreeSet<&str> = inverse.remove_nodes.iter().map(String::as_str).collect();
    for (at, id) in inverse.remove_nodes.iter().enumerate() {
        let path = || format!("/remove_nodes/{at}");
        if graph.position(id).is_none() {
            out.add(ProblemCode::UnknownNode, path(), format!("there is no node {id}"));
        } else if !pending.contains(&id.as_str()) {
            out.add(ProblemCode::NotPending, path(), format!("{id} has started and can't be removed"));
        }
    }
    let hangs = |edge: &&Edge| gone.contains(edge.from.as_str()) && !gone.contains(edge.to.as_str());
    if let Some(edge) = graph.document.edges.iter().find(hangs) {
        let reason = format!("{} depends on {}: remove the later patch first", edge.to, edge.from);
        out.add(ProblemCode::ForbiddenEdge, "/remove_nodes", reason);
    }
    out.into_result(())?;
    graph.without(&gone)
}

/// The nodes and edges added and removed between two graphs.
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

/// The digest that an approval covers: this patch, with its tool versions, on this plan only.
#[must_use]
pub fn digest(plan: Digest32, patch: &Patch) -> Digest32 {
    let patch = Digest32::of(&patch.to_value());
    Digest32(Sha256::new().chain_update(b"chimera patch 1\0").chain_update(plan).chain_update(patch).finalize().into())
}
