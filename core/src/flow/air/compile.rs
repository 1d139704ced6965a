//! Compiles a document to a graph: ids, order, templates, references, types.
//!
//! Each pass is linear in nodes and edges. Later passes depend on earlier ones, so a document with
//! structural problems is not type-checked; within a pass, all problems are reported.

use super::catalog::{Catalog, WorkflowInfo};
use super::check::{Check, ExpectedInput};
use super::document::{Body, Document, Node};
use super::graph::{CompiledEdge, CompiledNode, Graph, count_child_nodes, has_loops, is_costly};
use super::order::Adjacency;
use super::parse::is_node_id;
use super::problem::{DocumentProblem, ProblemCode, Problems};
use super::reach::upstream;
use crate::flow::expr::{Template, TemplateError, Type};
use crate::json::Digest32;
use crate::json::schema::Schema;
use crate::limits::{WORKFLOW_EDGES_MAX, WORKFLOW_NODES_MAX};
use crate::text::did_you_mean;
use crate::tool::{EffectKind, Spec};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub fn compile(document: Document, catalog: &dyn Catalog) -> Result<Graph, Vec<DocumentProblem>> {
    compile_onto(None, document, catalog)
}

/// Compiles a document whose first nodes and edges are those of `prior`. They are reused as they are.
pub(crate) fn compile_onto(
    prior: Option<&Graph>,
    document: Document,
    catalog: &dyn Catalog,
) -> Result<Graph, Vec<DocumentProblem>> {
    let mut out = Problems::default();
    let index = index_nodes(&document, &mut out);
    let ends = resolve_edge_ends(&document, &index, &mut out);
    if !out.is_empty() {
        return Err(out.into_vec());
    }
    let ways = Adjacency::new(document.nodes.len(), ends);
    let order = ways.topological_order();
    if order.len() < document.nodes.len() {
        ways.report_cycles(&order, &|node| document.nodes[node].id.clone(), &mut out);
        return Err(out.into_vec());
    }
    let mut compiling = Compiler { prior, catalog, resolved_tools: BTreeMap::new(), out };
    let input_schema = compiling.input_schema(&document);
    let mut wanted = Vec::with_capacity(document.nodes.len());
    let mut nodes = Vec::with_capacity(document.nodes.len());
    for (at, node) in document.nodes.iter().enumerate() {
        let (compiled, wants) = compiling.node(at, node, &document, &ways);
        nodes.push(compiled);
        wanted.push(wants);
    }
    let edges = compiling.edges(&document, &ways);
    let path = "/outputs";
    let outputs =
        document.outputs.as_ref().and_then(|outputs| compiling.template(&Value::Object(outputs.clone()), path));
    let mut out = compiling.out;
    if out.is_empty() {
        let checked = CompiledParts { nodes: &nodes, edges: &edges, outputs: outputs.as_ref(), index: &index };
        checked.references(&ways, &order, prior, &mut out);
        checked.types(input_schema.as_deref(), &wanted, prior, &mut out);
    }
    let digest = Digest32::of(&document.to_value());
    let output_type = output_type(outputs.as_ref(), &nodes);
    let (nests, may_take_long) =
        (count_child_nodes(&nodes), has_loops(&nodes, &edges, outputs.as_ref()) || is_costly(input_schema.as_deref()));
    out.into_result(Graph {
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

/// The type of a run's outputs: the output templates, or the outputs of the sink nodes by id.
pub(super) fn output_type(outputs: Option<&Template>, nodes: &[CompiledNode]) -> Type {
    match outputs {
        Some(template) => Type::closed_object(template.members().into_iter().map(|name| (name.to_owned(), Type::Any))),
        None => {
            let sinks = nodes.iter().filter(|node| node.outgoing.is_empty());
            Type::closed_object(sinks.map(|node| (node.node.id.clone(), node.output_type.clone())))
        }
    }
}

fn index_nodes(document: &Document, out: &mut Problems) -> BTreeMap<String, usize> {
    let counts =
        [(document.nodes.len(), WORKFLOW_NODES_MAX, "/nodes"), (document.edges.len(), WORKFLOW_EDGES_MAX, "/edges")];
    for (count, most, path) in counts {
        if count > most {
            out.add(ProblemCode::TooLarge, path, format!("{count} items, at most {most}"));
        }
    }
    let mut index = BTreeMap::new();
    for (at, node) in document.nodes.iter().enumerate() {
        let path = || format!("/nodes/{at}/id");
        if !is_node_id(&node.id) {
            out.add(ProblemCode::InvalidId, path(), format!("{:?} is not a valid node id", node.id));
        } else if let Some(first) = index.insert(node.id.clone(), at) {
            let reason = format!("duplicate node id {}, already used at /nodes/{first}", node.id);
            out.add(ProblemCode::DuplicateId, path(), reason);
        }
    }
    index
}

/// The positions of the start and end node of every edge.
fn resolve_edge_ends(document: &Document, index: &BTreeMap<String, usize>, out: &mut Problems) -> Vec<(usize, usize)> {
    let mut seen = BTreeSet::new();
    let mut ends = Vec::with_capacity(document.edges.len());
    for (at, edge) in document.edges.iter().enumerate() {
        if out.is_full() {
            break;
        }
        let mut find = |id: &str, member: &str| {
            let found = index.get(id).copied();
            if found.is_none() {
                let guess = did_you_mean(id, index.keys().map(String::as_str));
                let reason = format!("there is no node {id:?}{guess}");
                out.add(ProblemCode::UnknownNode, format!("/edges/{at}/{member}"), reason);
            }
            found
        };
        let (Some(from), Some(to)) = (find(&edge.from, "from"), find(&edge.to, "to")) else {
            continue;
        };
        if from == to {
            out.add(ProblemCode::SelfEdge, format!("/edges/{at}"), format!("edge from {} to itself", edge.from));
        } else if !seen.insert((from, to)) {
            let reason = format!("duplicate edge from {} to {}", edge.from, edge.to);
            out.add(ProblemCode::DuplicateEdge, format!("/edges/{at}"), reason);
        }
        ends.push((from, to));
    }
    ends
}

/// A tool with the types of its schemas, computed once for all nodes that call it.
#[derive(Clone)]
struct ResolvedTool {
    spec: Arc<Spec>,
    wanted: Arc<ExpectedInput>,
    output: Type,
    /// Not configured here; `spec` is a placeholder.
    absent: bool,
}

struct Compiler<'a> {
    prior: Option<&'a Graph>,
    catalog: &'a dyn Catalog,
    resolved_tools: BTreeMap<String, Option<ResolvedTool>>,
    out: Problems,
}

type OptionalInput = Option<Arc<ExpectedInput>>;

impl Compiler<'_> {
    fn input_schema(&mut self, document: &Document) -> Option<Arc<Schema>> {
        if let Some(prior) = self.prior {
            return prior.input_schema.clone();
        }
        match Schema::compile_untrusted(document.inputs.clone()?) {
            Ok(schema) => Some(Arc::new(schema)),
            Err(error) => {
                self.out.add(ProblemCode::InvalidSchema, "/inputs", error.reason);
                None
            }
        }
    }

    fn template(&mut self, value: &Value, path: &str) -> Option<Template> {
        match Template::compile(value) {
            Ok(template) => Some(template),
            Err(error) => {
                let (code, at, reason) = match error {
                    TemplateError::Invalid { path, reason } => (ProblemCode::InvalidExpression, path, reason),
                    TemplateError::UnknownReference { path, reason } => (ProblemCode::UnknownReference, path, reason),
                    TemplateError::TooMany => (ProblemCode::TooLarge, String::new(), error.to_string()),
                };
                self.out.add(code, format!("{path}{at}"), reason);
                None
            }
        }
    }

    fn node(&mut self, at: usize, node: &Node, document: &Document, ways: &Adjacency) -> (CompiledNode, OptionalInput) {
        let (incoming, outgoing) = (ways.incoming[at].clone(), ways.outgoing[at].clone());
        if let Some(old) = self.prior.and_then(|prior| prior.nodes.get(at)) {
            return (CompiledNode { incoming, outgoing, ..old.clone() }, None);
        }
        let path = format!("/nodes/{at}");
        let mut compiled = CompiledNode {
            node: node.clone(),
            inputs: None,
            over: None,
            prompt: None,
            show: None,
            tool: None,
            is_tool_absent: false,
            output_type: Type::Any,
            incoming,
            outgoing,
        };
        let mut wants = None;
        match &node.body {
            Body::Function(_) | Body::Workflow(_) => wants = self.compile_action(node, document, &path, &mut compiled),
            Body::Map(each) => {
                compiled.over = self.template(&each.over, &format!("{path}/over"));
                wants = self.compile_action(node, document, &format!("{path}/do"), &mut compiled);
                compiled.output_type = Type::Any;
            }
            Body::Hitl(hitl) => {
                let prompt = hitl.prompt.clone().map(Value::String);
                compiled.prompt = prompt.and_then(|prompt| self.template(&prompt, &format!("{path}/prompt")));
                compiled.show = hitl.show.as_ref().and_then(|show| self.template(show, &format!("{path}/show")));
            }
            Body::Agent(members) | Body::Swarm(members) => {
                let inputs = members.get("inputs");
                compiled.inputs = inputs.and_then(|inputs| self.template(inputs, &format!("{path}/inputs")));
            }
        }
        (compiled, wants)
    }

    /// Compiles the tool call or child run of a node, directly or for each item of its map.
    fn compile_action(
        &mut self,
        node: &Node,
        document: &Document,
        path: &str,
        compiled: &mut CompiledNode,
    ) -> OptionalInput {
        if let Some(function) = node.function() {
            compiled.inputs = self.template(&Value::Object(function.inputs.clone()), &format!("{path}/inputs"));
            let kind = self.tool(&function.tool, path)?;
            let writes = kind.spec.effect == EffectKind::Write && kind.spec.reads_when.is_none() && !kind.absent;
            if function.cache.is_some() && writes {
                let reason = format!("{} changes external state, so its outputs can't be cached", function.tool);
                self.out.add(ProblemCode::NotCacheable, format!("{path}/cache"), reason);
            }
            compiled.tool = Some(kind.spec);
            compiled.is_tool_absent = kind.absent;
            compiled.output_type = kind.output;
            return Some(kind.wanted);
        }
        let child = node.child()?;
        compiled.inputs = self.template(&Value::Object(child.inputs.clone()), &format!("{path}/inputs"));
        if child.workflow_id == document.workflow_id && child.version.is_none() {
            // A workflow may start itself. Its interface is not known until it is compiled.
            return None;
        }
        match self.catalog.workflow(&child.workflow_id, child.version) {
            WorkflowInfo::Missing => {
                let version = child.version.map_or_else(String::new, |version| format!(" in version {version}"));
                let reason = format!("there is no workflow {}{version}", child.workflow_id);
                self.out.add(ProblemCode::UnknownWorkflow, format!("{path}/workflow_id"), reason);
                None
            }
            WorkflowInfo::Exists => None,
            WorkflowInfo::Interface { inputs, outputs } => {
                compiled.output_type = outputs;
                inputs.map(|schema| Arc::new(ExpectedInput::new(schema)))
            }
        }
    }

    fn tool(&mut self, name: &str, path: &str) -> Option<ResolvedTool> {
        let catalog = self.catalog;
        let known = self.resolved_tools.entry(name.to_owned()).or_insert_with(|| {
            let found = catalog.tool(name);
            let absent = found.is_none();
            let stand_in = || catalog.allows_placeholders().then(|| Spec::placeholder(name).ok())?.map(Arc::new);
            let spec = found.or_else(stand_in)?;
            let wanted = Arc::new(ExpectedInput::of_tool(Arc::clone(&spec)));
            let output = Type::from_schema(spec.output.document());
            Some(ResolvedTool { spec, wanted, output, absent })
        });
        let known = known.clone();
        if known.is_none() && !self.out.is_full() {
            let reason = match catalog.unavailable_reason(name) {
                Some(why) => format!("the tool {name:?} is not configured here: {why}"),
                None => {
                    let names = catalog.tool_names();
                    format!("there is no tool {name:?}{}", did_you_mean(name, names.iter().map(String::as_str)))
                }
            };
            self.out.add(ProblemCode::UnknownTool, format!("{path}/fn"), reason);
        }
        known
    }

    fn edges(&mut self, document: &Document, ways: &Adjacency) -> Vec<CompiledEdge> {
        let mut edges = Vec::with_capacity(document.edges.len());
        for (at, edge) in document.edges.iter().enumerate() {
            let (from, to) = ways.edges[at];
            if let Some(old) = self.prior.and_then(|prior| prior.edges.get(at)) {
                edges.push(old.clone());
                continue;
            }
            let path = format!("/edges/{at}/condition");
            let condition = edge.condition.clone().map(Value::String);
            let condition = condition.and_then(|condition| self.template(&condition, &path));
            if condition
                .as_ref()
                .is_some_and(|condition| !condition.is_single_expression() && !condition.is_constant_bool())
            {
                let reason = "a condition must be a single ${…} that is true or false, with nothing around it";
                self.out.add(ProblemCode::InvalidExpression, path, reason);
            }
            edges.push(CompiledEdge { from, to, condition });
        }
        edges
    }
}

/// The compiled parts, for the checks across nodes.
struct CompiledParts<'a> {
    nodes: &'a [CompiledNode],
    edges: &'a [CompiledEdge],
    outputs: Option<&'a Template>,
    index: &'a BTreeMap<String, usize>,
}

impl CompiledParts<'_> {
    /// The templates of a node with their JSON pointers.
    fn templates(node: &CompiledNode, at: usize) -> impl Iterator<Item = (&Template, String)> {
        let inputs = if matches!(node.node.body, Body::Map(_)) { "do/inputs" } else { "inputs" };
        let all = [(&node.inputs, inputs), (&node.over, "over"), (&node.prompt, "prompt"), (&node.show, "show")];
        all.into_iter().filter_map(move |(template, name)| Some((template.as_ref()?, format!("/nodes/{at}/{name}"))))
    }

    /// Checks that every reference names an existing upstream node.
    fn references(&self, ways: &Adjacency, order: &[usize], prior: Option<&Graph>, out: &mut Problems) {
        let mut asked: Vec<(usize, usize)> = Vec::new();
        let mut places: Vec<(Template, String)> = Vec::new();
        let mut ask = |reader: usize, own: bool, template: &Template, path: String| {
            for name in template.references() {
                match self.index.get(name) {
                    Some(target) if own && *target == reader => {}
                    Some(target) => {
                        asked.push((reader, *target));
                        places.push((template.clone(), path.clone()));
                    }
                    None if out.is_full() => {}
                    None => {
                        let guess = did_you_mean(name, self.index.keys().map(String::as_str));
                        let place = format!("{path}{}", template.pointer_to(name));
                        out.add(ProblemCode::UnknownReference, place, format!("there is no node {name}{guess}"));
                    }
                }
            }
        };
        for (at, node) in self.nodes.iter().enumerate().skip(prior.map_or(0, |prior| prior.nodes.len())) {
            Self::templates(node, at).for_each(|(template, path)| ask(at, false, template, path));
        }
        for (at, edge) in self.edges.iter().enumerate().skip(prior.map_or(0, |prior| prior.edges.len())) {
            edge.condition.iter().for_each(|template| ask(edge.from, true, template, format!("/edges/{at}/condition")));
        }
        if let Some(outputs) = self.outputs.filter(|_| prior.is_none()) {
            for name in outputs.references().iter().filter(|name| !self.index.contains_key(*name)) {
                let guess = did_you_mean(name, self.index.keys().map(String::as_str));
                let place = format!("/outputs{}", outputs.pointer_to(name));
                out.add(ProblemCode::UnknownReference, place, format!("there is no node {name}{guess}"));
            }
        }
        let answers = upstream(ways, order, &asked);
        for (pair, _) in answers.upstream.iter().enumerate().filter(|(_, upstream)| !**upstream) {
            let (reader, target) = asked[pair];
            let (template, path) = &places[pair];
            let (target, reader) = (&self.nodes[target].node.id, &self.nodes[reader].node.id);
            let reason = if target == reader {
                format!("{target} can't see its own outputs")
            } else {
                format!("{target} is not upstream of {reader}: no path leads from it to here")
            };
            out.add(ProblemCode::UnknownReference, format!("{path}{}", template.pointer_to(target)), reason);
        }
    }

    /// Checks that every expression has a type that can fit.
    fn types(&self, inputs: Option<&Schema>, wanted: &[OptionalInput], prior: Option<&Graph>, out: &mut Problems) {
        let inputs = inputs.map_or(Type::Any, |schema| Type::from_schema(schema.document()));
        let mut check = Check { inputs, nodes: self.nodes, index: self.index, item: None, out };
        for (at, node) in self.nodes.iter().enumerate().skip(prior.map_or(0, |prior| prior.nodes.len())) {
            check.node(at, node, wanted[at].as_deref());
        }
        for (at, edge) in self.edges.iter().enumerate().skip(prior.map_or(0, |prior| prior.edges.len())) {
            edge.condition.iter().for_each(|condition| check.condition(condition, &format!("/edges/{at}/condition")));
        }
        if let Some(outputs) = self.outputs.filter(|_| prior.is_none()) {
            check.check_untyped(outputs, "/outputs");
        }
    }
}
