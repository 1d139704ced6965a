//! The inputs of a tool, as slots that a goal may fill.
//!
//! A slot is classified by its name and schema. `dry_run` is not a slot: the API request decides on dry runs, not the
//! words of a goal.

use chimera_core::flow::expr::Type;
use chimera_core::tool::Spec;
use serde_json::{Map, Value};

/// Slots for content, the likeliest first.
const CONTENT: &[&str] =
    &["body", "json", "text", "message", "content", "markdown", "paragraphs", "artifact", "data", "value"];
/// Slots for the name of the content, or for a search text.
const HEADS: &[&str] = &["title", "subject", "query", "name"];
/// Slots for people's addresses.
const ADDRESSES: &[&str] = &["to", "cc", "bcc", "reply_to", "mailbox"];

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotKind {
    /// People's addresses.
    Address,
    /// An id.
    Id,
    /// A whole number.
    Count,
    /// An enum value.
    Choice,
    /// Several texts.
    Texts,
    /// A text.
    Text,
    /// An object, or anything.
    Open,
    /// Something that words don't state, such as a boolean.
    Other,
}

/// One input of a tool.
#[derive(Clone, Debug)]
pub(super) struct Slot<'a> {
    pub(super) name: &'a str,
    pub(super) schema: &'a Value,
    pub(super) required: bool,
    pub(super) class: SlotKind,
}

impl<'a> Slot<'a> {
    fn of(name: &'a str, schema: &'a Value, required: bool) -> Self {
        let class = if ADDRESSES.contains(&name) {
            SlotKind::Address
        } else if name.ends_with("_id") {
            SlotKind::Id
        } else if schema.get("enum").is_some() {
            SlotKind::Choice
        } else {
            match Type::from_schema(schema) {
                Type::Text => SlotKind::Text,
                Type::Int | Type::Number => SlotKind::Count,
                Type::List(item) if matches!(*item, Type::Text | Type::Any) => SlotKind::Texts,
                Type::Object(_) | Type::Any => SlotKind::Open,
                _ => SlotKind::Other,
            }
        };
        Self { name, schema, required, class }
    }

    /// Whether it holds content.
    pub(super) fn is_content(&self) -> bool {
        CONTENT.contains(&self.name) && matches!(self.class, SlotKind::Text | SlotKind::Texts | SlotKind::Open)
    }

    pub(super) fn is_head(&self) -> bool {
        HEADS.contains(&self.name) && self.class == SlotKind::Text
    }

    /// Several values, in the form that the schema wants.
    pub(super) fn list(&self, mut values: Vec<String>) -> Option<Value> {
        match (values.len(), accepts(self.schema, "string"), accepts(self.schema, "array")) {
            (0, ..) => None,
            (1, true, _) => values.pop().map(Value::String),
            (_, _, true) => Some(Value::from(values)),
            (_, true, false) if self.class == SlotKind::Text => Some(Value::String(values.join(","))),
            _ => None,
        }
    }

    /// A text, in the form that the schema wants.
    pub(super) fn text(&self, text: &str) -> Value {
        if self.class == SlotKind::Texts { Value::from(vec![text]) } else { Value::from(text) }
    }
}

/// Whether a schema accepts values of a type.
fn accepts(schema: &Value, kind: &str) -> bool {
    match (&schema["type"], &schema["anyOf"]) {
        (Value::String(one), _) => one == kind,
        (Value::Array(several), _) => several.iter().any(|one| one == kind),
        (_, Value::Array(several)) => several.iter().any(|one| accepts(one, kind)),
        _ => schema.get("enum").is_none(),
    }
}

/// The inputs of a tool, the required ones first.
pub(super) fn slots(spec: &Spec) -> Vec<Slot<'_>> {
    let document = spec.input.document();
    let Some(properties) = document["properties"].as_object() else { return Vec::new() };
    let required: Vec<&str> = texts(&document["required"]);
    let first = required.iter().filter_map(|name| properties.get_key_value(*name)).map(|(n, s)| Slot::of(n, s, true));
    let rest = properties.iter().filter(|(name, _)| *name != "dry_run" && !required.contains(&name.as_str()));
    let mut slots: Vec<Slot<'_>> = first.chain(rest.map(|(name, schema)| Slot::of(name, schema, false))).collect();
    let likely = |slot: &Slot<'_>| CONTENT.iter().position(|name| *name == slot.name).unwrap_or(CONTENT.len());
    slots.sort_by_key(|slot| if slot.required { 0 } else { 1 + likely(slot) });
    slots
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The first required input that `input` lacks.
pub(super) fn missing<'a>(spec: &'a Spec, input: &Map<String, Value>) -> Option<&'a str> {
    missing_from(spec.input.document(), input)
}

fn missing_from<'a>(schema: &'a Value, input: &Map<String, Value>) -> Option<&'a str> {
    let required = texts(&schema["required"]).into_iter().find(|name| !input.contains_key(*name));
    let either = ["oneOf", "anyOf"].into_iter().find_map(|name| {
        let ways = schema[name].as_array()?;
        let lacks: Vec<&str> = ways.iter().map_while(|way| missing_from(way, input)).collect();
        lacks.first().copied().filter(|_| lacks.len() == ways.len())
    });
    let all = || schema["allOf"].as_array().into_iter().flatten().find_map(|part| missing_from(part, input));
    required.or(either).or_else(all)
}
