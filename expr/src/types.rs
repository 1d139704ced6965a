//! The static types of expressions, read from JSON Schemas.
//!
//! Whatever a schema leaves open is [`Type::Any`], which fits everything: the checker reports what
//! must fail, never what may fail. A nullable type counts as the type without null.

use crate::limits;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// Unknown: fits everything.
    Any,
    Null,
    Bool,
    Int,
    Number,
    Text,
    List(Arc<Type>),
    Object(Arc<Shape>),
}

/// The members of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shape {
    pub named: BTreeMap<String, Type>,
    pub required: BTreeSet<String>,
    /// Whether members beyond `named` are allowed.
    pub open: bool,
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Any => "anything",
            Self::Null => "null",
            Self::Bool => "boolean",
            Self::Int => "integer",
            Self::Number => "number",
            Self::Text => "string",
            Self::Object(_) => "object",
            Self::List(item) if **item == Self::Any => "array",
            Self::List(item) => return write!(f, "array of {item}"),
        })
    }
}

impl Type {
    /// The type of the values that a schema accepts.
    #[must_use]
    pub fn from_schema(schema: &Value) -> Self {
        SchemaReader { root: schema, left: limits::SCHEMA_TYPES_MAX, open: Vec::new() }
            .read(schema, limits::SCHEMA_TYPES_DEPTH_MAX)
    }

    #[must_use]
    pub fn from_value(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(_) => Self::Bool,
            Value::Number(number) if number.is_f64() => Self::Number,
            Value::Number(_) => Self::Int,
            Value::String(_) => Self::Text,
            Value::Array(items) => {
                let mut types = items.iter().map(Self::from_value);
                let first = types.next().unwrap_or(Self::Any);
                Self::List(Arc::new(types.fold(first, Self::union)))
            }
            Value::Object(members) => {
                let named: BTreeMap<_, _> =
                    members.iter().map(|(name, value)| (name.clone(), Self::from_value(value))).collect();
                let required = named.keys().cloned().collect();
                Self::Object(Arc::new(Shape { named, required, open: false }))
            }
        }
    }

    /// A closed object type with these members, all optional.
    pub fn closed_object(named: impl IntoIterator<Item = (String, Self)>) -> Self {
        let named = named.into_iter().collect();
        Self::Object(Arc::new(Shape { named, required: BTreeSet::new(), open: false }))
    }

    /// The type with one more member, if it is an object without a member of this name.
    #[must_use]
    pub fn with_member(self, name: &str, member: Self) -> Self {
        match self {
            Self::Object(shape) if !shape.named.contains_key(name) => {
                let mut shape = (*shape).clone();
                shape.named.insert(name.to_owned(), member);
                Self::Object(Arc::new(shape))
            }
            other => other,
        }
    }

    /// The type, with `Any` for what is nested too deeply or beyond the number of types that a schema may have.
    /// Types that are made of others would grow without end.
    #[must_use]
    pub fn bounded(&self) -> Self {
        let mut left = limits::SCHEMA_TYPES_MAX;
        self.within(limits::SCHEMA_TYPES_DEPTH_MAX, &mut left)
    }

    fn within(&self, depth: usize, left: &mut usize) -> Self {
        let (Some(depth), Some(rest)) = (depth.checked_sub(1), left.checked_sub(1)) else { return Self::Any };
        *left = rest;
        match self {
            Self::List(item) => Self::List(Arc::new(item.within(depth, left))),
            Self::Object(shape) => {
                let named = shape.named.iter().map(|(name, known)| (name.clone(), known.within(depth, left))).collect();
                Self::Object(Arc::new(Shape { named, required: shape.required.clone(), open: shape.open }))
            }
            other => other.clone(),
        }
    }

    pub(crate) const fn is_number(&self) -> bool {
        matches!(self, Self::Int | Self::Number)
    }

    /// The union of two types, `Any` where they have nothing in common.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        match (self, other) {
            (one, other) if one == other => one,
            (one, other) if one.is_number() && other.is_number() => Self::Number,
            (Self::Null, other) => other,
            (one, Self::Null) => one,
            _ => Self::Any,
        }
    }

    /// Whether a value could have both types.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any | Self::Null, _) | (_, Self::Any | Self::Null) => true,
            (Self::List(one), Self::List(other)) => one.overlaps(other),
            (Self::Object(_), Self::Object(_)) => true,
            (one, other) => one == other || (one.is_number() && other.is_number()),
        }
    }

    /// Why a value of this type does not fit where `wanted` is expected, or `None` if it may fit.
    pub fn unfit(&self, wanted: &Self) -> Option<String> {
        match (self, wanted) {
            (Self::Any, _) | (_, Self::Any) => None,
            // The schema itself decides about null when there is a value.
            (Self::Null, _) => None,
            (Self::Int | Self::Number, Self::Number | Self::Int) => None,
            (Self::List(one), Self::List(wanted)) => one.unfit(wanted).map(|reason| format!("list item: {reason}")),
            (Self::Object(one), Self::Object(wanted)) => one.unfit(wanted),
            (one, wanted) if one == wanted => None,
            (one, wanted) => Some(format!("expected {wanted}, found {one}")),
        }
    }
}

impl Shape {
    fn unfit(&self, wanted: &Self) -> Option<String> {
        for (name, wanted) in &wanted.named {
            if let Some(reason) = self.named.get(name).and_then(|one| one.unfit(wanted)) {
                return Some(format!("member {name}: {reason}"));
            }
        }
        let missing = wanted.required.iter().find(|name| !self.open && !self.named.contains_key(*name));
        missing.map(|name| format!("the object has no member {name}"))
    }
}

struct SchemaReader<'a> {
    root: &'a Value,
    left: usize,
    /// The references that are being followed.
    open: Vec<&'a str>,
}

impl<'a> SchemaReader<'a> {
    fn read(&mut self, schema: &'a Value, depth: usize) -> Type {
        let (Value::Object(members), Some(depth), Some(left)) =
            (schema, depth.checked_sub(1), self.left.checked_sub(1))
        else {
            return Type::Any;
        };
        self.left = left;
        if let Some(target) = members.get("$ref").and_then(Value::as_str) {
            return self.follow(target, depth);
        }
        match members.get("type") {
            Some(Value::String(word)) => self.typed(word, schema, depth),
            Some(Value::Array(words)) => {
                let mut words = words.iter().filter_map(Value::as_str).filter(|word| *word != "null");
                let first = words.next().map_or(Type::Null, |word| self.typed(word, schema, depth));
                words.fold(first, |known, word| known.union(self.typed(word, schema, depth)))
            }
            _ => match (members.get("const"), members.get("enum").and_then(Value::as_array)) {
                (Some(value), _) => Type::from_value(value),
                (None, Some(values)) if !values.is_empty() => {
                    let mut types = values.iter().map(Type::from_value);
                    let first = types.next().unwrap_or(Type::Any);
                    types.fold(first, Type::union)
                }
                _ => Type::Any,
            },
        }
    }

    fn follow(&mut self, target: &'a str, depth: usize) -> Type {
        let found = target.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
        match found {
            Some(schema) if !self.open.contains(&target) => {
                self.open.push(target);
                let known = self.read(schema, depth);
                self.open.pop();
                known
            }
            _ => Type::Any,
        }
    }

    fn typed(&mut self, word: &str, schema: &'a Value, depth: usize) -> Type {
        match word {
            "null" => Type::Null,
            "boolean" => Type::Bool,
            "integer" => Type::Int,
            "number" => Type::Number,
            "string" => Type::Text,
            "array" => {
                let item = match schema.get("items") {
                    Some(items) if schema.get("prefixItems").is_none() => self.read(items, depth),
                    _ => Type::Any,
                };
                Type::List(Arc::new(item))
            }
            "object" => Type::Object(Arc::new(self.shape(schema, depth))),
            _ => Type::Any,
        }
    }

    fn shape(&mut self, schema: &'a Value, depth: usize) -> Shape {
        // `additionalProperties` considers its own schema only, `unevaluatedProperties` also the schemas
        // combined with it.
        const COMBINED: &[&str] = &["allOf", "anyOf", "oneOf", "if", "$dynamicRef", "dependentSchemas"];
        let shut = |name: &str| schema.get(name) == Some(&Value::Bool(false));
        let combined = COMBINED.iter().any(|name| schema.get(name).is_some());
        let closed = (shut("additionalProperties") || (shut("unevaluatedProperties") && !combined))
            && schema.get("patternProperties").is_none();
        let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        let named = properties.map(|(name, schema)| (name.clone(), self.read(schema, depth))).collect();
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        let required = required.filter_map(Value::as_str).map(str::to_owned).collect();
        Shape { named, required, open: !closed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_schema_gives_the_type_it_is_sure_of() {
        let of = |schema: Value| Type::from_schema(&schema).to_string();
        assert_eq!(of(json!({"type": "integer"})), "integer");
        assert_eq!(of(json!({"type": ["string", "null"]})), "string");
        assert_eq!(of(json!({"type": ["integer", "number"]})), "number");
        assert_eq!(of(json!({"type": ["string", "integer"]})), "anything");
        assert_eq!(of(json!({"type": "array", "items": {"type": "string"}})), "array of string");
        assert_eq!(of(json!({"enum": ["a", "b"]})), "string");
        assert_eq!(of(json!({"const": 1})), "integer");
        assert_eq!(of(json!(true)), "anything");
        assert_eq!(of(json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "boolean"}}})), "boolean");
    }

    #[test]
    fn a_schema_that_contains_itself_ends() {
        let tree = json!({"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}});
        assert_eq!(Type::from_schema(&tree).to_string(), "object");
    }

    /// Each type has the one before it twice.
    #[test]
    fn a_type_made_of_others_stays_small() {
        let double = |known: Type| Type::closed_object([("a".to_owned(), known.clone()), ("b".to_owned(), known)]);
        let grown = (0..60).fold(Type::Text, |known, _| double(known).bounded());
        let count = |known: &Type| {
            let (mut waiting, mut count) = (vec![known.clone()], 0);
            while let Some(known) = waiting.pop() {
                count += 1;
                if let Type::Object(shape) = known {
                    waiting.extend(shape.named.values().cloned());
                }
            }
            count
        };
        assert!(count(&grown) <= 2 * limits::SCHEMA_TYPES_MAX, "{}", count(&grown));
    }

    #[test]
    fn only_what_must_be_wrong_is_unfit() {
        let of = |schema: Value| Type::from_schema(&schema);
        let closed =
            of(json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false}));
        let wants = of(json!({"type": "object", "required": ["b"]}));
        assert!(closed.unfit(&wants).is_some());
        assert!(of(json!({"type": "object"})).unfit(&wants).is_none());
        assert!(Type::Text.unfit(&Type::Int).is_some());
        assert!(Type::Any.unfit(&Type::Int).is_none());
    }
}
