//! Checks templates against the expected inputs: expressions by type, constants by schema.
//!
//! A template is only partly known: its constants are exact, its expressions have at most a type. The
//! schema validates the whole with placeholders for the expressions, and its errors about places that
//! are or contain a placeholder are ignored.

use super::document::Body;
use super::graph::CompiledNode;
use super::problem::{DocumentProblem, ProblemCode, Problems};
use super::wait;
use crate::flow::expr::{Mismatch, Shape, Template, TemplatePart, Type, TypeScope, pointer_token};
use crate::flow::{judgement, outputs};
use crate::json::schema::Schema;
use crate::limits::KNOWN_NAMES_MAX;
use crate::text::did_you_mean;
use crate::tool::Spec;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The expected input of a tool or child workflow.
pub(super) struct ExpectedInput {
    input: Type,
    schema: InputSchema,
}

enum InputSchema {
    Tool(Arc<Spec>),
    Child(Arc<Schema>),
}

impl ExpectedInput {
    pub(super) fn new(schema: Arc<Schema>) -> Self {
        Self { input: Type::from_schema(schema.document()), schema: InputSchema::Child(schema) }
    }

    pub(super) fn of_tool(spec: Arc<Spec>) -> Self {
        Self { input: Type::from_schema(spec.input.document()), schema: InputSchema::Tool(spec) }
    }

    fn schema(&self) -> &Schema {
        match &self.schema {
            InputSchema::Tool(spec) => &spec.input,
            InputSchema::Child(schema) => schema,
        }
    }
}

/// One type-checking pass over a document.
pub(super) struct Check<'a> {
    pub(super) inputs: Type,
    pub(super) nodes: &'a [CompiledNode],
    pub(super) index: &'a BTreeMap<String, usize>,
    /// The document was accepted before, maybe when the outputs of fewer types of nodes were known.
    pub(super) is_stored: bool,
    pub(super) item: Option<Type>,
    pub(super) judged: JudgedTypes,
    pub(super) out: &'a mut Problems,
}

/// The types of the variables that exist only around a judge.
#[derive(Clone, Default)]
pub(super) struct JudgedTypes {
    /// Of `judge`, in the inputs of a node that has one.
    feedback: Option<Type>,
    /// Of `input` and `output`, in the checks of a judge.
    step: Option<(Type, Result<Type, String>)>,
}

/// The types of the variables.
struct VariableTypes<'a> {
    inputs: &'a Type,
    nodes: &'a [CompiledNode],
    index: &'a BTreeMap<String, usize>,
    is_stored: bool,
    item: Option<&'a Type>,
    judged: &'a JudgedTypes,
}

impl TypeScope for VariableTypes<'_> {
    fn inputs(&self) -> Type {
        self.inputs.clone()
    }

    fn outputs(&self, node: &str) -> Type {
        match self.index.get(node).map(|at| &self.nodes[*at]) {
            None => Type::Any,
            Some(node) if self.is_stored && matches!(node.node.body, Body::Hitl(_) | Body::Map(_)) => Type::Any,
            Some(node) => node.output_type.clone(),
        }
    }

    fn error(&self) -> Type {
        if self.is_stored { Type::Any } else { outputs::error_type() }
    }

    fn item(&self) -> Option<Type> {
        self.item.cloned()
    }

    fn step_input(&self) -> Option<Type> {
        self.judged.step.as_ref().map(|(input, _)| input.clone())
    }

    fn step_output(&self) -> Result<Type, String> {
        match &self.judged.step {
            None => Err("output is only known in the checks of a judge".to_owned()),
            // A tool that only read when the document was accepted may write now.
            Some((_, Err(_))) if self.is_stored => Ok(Type::Any),
            Some((_, Err(reason))) => Err(format!("output is not known here: {reason}")),
            Some((_, output)) => output.clone(),
        }
    }

    fn judge(&self) -> Option<Type> {
        self.judged.feedback.clone()
    }
}

impl Check<'_> {
    pub(super) fn node(&mut self, at: usize, node: &CompiledNode, wanted: Option<&ExpectedInput>) {
        if self.out.is_full() {
            return;
        }
        let path = format!("/nodes/{at}");
        self.item = None;
        for (template, name) in [(&node.prompt, "prompt"), (&node.show, "show")] {
            template.iter().for_each(|template| self.check_untyped(template, &format!("{path}/{name}")));
        }
        let mut action = path.clone();
        if let Some(over) = &node.over {
            let list = self.check_list(over, &format!("{path}/over"));
            self.item = Some(list);
            action = format!("{path}/do");
        }
        let inputs = format!("{action}/inputs");
        self.judged.feedback = node.judge.as_ref().map(|_| judgement::feedback_type());
        match (&node.inputs, wanted, &node.node.body) {
            // Its templates are members of the node itself.
            (Some(template), _, Body::Wait(wait)) => {
                self.check_part(template.root(), &wait::expected_type(wait), &mut path.clone(), &mut Vec::new());
            }
            (Some(template), Some(wanted), _) => self.check_input(template, wanted, &inputs),
            (Some(template), None, _) => self.check_untyped(template, &inputs),
            (None, ..) => {}
        }
        self.judged.feedback = None;
        if let Some(judge) = &node.judge {
            let input = wanted.map_or(Type::Any, |wanted| wanted.input.clone());
            self.judged.step = Some((input, judge.output.clone()));
            for (at, condition) in judge.conditions.iter().enumerate() {
                self.boolean(condition, &format!("{action}/judge/checks/{at}/require"), "a check");
            }
            self.judged.step = None;
        }
        self.item = None;
    }

    /// A template without an expected type.
    pub(super) fn check_untyped(&mut self, template: &Template, path: &str) {
        self.check_part(template.root(), &Type::Any, &mut path.to_owned(), &mut Vec::new());
    }

    pub(super) fn condition(&mut self, template: &Template, path: &str) {
        self.boolean(template, path, "a condition");
    }

    fn boolean(&mut self, template: &Template, path: &str, what: &str) {
        if self.out.is_full() {
            return;
        }
        match self.infer(template.root(), path) {
            Type::Any | Type::Bool => {}
            other => {
                self.out.add(ProblemCode::TypeMismatch, path, format!("{what} must be a boolean, not {other}"));
            }
        }
    }

    /// The item type of a map's list.
    fn check_list(&mut self, template: &Template, path: &str) -> Type {
        if matches!(template.root(), TemplatePart::List(_)) {
            self.check_untyped(template, path);
            return Type::Any;
        }
        match self.infer(template.root(), path) {
            Type::Any => Type::Any,
            Type::List(item) => (*item).clone(),
            Type::Object(_) if self.is_stored && !template.is_constant() => Type::Any,
            other => {
                self.out.add(
                    ProblemCode::TypeMismatch,
                    path,
                    format!("a map iterates over an array, not over {other}"),
                );
                Type::Any
            }
        }
    }

    /// The input of a tool or child workflow.
    fn check_input(&mut self, template: &Template, wanted: &ExpectedInput, path: &str) {
        // Pointers to objects whose members were already reported.
        let mut reported = Vec::new();
        let before = self.out.count();
        let instance = self.check_part(template.root(), &wanted.input, &mut path.to_owned(), &mut reported);
        let Err(faults) = wanted.schema().check(&instance) else {
            return;
        };
        for fault in faults {
            let place = format!("{path}{}", fault.pointer);
            if !template.root().is_unknown_at(&fault.pointer) && !reported.contains(&place) {
                self.out.add(ProblemCode::InvalidInput, place, fault.message);
            }
        }
        // A schema error without a pointer must not be lost.
        if template.is_constant() && self.out.count() == before {
            self.out.add(ProblemCode::InvalidInput, path, "the inputs do not match the schema");
        }
    }

    fn variables(&self) -> VariableTypes<'_> {
        VariableTypes {
            inputs: &self.inputs,
            nodes: self.nodes,
            index: self.index,
            is_stored: self.is_stored,
            item: self.item.as_ref(),
            judged: &self.judged,
        }
    }

    /// The type of a template that was checked.
    pub(super) fn type_of(&self, template: &Template) -> Type {
        template.root().infer(&self.variables(), &mut Vec::new())
    }

    /// The type of a part. Reports its mismatches.
    fn infer(&mut self, part: &TemplatePart, path: &str) -> Type {
        let mut found = Vec::new();
        let known = part.infer(&self.variables(), &mut found);
        for mismatch in found {
            self.out.push(match mismatch {
                Mismatch::Type(reason) => DocumentProblem::new(ProblemCode::TypeMismatch, path, reason),
                Mismatch::UnknownReference { reason, known } => {
                    let problem = DocumentProblem::new(ProblemCode::UnknownReference, path, reason);
                    if known.is_empty() { problem } else { problem.with_hint(list_members(&known)) }
                }
            });
        }
        known
    }

    /// Checks one part and returns its value, or a placeholder.
    fn check_part(
        &mut self,
        part: &TemplatePart,
        wanted: &Type,
        path: &mut String,
        reported: &mut Vec<String>,
    ) -> Value {
        match part {
            TemplatePart::Constant(value) => {
                if let (Value::Object(members), Type::Object(shape)) = (value, wanted) {
                    self.check_members(&members.keys().map(String::as_str).collect(), shape, path, reported);
                }
                value.clone()
            }
            TemplatePart::Single(_) | TemplatePart::Mixed { .. } => {
                let found = self.infer(part, path);
                self.check_type(&found, wanted, path);
                placeholder(wanted)
            }
            TemplatePart::Invalid => placeholder(wanted),
            TemplatePart::List(parts) => {
                let item = match wanted {
                    Type::List(item) => (**item).clone(),
                    other => {
                        self.check_type(&Type::List(Arc::new(Type::Any)), other, path);
                        Type::Any
                    }
                };
                let mut made = Vec::with_capacity(parts.len());
                for (at, part) in parts.iter().enumerate() {
                    let length = extend(path, &at.to_string());
                    made.push(self.check_part(part, &item, path, reported));
                    path.truncate(length);
                }
                Value::Array(made)
            }
            TemplatePart::Object(members) => self.object(members, wanted, path, reported),
        }
    }

    fn object(
        &mut self,
        members: &[(String, TemplatePart)],
        wanted: &Type,
        path: &mut String,
        reported: &mut Vec<String>,
    ) -> Value {
        let shape = match wanted {
            Type::Object(shape) => Some(shape),
            other => {
                self.check_type(&Type::closed_object([]), other, path);
                None
            }
        };
        if let Some(shape) = shape {
            self.check_members(&members.iter().map(|(name, _)| name.as_str()).collect(), shape, path, reported);
        }
        let mut made = Map::new();
        for (name, part) in members {
            let wanted = shape.and_then(|shape| shape.named.get(name)).unwrap_or(&Type::Any);
            let length = extend(path, name);
            made.insert(name.clone(), self.check_part(part, wanted, path, reported));
            path.truncate(length);
        }
        Value::Object(made)
    }

    fn check_type(&mut self, found: &Type, wanted: &Type, path: &str) {
        if let Some(reason) = found.unfit(wanted) {
            self.out.add(ProblemCode::TypeMismatch, path, reason);
        }
    }

    /// Reports missing and unknown members.
    fn check_members(&mut self, given: &BTreeSet<&str>, shape: &Shape, path: &str, reported: &mut Vec<String>) {
        let before = self.out.count();
        for name in shape.required.iter().filter(|name| !given.contains(name.as_str())) {
            if self.out.is_full() {
                return;
            }
            let place = format!("{path}/{}", pointer_token(name));
            self.out.add(ProblemCode::MissingInput, place, format!("the input {name} is missing"));
        }
        for name in given.iter().filter(|name| !shape.open && !shape.named.contains_key(**name)) {
            if self.out.is_full() {
                return;
            }
            let guess = did_you_mean(name, shape.named.keys().map(String::as_str));
            let place = format!("{path}/{}", pointer_token(name));
            self.out.add(ProblemCode::UnknownInput, place, format!("there is no input {name}{guess}"));
        }
        if self.out.count() > before {
            reported.push(path.to_owned());
        }
    }
}

fn list_members(known: &[String]) -> String {
    let more = if known.len() < KNOWN_NAMES_MAX { "" } else { ", …" };
    format!("its members are {}{more}", known.join(", "))
}

/// Adds a name to a JSON pointer. The length before, to remove it again: a long name is not copied for every value
/// inside.
fn extend(path: &mut String, name: &str) -> usize {
    let length = path.len();
    path.push('/');
    path.push_str(&pointer_token(name));
    length
}

/// A placeholder of this type.
fn placeholder(wanted: &Type) -> Value {
    match wanted {
        Type::Any | Type::Null => Value::Null,
        Type::Bool => json!(false),
        Type::Int | Type::Number => json!(0),
        Type::Text => json!(""),
        Type::List(_) => json!([]),
        Type::Object(_) => json!({}),
    }
}
