//! Checks templates against the expected inputs: expressions by type, constants by schema.
//!
//! A template is only partly known: its constants are exact, its expressions have at most a type. The
//! schema validates the whole with placeholders for the expressions, and its errors about places that
//! are or contain a placeholder are ignored.

use super::graph::CompiledNode;
use super::problem::{ProblemCode, Problems};
use crate::flow::expr::{Mismatch, Part, Shape, Template, Type, Types, pointer_token};
use crate::json::schema::Schema;
use crate::text::did_you_mean;
use crate::tool::Spec;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The expected input of a tool or child workflow.
pub(super) struct Wanted {
    input: Type,
    schema: Source,
}

enum Source {
    Tool(Arc<Spec>),
    Child(Arc<Schema>),
}

impl Wanted {
    pub(super) fn new(schema: Arc<Schema>) -> Self {
        Self { input: Type::of_schema(schema.document()), schema: Source::Child(schema) }
    }

    pub(super) fn of_tool(spec: Arc<Spec>) -> Self {
        Self { input: Type::of_schema(spec.input.document()), schema: Source::Tool(spec) }
    }

    fn schema(&self) -> &Schema {
        match &self.schema {
            Source::Tool(spec) => &spec.input,
            Source::Child(schema) => schema,
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
struct Known<'a> {
    inputs: &'a Type,
    nodes: &'a [CompiledNode],
    index: &'a BTreeMap<String, usize>,
    item: Option<&'a Type>,
}

impl Types for Known<'_> {
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
struct Seen {
    /// Pointers to placeholders.
    deferred: Vec<String>,
    /// Pointers to objects whose members were already reported.
    told: Vec<String>,
}

impl Check<'_> {
    pub(super) fn node(&mut self, at: usize, node: &CompiledNode, wanted: Option<&Wanted>) {
        if self.out.is_full() {
            return;
        }
        let path = format!("/nodes/{at}");
        self.item = None;
        for (template, name) in [(&node.prompt, "prompt"), (&node.show, "show")] {
            template.iter().for_each(|template| self.anything(template, &format!("{path}/{name}")));
        }
        let mut inputs = format!("{path}/inputs");
        if let Some(over) = &node.over {
            let list = self.list(over, &format!("{path}/over"));
            self.item = Some(list);
            inputs = format!("{path}/do/inputs");
        }
        match (&node.inputs, wanted) {
            (Some(template), Some(wanted)) => self.given(template, wanted, &inputs),
            (Some(template), None) => self.anything(template, &inputs),
            _ => {}
        }
        self.item = None;
    }

    /// A template without an expected type.
    pub(super) fn anything(&mut self, template: &Template, path: &str) {
        self.part(template.root(), &Type::Any, path, &mut Seen::default());
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
    fn list(&mut self, template: &Template, path: &str) -> Type {
        if matches!(template.root(), Part::List(_)) {
            self.anything(template, path);
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
    fn given(&mut self, template: &Template, wanted: &Wanted, path: &str) {
        let mut seen = Seen::default();
        let before = self.out.count();
        let instance = self.part(template.root(), &wanted.input, path, &mut seen);
        let Err(faults) = wanted.schema().check(&instance) else {
            return;
        };
        let inside = |one: &str, other: &str| {
            one.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        for fault in faults {
            let place = format!("{path}{}", fault.pointer);
            let unsure = seen.deferred.iter().any(|deferred| inside(&place, deferred) || inside(deferred, &place));
            if !unsure && !seen.told.contains(&place) {
                self.out.add(ProblemCode::InvalidInput, place, fault.message);
            }
        }
        // A schema error without a pointer must not be lost.
        if seen.deferred.is_empty() && self.out.count() == before {
            self.out.add(ProblemCode::InvalidInput, path, "the inputs do not match the schema");
        }
    }

    fn infer(&mut self, part: &Part, path: &str) -> Option<Type> {
        let known = Known { inputs: &self.inputs, nodes: self.nodes, index: self.index, item: self.item.as_ref() };
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
    fn part(&mut self, part: &Part, wanted: &Type, path: &str, seen: &mut Seen) -> Value {
        match part {
            Part::Constant(value) => {
                if let (Value::Object(members), Type::Object(shape)) = (value, wanted) {
                    self.members(
                        &|name| members.contains_key(name),
                        members.keys().map(String::as_str),
                        shape,
                        path,
                        seen,
                    );
                }
                value.clone()
            }
            Part::Lone(_) | Part::Mixed { .. } => {
                if let Some(reason) = self.infer(part, path).and_then(|found| found.unfit(wanted)) {
                    self.out.add(ProblemCode::TypeMismatch, path, reason);
                }
                seen.deferred.push(path.to_owned());
                stand_in(wanted)
            }
            Part::List(parts) => {
                let item = match wanted {
                    Type::List(item) => (**item).clone(),
                    other => {
                        self.kind(&Type::List(Arc::new(Type::Any)), other, path);
                        Type::Any
                    }
                };
                parts
                    .iter()
                    .enumerate()
                    .map(|(at, part)| self.part(part, &item, &format!("{path}/{at}"), seen))
                    .collect()
            }
            Part::Object(members) => self.object(members, wanted, path, seen),
        }
    }

    fn object(&mut self, members: &[(String, Part)], wanted: &Type, path: &str, seen: &mut Seen) -> Value {
        let shape = match wanted {
            Type::Object(shape) => Some(shape),
            other => {
                self.kind(&Type::of_names([]), other, path);
                None
            }
        };
        if let Some(shape) = shape {
            let has = |name: &str| members.iter().any(|(member, _)| member == name);
            self.members(&has, members.iter().map(|(name, _)| name.as_str()), shape, path, seen);
        }
        let mut made = Map::new();
        for (name, part) in members {
            let wanted = shape.and_then(|shape| shape.named.get(name)).unwrap_or(&Type::Any);
            let place = format!("{path}/{}", pointer_token(name));
            made.insert(name.clone(), self.part(part, wanted, &place, seen));
        }
        Value::Object(made)
    }

    fn kind(&mut self, found: &Type, wanted: &Type, path: &str) {
        if let Some(reason) = found.unfit(wanted) {
            self.out.add(ProblemCode::TypeMismatch, path, reason);
        }
    }

    /// Reports missing and unknown members.
    fn members<'n>(
        &mut self,
        has: &dyn Fn(&str) -> bool,
        names: impl Iterator<Item = &'n str>,
        shape: &Shape,
        path: &str,
        seen: &mut Seen,
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
            seen.told.push(path.to_owned());
        }
    }
}

/// A placeholder of this type.
fn stand_in(wanted: &Type) -> Value {
    match wanted {
        Type::Any | Type::Null => Value::Null,
        Type::Bool => json!(false),
        Type::Int | Type::Number => json!(0),
        Type::Text => json!(""),
        Type::List(_) => json!([]),
        Type::Object(_) => json!({}),
    }
}
