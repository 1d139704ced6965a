//! Checks that every expression names existing nodes, and only upstream ones.
//!
//! Which node is upstream of which is answered for all references together. Where an edge leads nowhere, or nodes wait
//! for each other, that is not known and not reported.

use super::compile::{CompiledParts, EdgeEnds};
use super::document::{Body, Document};
use super::graph::CompiledNode;
use super::order::Adjacency;
use super::problem::{DocumentProblem, ProblemCode, Problems};
use super::reach::upstream;
use crate::flow::expr::Template;
use crate::text::did_you_mean;

pub(super) struct References<'a> {
    pub(super) parts: &'a CompiledParts<'a>,
    pub(super) document: &'a Document,
    pub(super) ends: &'a EdgeEnds,
    pub(super) ways: &'a Adjacency,
    /// The nodes in topological order, without those on a cycle or behind one.
    pub(super) order: &'a [usize],
}

/// References whose target may not be upstream.
#[derive(Default)]
struct Asked<'a> {
    /// Reader and target.
    pairs: Vec<(usize, usize)>,
    places: Vec<TemplatePlace<'a>>,
}

/// A template and its JSON pointer.
#[derive(Clone)]
struct TemplatePlace<'a> {
    template: &'a Template,
    path: String,
}

impl TemplatePlace<'_> {
    /// The pointer to the expression that names a node.
    fn of(&self, name: &str) -> String {
        format!("{}{}", self.path, self.template.pointer_to(name))
    }
}

/// The node that reads the outputs of others.
#[derive(Clone, Copy)]
struct Reader {
    node: usize,
    sees_own_outputs: bool,
}

impl<'a> References<'a> {
    pub(super) fn check(&self, out: &mut Problems) {
        let mut asked = Asked::default();
        let parts = self.parts;
        let (old_nodes, old_edges) = parts.checked_before();
        for (at, node) in parts.nodes.iter().enumerate().skip(old_nodes) {
            let reader = Reader { node: at, sees_own_outputs: false };
            for place in templates(node, at) {
                self.ask(Some(reader), &place, &mut asked, out);
            }
        }
        for (at, condition) in parts.conditions.iter().enumerate().skip(old_edges) {
            let from = parts.index.get(&self.document.edges[at].from);
            let reader = from.map(|from| Reader { node: *from, sees_own_outputs: true });
            if let Some(template) = condition {
                let place = TemplatePlace { template, path: format!("/edges/{at}/condition") };
                self.ask(reader, &place, &mut asked, out);
            }
        }
        if let Some(template) = parts.outputs.filter(|_| parts.prior.is_none()) {
            self.ask(None, &TemplatePlace { template, path: "/outputs".to_owned() }, &mut asked, out);
        }
        self.report_not_upstream(&asked, out);
    }

    /// Reports unknown nodes of a template, and collects the known ones. Without a reader, every node may be read.
    fn ask(&self, reader: Option<Reader>, place: &TemplatePlace<'a>, asked: &mut Asked<'a>, out: &mut Problems) {
        for name in place.template.references() {
            match (self.parts.index.get(name), reader) {
                (Some(target), Some(reader)) if !(reader.sees_own_outputs && *target == reader.node) => {
                    asked.pairs.push((reader.node, *target));
                    asked.places.push(place.clone());
                }
                (Some(_), _) => {}
                // It may be the name of a node whose id could not be read.
                (None, _) if out.is_full() || self.document.nodes.iter().any(|node| node.id.is_empty()) => {}
                (None, _) => {
                    let guess = did_you_mean(name, self.parts.index.keys().map(String::as_str));
                    out.add(ProblemCode::UnknownReference, place.of(name), format!("there is no node {name}{guess}"));
                }
            }
        }
    }

    fn report_not_upstream(&self, asked: &Asked<'_>, out: &mut Problems) {
        if !self.ends.is_complete {
            return;
        }
        let mut is_ordered = vec![false; self.parts.nodes.len()];
        self.order.iter().for_each(|node| is_ordered[*node] = true);
        let known = |(reader, target): (usize, usize)| reader == target || (is_ordered[reader] && is_ordered[target]);
        let checked: Vec<usize> = (0..asked.pairs.len()).filter(|pair| known(asked.pairs[*pair])).collect();
        let pairs: Vec<(usize, usize)> = checked.iter().map(|pair| asked.pairs[*pair]).collect();
        let answers = upstream(self.ways, self.order, &pairs);
        for (pair, _) in checked.iter().zip(&answers.upstream).filter(|(_, is_upstream)| !**is_upstream) {
            if out.is_full() {
                return;
            }
            let (reader, target) = asked.pairs[*pair];
            let (target, reader) = (&self.parts.nodes[target].node.id, &self.parts.nodes[reader].node.id);
            let place = asked.places[*pair].of(target);
            let problem = |reason: String| DocumentProblem::new(ProblemCode::UnknownReference, place, reason);
            out.push(if target == reader {
                problem(format!("{target} can't see its own outputs"))
            } else {
                problem(format!("{target} is not upstream of {reader}: no path leads from it to here"))
                    .with_hint(format!("add an edge from {target} to {reader}, or to a node before it"))
            });
        }
    }
}

/// The templates of a node with their JSON pointers.
fn templates(node: &CompiledNode, at: usize) -> impl Iterator<Item = TemplatePlace<'_>> {
    let inside = if matches!(node.node.body, Body::Map(_)) { "/do" } else { "" };
    // The templates of a wait are members of the node itself.
    let inputs = if matches!(node.node.body, Body::Wait(_)) { "" } else { "/inputs" };
    let all = [
        (&node.inputs, inside, inputs),
        (&node.over, "", "/over"),
        (&node.prompt, "", "/prompt"),
        (&node.show, "", "/show"),
    ];
    let own = all.into_iter().filter_map(move |(template, inside, name)| {
        Some(TemplatePlace { template: template.as_ref()?, path: format!("/nodes/{at}{inside}{name}") })
    });
    let checks = node.judge.iter().flat_map(|judge| judge.conditions.iter().enumerate());
    own.chain(checks.map(move |(check, template)| TemplatePlace {
        template,
        path: format!("/nodes/{at}{inside}/judge/checks/{check}/require"),
    }))
}
