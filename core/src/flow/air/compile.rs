//! Compiles a document to a graph: ids, order, templates, references, types.
//!
//! Each pass is linear in nodes and edges, and reports all its problems. A later pass checks what the earlier ones
//! could resolve, so that all problems of a document are found together.

use super::catalog::{Catalog, WorkflowInfo};
use super::check::{Check, ExpectedInput, JudgedTypes};
use super::document::{Body, Document, Node};
use super::graph::{CompiledEdge, CompiledNode, Graph, count_child_nodes, has_loops, is_costly};
use super::judge::CompiledJudge;
use super::order::Adjacency;
use super::parse::is_node_id;
use super::problem::{DocumentProblem, ProblemCode, Problems};
use super::references::References;
use crate::flow::expr::{Template, TemplateError, Type};
use crate::flow::outputs;
use crate::json::Digest32;
use crate::json::schema::Schema;
use crate::limits::{SCHEMA_PATTERN_BYTES_MAX, WORKFLOW_EDGES_MAX, WORKFLOW_NODES_MAX};
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
    compile_source(prior, document, catalog, Problems::default())
}

/// Compiles what could be read of a document with these problems.
pub(super) fn compile_source(
    prior: Option<&Graph>,
    document: Document,
    catalog: &dyn Catalog,
    mut out: Problems,
) -> Result<Graph, Vec<DocumentProblem>> {
    if report_too_large(&document, &mut out) {
        return Err(out.into_vec());
    }
    let index = index_nodes(&document, &mut out);
    let ends = resolve_edge_ends(&document, &index, &mut out);
    let ways = Adjacency::new(document.nodes.len(), ends.pairs.iter().flatten().copied().collect());
    let order = ways.topological_order();
    if order.len() < document.nodes.len() {
        ways.report_cycles(&order, &|node| document.nodes[node].id.clone(), &mut out);
    }
    let mut compiling = Compiler { prior, catalog, resolved_tools: BTreeMap::new(), pattern_bytes: 0, out };
    let input_schema = compiling.input_schema(&document);
    let mut wanted = Vec::with_capacity(document.nodes.len());
    let mut nodes = Vec::with_capacity(document.nodes.len());
    for (at, node) in document.nodes.iter().enumerate() {
        let (compiled, wants) = compiling.node(at, node, &document, &ways);
        nodes.push(compiled);
        wanted.push(wants);
    }
    let conditions = compiling.conditions(&document);
    let outputs = document.outputs.as_ref();
    let outputs = outputs.map(|outputs| compiling.template(&Value::Object(outputs.clone()), "/outputs"));
    let mut out = compiling.out;
    let parts =
        CompiledParts { prior, nodes: &nodes, conditions: &conditions, outputs: outputs.as_ref(), index: &index };
    References { parts: &parts, document: &document, ends: &ends, ways: &ways, order: &order }.check(&mut out);
    let is_stored = catalog.allows_placeholders();
    let result = parts.types(input_schema.as_deref(), &wanted, is_stored, &mut out);
    let output_type = result.unwrap_or_else(|| type_of_sinks(&nodes));
    out.into_result(())?;
    let made = |((from, to), condition)| CompiledEdge { from, to, condition };
    let edges: Vec<CompiledEdge> = ways.edges.iter().copied().zip(conditions).map(made).collect();
    let digest = Digest32::of(&document.to_value());
    let (nests, may_take_long) =
        (count_child_nodes(&nodes), has_loops(&nodes, &edges, outputs.as_ref()) || is_costly(input_schema.as_deref()));
    Ok(Graph {
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

/// The type of the outputs of a run without output templates: the outputs of the sink nodes by id.
pub(super) fn type_of_sinks(nodes: &[CompiledNode]) -> Type {
    let sinks = nodes.iter().filter(|node| node.outgoing.is_empty());
    Type::closed_object(sinks.map(|node| (node.node.id.clone(), node.output_type.clone()))).bounded()
}

fn report_too_large(document: &Document, out: &mut Problems) -> bool {
    let counts =
        [(document.nodes.len(), WORKFLOW_NODES_MAX, "/nodes"), (document.edges.len(), WORKFLOW_EDGES_MAX, "/edges")];
    for (count, most, path) in counts.iter().filter(|(count, most, _)| count > most) {
        out.add(ProblemCode::TooLarge, *path, format!("{count} items, at most {most}"));
    }
    counts.iter().any(|(count, most, _)| count > most)
}

/// The positions of the nodes by id. A malformed id is known too: edges may name it.
fn index_nodes(document: &Document, out: &mut Problems) -> BTreeMap<String, usize> {
    let mut index = BTreeMap::new();
    for (at, node) in document.nodes.iter().enumerate().filter(|(_, node)| !node.id.is_empty()) {
        let path = || format!("/nodes/{at}/id");
        if !is_node_id(&node.id) {
            out.add(ProblemCode::InvalidId, path(), format!("{:?} is not a valid node id", node.id));
        }
        if let Some(first) = index.insert(node.id.clone(), at) {
            let reason = format!("duplicate node id {}, already used at /nodes/{first}", node.id);
            out.add(ProblemCode::DuplicateId, path(), reason);
        }
    }
    index
}

/// The ends of the edges.
pub(super) struct EdgeEnds {
    /// The positions of the start and end node of every edge. `None` for an edge that can't be part of a graph.
    pub(super) pairs: Vec<Option<(usize, usize)>>,
    /// Whether both ends of every edge are known.
    pub(super) is_complete: bool,
}

fn resolve_edge_ends(document: &Document, index: &BTreeMap<String, usize>, out: &mut Problems) -> EdgeEnds {
    let mut seen = BTreeSet::new();
    let mut ends = EdgeEnds { pairs: Vec::with_capacity(document.edges.len()), is_complete: true };
    // The name may be that of a node whose id could not be read.
    let is_nameless = document.nodes.iter().any(|node| node.id.is_empty());
    for (at, edge) in document.edges.iter().enumerate() {
        let mut find = |id: &str, member: &str| {
            let found = index.get(id).copied();
            if found.is_none() && !id.is_empty() && !is_nameless && !out.is_full() {
                let guess = did_you_mean(id, index.keys().map(String::as_str));
                let reason = format!("there is no node {id:?}{guess}");
                out.add(ProblemCode::UnknownNode, format!("/edges/{at}/{member}"), reason);
            }
            found
        };
        let (Some(from), Some(to)) = (find(&edge.from, "from"), find(&edge.to, "to")) else {
            ends.pairs.push(None);
            ends.is_complete = false;
            continue;
        };
        if from == to {
            out.add(ProblemCode::SelfEdge, format!("/edges/{at}"), format!("edge from {} to itself", edge.from));
        } else if !seen.insert((from, to)) {
            let reason = format!("duplicate edge from {} to {}", edge.from, edge.to);
            out.add(ProblemCode::DuplicateEdge, format!("/edges/{at}"), reason);
        }
        ends.pairs.push((from != to).then_some((from, to)));
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
    /// Bytes that the patterns of all judges so far take when compiled.
    pattern_bytes: usize,
    out: Problems,
}

type OptionalInput = Option<Arc<ExpectedInput>>;

/// The type of the output that a judge sees, or why it sees none.
type JudgedOutput = Result<Type, String>;

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

    /// The template, with invalid parts where it has problems.
    fn template(&mut self, value: &Value, path: &str) -> Template {
        let (template, errors) = Template::compile_all(value);
        for error in errors {
            let (code, at, reason) = match error {
                TemplateError::Invalid { path, reason } => (ProblemCode::InvalidExpression, path, reason),
                TemplateError::UnknownReference { path, reason } => (ProblemCode::UnknownReference, path, reason),
                TemplateError::TooMany => (ProblemCode::TooLarge, String::new(), error.to_string()),
            };
            self.out.add(code, format!("{path}{at}"), reason);
        }
        template
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
            judge: None,
            is_tool_absent: false,
            output_type: Type::Any,
            incoming,
            outgoing,
        };
        let mut wants = None;
        match &node.body {
            Body::Function(_) | Body::Workflow(_) => {
                let (wanted, judged) = self.compile_action(node, document, &path, &mut compiled);
                wants = wanted;
                self.judge(node, judged, &path, &mut compiled);
            }
            Body::Map(each) => {
                compiled.over = Some(self.template(&each.over, &format!("{path}/over")));
                let path = format!("{path}/do");
                let (wanted, judged) = self.compile_action(node, document, &path, &mut compiled);
                wants = wanted;
                self.judge(node, judged, &path, &mut compiled);
                compiled.output_type = outputs::mapped_type(compiled.output_type);
            }
            Body::Hitl(hitl) => {
                let prompt = hitl.prompt.clone().map(Value::String);
                compiled.prompt = prompt.map(|prompt| self.template(&prompt, &format!("{path}/prompt")));
                compiled.show = hitl.show.as_ref().map(|show| self.template(show, &format!("{path}/show")));
                compiled.output_type = outputs::approved_type();
            }
            Body::Wait(wait) => {
                compiled.inputs = Some(self.template(&wait.templates(), &path));
                compiled.output_type = outputs::waited_type(wait);
            }
            Body::Agent(members) | Body::Swarm(members) => {
                let inputs = members.get("inputs");
                compiled.inputs = inputs.map(|inputs| self.template(inputs, &format!("{path}/inputs")));
            }
        }
        (compiled, wants)
    }

    /// Compiles the tool call or child run of a node, directly or for each item of its map. Returns its expected input,
    /// and the type of the output that its judge sees.
    fn compile_action(
        &mut self,
        node: &Node,
        document: &Document,
        path: &str,
        compiled: &mut CompiledNode,
    ) -> (OptionalInput, JudgedOutput) {
        if let Some(function) = node.function() {
            compiled.inputs = Some(self.template(&Value::Object(function.inputs.clone()), &format!("{path}/inputs")));
            let Some(kind) = self.tool(&function.tool, path) else { return (None, Ok(Type::Any)) };
            let writes = kind.spec.effect == EffectKind::Write && kind.spec.reads_when.is_none() && !kind.absent;
            if function.cache.is_some() && writes {
                let reason = format!("{} changes external state, so its outputs can't be cached", function.tool);
                self.out.add(ProblemCode::NotCacheable, format!("{path}/cache"), reason);
            }
            // A dry run has outputs of its own.
            let is_real = function.inputs.get("dry_run").is_none_or(|dry| *dry == Value::Bool(false));
            compiled.output_type = if is_real { kind.output } else { Type::Any };
            // What is constant in the template is constant in the input.
            let writes = kind.spec.effect_of(&Value::Object(function.inputs.clone())) == EffectKind::Write;
            let judged = match () {
                () if writes && !kind.absent => {
                    Err(format!("calls of {} are judged before they are sent", function.tool))
                }
                () if is_real => Ok(Type::from_schema(kind.spec.output.document())),
                () => Ok(Type::Any),
            };
            compiled.tool = Some(kind.spec);
            compiled.is_tool_absent = kind.absent;
            return (Some(kind.wanted), judged);
        }
        let Some(child) = node.child() else { return (None, Ok(Type::Any)) };
        compiled.inputs = Some(self.template(&Value::Object(child.inputs.clone()), &format!("{path}/inputs")));
        if child.workflow_id.is_empty() || (child.workflow_id == document.workflow_id && child.version.is_none()) {
            // A workflow may start itself. Its interface is not known until it is compiled.
            return (None, Ok(Type::Any));
        }
        match self.catalog.workflow(&child.workflow_id, child.version) {
            WorkflowInfo::Missing => {
                let version = child.version.map_or_else(String::new, |version| format!(" in version {version}"));
                let reason = format!("there is no workflow {}{version}", child.workflow_id);
                self.out.add(ProblemCode::UnknownWorkflow, format!("{path}/workflow_id"), reason);
                (None, Ok(Type::Any))
            }
            WorkflowInfo::Exists => (None, Ok(Type::Any)),
            WorkflowInfo::Interface { inputs, outputs } => {
                compiled.output_type = outputs::completed_type(outputs.clone());
                (inputs.map(|schema| Arc::new(ExpectedInput::new(schema))), Ok(outputs))
            }
        }
    }

    /// Compiles the judge of a node.
    fn judge(&mut self, node: &Node, output: JudgedOutput, path: &str, compiled: &mut CompiledNode) {
        let Some(judge) = node.judge.as_deref() else { return };
        let path = format!("{path}/judge");
        let is_stored = self.catalog.allows_placeholders();
        let fixed = match &output {
            Err(reason) => Some(format!("{reason}, and would be the same again")),
            Ok(_) if node.child().is_some() => {
                Some("a child run may have changed something outside, so it is not started again".to_owned())
            }
            Ok(_) => None,
        };
        if let Some(reason) = fixed.filter(|_| judge.retries > 0 && !is_stored) {
            let reason = format!("retries must be 0: {reason}");
            self.out.add(ProblemCode::InvalidValue, format!("{path}/retries"), reason);
        }
        let conditions = judge
            .checks
            .iter()
            .enumerate()
            .map(|(at, check)| self.condition(&check.require, format!("{path}/checks/{at}/require"), "a check"));
        let conditions = conditions.collect();
        let schema = judge.schema.clone().and_then(|schema| self.judge_schema(schema, &format!("{path}/schema")));
        let judge = judge.clone();
        compiled.judge = Some(Arc::new(CompiledJudge { judge, schema, conditions, output }));
    }

    /// The schema of a judge. All judges together may use the patterns of one schema.
    fn judge_schema(&mut self, schema: Value, path: &str) -> Option<Schema> {
        if self.pattern_bytes > SCHEMA_PATTERN_BYTES_MAX {
            return None;
        }
        match Schema::compile_untrusted(schema) {
            Ok(schema) => {
                self.pattern_bytes = self.pattern_bytes.saturating_add(schema.pattern_bytes());
                if self.pattern_bytes > SCHEMA_PATTERN_BYTES_MAX {
                    let reason = format!(
                        "the patterns of all judges take more than {SCHEMA_PATTERN_BYTES_MAX} bytes of memory when \
                         compiled; use fewer, or simpler ones"
                    );
                    self.out.add(ProblemCode::TooLarge, path, reason);
                }
                Some(schema)
            }
            Err(error) => {
                self.out.add(ProblemCode::InvalidSchema, path, error.reason);
                None
            }
        }
    }

    fn tool(&mut self, name: &str, path: &str) -> Option<ResolvedTool> {
        let catalog = self.catalog;
        let known = self.resolved_tools.entry(name.to_owned()).or_insert_with(|| {
            let found = catalog.tool(name);
            let absent = found.is_none();
            let placeholder = || Spec::placeholder(name, catalog.absence_reason(name)).ok().map(Arc::new);
            let stand_in = || catalog.allows_placeholders().then(placeholder)?;
            let spec = found.or_else(stand_in)?;
            let wanted = Arc::new(ExpectedInput::of_tool(Arc::clone(&spec)));
            let output = outputs::completed_type(Type::from_schema(spec.output.document()));
            Some(ResolvedTool { spec, wanted, output, absent })
        });
        let known = known.clone();
        if known.is_none() && !name.is_empty() && !self.out.is_full() {
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

    /// The conditions of the edges.
    fn conditions(&mut self, document: &Document) -> Vec<Option<Template>> {
        let mut conditions = Vec::with_capacity(document.edges.len());
        for (at, edge) in document.edges.iter().enumerate() {
            if let Some(old) = self.prior.and_then(|prior| prior.edges.get(at)) {
                conditions.push(old.condition.clone());
                continue;
            }
            let condition = edge.condition.as_ref();
            let path = || format!("/edges/{at}/condition");
            conditions.push(condition.map(|condition| self.condition(condition, path(), "a condition")));
        }
        conditions
    }

    /// A template that is true or false.
    fn condition(&mut self, text: &str, path: String, what: &str) -> Template {
        let condition = self.template(&Value::String(text.to_owned()), &path);
        if !condition.can_be_condition() {
            let reason = format!("{what} must be a single ${{…}} that is true or false, with nothing around it");
            let before = self.out.count();
            self.out.add(ProblemCode::InvalidExpression, path, reason);
            self.out.mark_unreadable(before);
        }
        condition
    }
}

/// The compiled parts, for the checks across nodes.
pub(super) struct CompiledParts<'a> {
    /// The graph that the document extends. Its nodes and edges come first and were checked before.
    pub(super) prior: Option<&'a Graph>,
    pub(super) nodes: &'a [CompiledNode],
    /// The conditions of all edges of the document.
    pub(super) conditions: &'a [Option<Template>],
    pub(super) outputs: Option<&'a Template>,
    pub(super) index: &'a BTreeMap<String, usize>,
}

impl CompiledParts<'_> {
    /// How many nodes and edges of the document were checked before.
    pub(super) fn checked_before(&self) -> (usize, usize) {
        self.prior.map_or((0, 0), |prior| (prior.nodes.len(), prior.edges.len()))
    }

    /// Checks that every expression has a type that can fit. The type of the output templates, if there are any.
    fn types(
        &self,
        inputs: Option<&Schema>,
        wanted: &[OptionalInput],
        is_stored: bool,
        out: &mut Problems,
    ) -> Option<Type> {
        let inputs = inputs.map_or(Type::Any, |schema| Type::from_schema(schema.document()));
        let mut check = Check {
            inputs,
            nodes: self.nodes,
            index: self.index,
            is_stored,
            item: None,
            judged: JudgedTypes::default(),
            out,
        };
        let (old_nodes, old_edges) = self.checked_before();
        for (at, node) in self.nodes.iter().enumerate().skip(old_nodes) {
            check.node(at, node, wanted[at].as_deref());
        }
        for (at, condition) in self.conditions.iter().enumerate().skip(old_edges) {
            condition.iter().for_each(|condition| check.condition(condition, &format!("/edges/{at}/condition")));
        }
        if let Some(outputs) = self.outputs.filter(|_| self.prior.is_none()) {
            check.check_untyped(outputs, "/outputs");
        }
        self.outputs.map(|outputs| check.type_of(outputs).bounded())
    }
}
