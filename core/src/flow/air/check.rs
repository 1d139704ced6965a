//! Checks templates against the expected inputs: expressions by type, constants by schema.
//!
//! A template is only partly known: its constants are exact, its expressions have at most a type. The
//! schema validates the whole with placeholders for the expressions, and its errors about places that
//! are or contain a placeholder are ignored.

use super::graph::CompiledNode;
use super::problem::{ProblemCode, Problems};
use crate::flow::expr::{Mismatch, Shape, Template, TemplatePart, Type, TypeScope, pointer_token};
use crate::json::schema::Schema;
use crate::text::did_you_mean;
use crate::tool::Spec;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
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
    pub(super) item: Option<Type>,
    pub(super) out: &'a mut Problems,
}

/// The types of the variables.
struct VariableTypes<'a> {
    inputs: &'a Type,
    nodes: &'a [CompiledNode],
    index: &'a BTreeMap<String, usize>,
    item: Option<&'a Type>,
}

impl TypeScope for VariableTypes<'_> {
    fn inputs(&self) -> Type {
        self.inputs.clone()
    }

    fn outputs(&self, node: &str) -> Type {
        self.index.get(node).map_or(Type::Any, |at| self.nodes[*at].output_type.clone())
    }

    fn item(&self) -> Option<Type> {
        self.item.cloned()
    }
}

/// What the check of a template found.
#[derive(Default)]
struct TemplateFindings {
    /// Pointers to placeholders.
    deferred: Vec<String>,
    /// Pointers to objects whose members were already reported.
    reported: Vec<String>,
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
        let mut inputs = format!("{path}/inputs");
        if let Some(over) = &node.over {
            let list = self.check_list(over, &format!("{path}/over"));
            self.item = Some(list);
            inputs = format!("{path}/do/inputs");
        }
        match (&node.inputs, wanted) {
            (Some(template), Some(wanted)) => self.check_input(template, wanted, &inputs),
            (Some(template), None) => self.check_untyped(template, &inputs),
            _ => {}
        }
        self.item = None;
    }

    /// A template without an expected type.
    pub(super) fn check_untyped(&mut self, template: &Template, path: &str) {
        self.check_part(template.root(), &Type::Any, path, &mut TemplateFindings::default());
    }

    pub(super) fn condition(&mut self, template: &Template, path: &str) {
        if self.out.is_full() {
            return;
        }
        match self.infer(template.root(), path) {
            None | Some(Type::Any | Type::Bool) => {}
            Some(other) => {
                self.out.add(ProblemCode::TypeMismatch, path, format!("a condition must be a boolean, not {other}"));
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
            None | Some(Type::Any) => Type::Any,
            Some(Type::List(item)) => (*item).clone(),
            Some(other) => {
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
        let mut seen = TemplateFindings::default();
        let before = self.out.count();
        let instance = self.check_part(template.root(), &wanted.input, path, &mut seen);
        let Err(faults) = wanted.schema().check(&instance) else {
            return;
        };
        let inside = |one: &str, other: &str| {
            one.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        for fault in faults {
            let place = format!("{path}{}", fault.pointer);
            let unsure = seen.deferred.iter().any(|deferred| inside(&place, deferred) || inside(deferred, &place));
            if !unsure && !seen.reported.contains(&place) {
                self.out.add(ProblemCode::InvalidInput, place, fault.message);
            }
        }
        // A schema error without a pointer must not be lost.
        if seen.deferred.is_empty() && self.out.count() == before {
            self.out.add(ProblemCode::InvalidInput, path, "the inputs do not match the schema");
        }
    }

    fn infer(&mut self, part: &TemplatePart, path: &str) -> Option<Type> {
        let known =
            VariableTypes { inputs: &self.inputs, nodes: self.nodes, index: self.index, item: self.item.as_ref() };
        match part.infer(&known) {
            Ok(known) => Some(known),
            Err(Mismatch::UnknownReference(reason)) => {
                self.out.add(ProblemCode::UnknownReference, path, reason);
                None
            }
            Err(Mismatch::Type(reason)) => {
                self.out.add(ProblemCode::TypeMismatch, path, reason);
                None
            }
        }
    }

    /// Checks one part and returns its value, or a placeholder.
    fn check_part(&mut self, part: &TemplatePart, wanted: &Type, path: &str, seen: &mut TemplateFindings) -> Value {
        match part {
            TemplatePart::Constant(value) => {
                if let (Value::Object(members), Type::Object(shape)) = (value, wanted) {
                    self.check_members(
                        &|name| members.contains_key(name),
                        members.keys().map(String::as_str),
                        shape,
                        path,
                        seen,
                    );
                }
                value.clone()
            }
            TemplatePart::Single(_) | TemplatePart::Mixed { .. } => {
                if let Some(reason) = self.infer(part, path).and_then(|found| found.unfit(wanted)) {
                    self.out.add(ProblemCode::TypeMismatch, path, reason);
                }
                seen.deferred.push(path.to_owned());
                placeholder(wanted)
            }
            TemplatePart::List(parts) => {
                let item = match wanted {
                    Type::List(item) => (**item).clone(),
                    other => {
                        self.check_type(&Type::List(Arc::new(Type::Any)), other, path);
                        Type::Any
                    }
                };
                parts
                    .iter()
                    .enumerate()
                    .map(|(at, part)| self.check_part(part, &item, &format!("{path}/{at}"), seen))
                    .collect()
            }
            TemplatePart::Object(members) => self.object(members, wanted, path, seen),
        }
    }

    fn object(
        &mut self,
        members: &[(String, TemplatePart)],
        wanted: &Type,
        path: &str,
        seen: &mut TemplateFindings,
    ) -> Value {
        let shape = match wanted {
            Type::Object(shape) => Some(shape),
            other => {
                self.check_type(&Type::closed_object([]), other, path);
                None
            }
        };
        if let Some(shape) = shape {
            let has = |name: &str| members.iter().any(|(member, _)| member == name);
            self.check_members(&has, members.iter().map(|(name, _)| name.as_str()), shape, path, seen);
        }
        let mut made = Map::new();
        for (name, part) in members {
            let wanted = shape.and_then(|shape| shape.named.get(name)).unwrap_or(&Type::Any);
            let place = format!("{path}/{}", pointer_token(name));
            made.insert(name.clone(), self.check_part(part, wanted, &place, seen));
        }
        Value::Object(made)
    }

    fn check_type(&mut self, found: &Type, wanted: &Type, path: &str) {
        if let Some(reason) = found.unfit(wanted) {
            self.out.add(ProblemCode::TypeMismatch, path, reason);
        }
    }

    /// Reports missing and unknown members.
    fn check_members<'n>(
        &mut self,
        has: &dyn Fn(&str) -> bool,
        names: impl Iterator<Item = &'n str>,
        shape: &Shape,
        path: &str,
        seen: &mut TemplateFindings,
    ) {
        let before = self.out.count();
        for name in shape.required.iter().filter(|name| !has(name)) {
            let place = format!("{path}/{}", pointer_token(name));
            self.out.add(ProblemCode::MissingInput, place, format!("the input {name} is missing"));
        }
        for name in names.filter(|name| !shape.open && !shape.named.contains_key(*name)) {
            let guess = did_you_mean(name, shape.named.keys().map(String::as_str));
            let place = format!("{path}/{}", pointer_token(name));
            self.out.add(ProblemCode::UnknownInput, place, format!("there is no input {name}{guess}"));
        }
        if self.out.count() > before || self.out.is_full() {
            seen.reported.push(path.to_owned());
        }
    }
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
