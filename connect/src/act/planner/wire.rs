//! Wires the output of a step into a later one.
//!
//! A noun (`the summary`, `its link`) selects an output by name; a pronoun takes the content of the latest step.
//! Types must agree. A list becomes a text with one title or name per line.

use super::choose::ToolProfile;
use super::lexicon::{self, stem};
use super::slot::{Slot, SlotKind};
use chimera_core::flow::expr::{Shape, Type};
use serde_json::{Map, Value};
use std::sync::Arc;

/// Outputs with content, the likeliest first.
const GIVEN: &[&str] = &["summary", "body", "text", "message", "content", "markdown"];
/// Fields that stand for a list item.
const ITEM_NAMES: &[&str] = &["title", "name"];
/// Nouns for outputs with another name.
const NOUNS: &[(&str, &[&str])] = &[
    ("url", &["link", "address", "location"]),
    ("body", &["response", "answer", "reply", "page", "contents"]),
    ("artifact", &["file", "pdf", "document"]),
];

pub(super) struct PlannedStep<'a> {
    pub(super) id: String,
    pub(super) tool: &'a ToolProfile,
    pub(super) input: Map<String, Value>,
    /// The same clause has another step like it, for a different target.
    pub(super) repeated: bool,
    shape: Arc<Shape>,
}

impl<'a> PlannedStep<'a> {
    pub(super) fn new(number: usize, tool: &'a ToolProfile, input: Map<String, Value>) -> Self {
        // Only names that are valid in an expression.
        let plain = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let shape = match Type::from_schema(tool.spec.output.document()) {
            Type::Object(shape) if shape.named.keys().all(|name| plain(name)) => shape,
            _ => Arc::default(),
        };
        Self { id: format!("s{number}"), tool, input, repeated: false, shape }
    }

    /// Whether it produces a file, which is not the text that it was made from.
    pub(super) fn makes_file(&self) -> bool {
        self.shape.named.contains_key("artifact")
    }

    /// Whether it returns a list.
    pub(super) fn gives_list(&self) -> bool {
        let is_list = |kind: &Type| matches!(kind, Type::List(item) if matches!(**item, Type::Object(_)));
        self.shape.named.values().any(is_list)
    }

    /// Whether its output is an input of `later`.
    pub(super) fn feeds(&self, later: &PlannedStep<'_>) -> bool {
        Value::from(later.input.clone()).to_string().contains(&format!("nodes.{}.", self.id))
    }

    fn path(&self, name: &str) -> String {
        format!("nodes.{}.outputs.{name}", self.id)
    }
}

/// How a list is handed on when the goal does not say.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ListHandling {
    /// By the titles or names of its items.
    Names,
    /// Not at all where names are not enough: a file is more than its name, and an upload must be complete.
    Things,
    /// Not at all.
    Nothing,
}

impl ListHandling {
    /// How a tool takes a list that a word refers to.
    pub(super) fn to(tool: &ToolProfile, word: &str) -> Self {
        match (tool.does("upload"), stem(word) == stem("result")) {
            (true, _) => Self::Nothing,
            (false, true) => Self::Names,
            (false, false) => Self::Things,
        }
    }

    fn allows(self, step: &PlannedStep<'_>) -> bool {
        match self {
            Self::Names => true,
            Self::Things => !step.tool.does("search"),
            Self::Nothing => false,
        }
    }
}

/// The output of a step that a noun names: a field of the items it lists (`titles`), else an output or its product.
pub(super) fn by_noun(
    step: &PlannedStep<'_>,
    slot: &Slot<'_>,
    word: &str,
    of_item: bool,
    listing: ListHandling,
) -> Option<Value> {
    let (wanted, shape) = (stem(word), &step.shape);
    let also =
        |(own, nouns): &(&str, &[&str]), name: &str| *own == name && nouns.iter().any(|noun| stem(noun) == wanted);
    let called = |name: &str| stem(name) == wanted || NOUNS.iter().any(|row| also(row, name));
    let whole = |kind: &Type| !matches!(kind, Type::List(_)) || listing.allows(step) || slot.class == SlotKind::Open;
    let own = || shape.named.iter().find(|(name, kind)| called(name) && usable(name, slot) && whole(kind));
    let direct = || own().and_then(|(name, kind)| convert(&step.path(name), kind, slot, None));
    let item = || {
        shape.named.iter().find_map(|(name, kind)| {
            let Type::List(item) = kind else { return None };
            let Type::Object(members) = &**item else { return None };
            let member = members.named.keys().find(|member| called(member))?;
            convert(&step.path(name), kind, slot, Some(member))
        })
    };
    let makes = step.tool.has_thing(word) || lexicon::nominal(word).is_some_and(|act| step.tool.does(act));
    if of_item { item() } else { direct().or_else(|| content_of(step, slot, listing).filter(|_| makes)) }
}

/// The link to what a step created.
pub(super) fn link(step: &PlannedStep<'_>, slot: &Slot<'_>) -> Option<Value> {
    let shape = &step.shape;
    let kind = shape.named.get("url").filter(|_| slot.name != "artifact")?;
    convert(&step.path("url"), kind, slot, None)
}

/// The content of a step's output.
pub(super) fn content_of(step: &PlannedStep<'_>, slot: &Slot<'_>, listing: ListHandling) -> Option<Value> {
    let shape = &step.shape;
    if slot.class == SlotKind::Open && slot.schema["type"] == "object" {
        let gives = GIVEN.iter().any(|name| shape.named.contains_key(*name))
            || shape.named.values().any(|kind| matches!(kind, Type::List(_)));
        return (gives && !step.tool.hands_on()).then(|| Value::from(format!("${{nodes.{}.outputs}}", step.id)));
    }
    let same = shape.named.get_key_value(slot.name).filter(|(name, _)| usable(name, slot) && !step.tool.hands_on());
    let named = GIVEN.iter().find_map(|name| shape.named.get_key_value(*name));
    let lists = || {
        let mut lists = shape.named.iter().filter(|(_, kind)| matches!(kind, Type::List(_)));
        lists
            .find_map(|(name, kind)| convert(&step.path(name), kind, slot, None))
            .filter(|_| !step.tool.hands_on() && listing.allows(step))
    };
    if slot.name == "artifact" {
        return same.and_then(|(name, kind)| convert(&step.path(name), kind, slot, None));
    }
    // A step that only produces a file has no text.
    if shape.named.contains_key("artifact") {
        return None;
    }
    if slot.name == "json" && named.is_some_and(|(_, kind)| *kind == Type::Text) {
        return None;
    }
    named.or(same).and_then(|(name, kind)| convert(&step.path(name), kind, slot, None)).or_else(lists)
}

/// The content that a step was given.
pub(super) fn input_content(step: &PlannedStep<'_>, slot: &Slot<'_>) -> Option<Value> {
    if slot.class != SlotKind::Text || slot.name == "artifact" {
        return None;
    }
    GIVEN.iter().find_map(|name| step.input.get(*name)).filter(|value| value.is_string()).cloned()
}

/// An id from an earlier step, for an input whose name ends with the output's name: `page_id` fits `parent_page_id`.
pub(super) fn id(step: &PlannedStep<'_>, slot: &Slot<'_>) -> Option<Value> {
    let shape = &step.shape;
    let fits = |name: &&String| name.ends_with("_id") && slot.name.ends_with(name.as_str());
    let name = shape.named.keys().find(fits)?;
    Some(Value::from(format!("${{{}}}", step.path(name))))
}

/// Artifacts go into artifact inputs, and nothing else does.
fn usable(name: &str, slot: &Slot<'_>) -> bool {
    (name == "artifact") == (slot.name == "artifact")
}

/// The expression that converts an output to what an input accepts.
fn convert(path: &str, kind: &Type, slot: &Slot<'_>, member: Option<&str>) -> Option<Value> {
    let lines = |kind: &Type| list(path, kind, member);
    let expression = match (slot.class, kind) {
        // A text sent as JSON would be quoted; there is another input for plain text.
        (SlotKind::Open, Type::Text) if slot.name == "json" => return None,
        (SlotKind::Open, _) => format!("${{{path}}}"),
        (SlotKind::Text, Type::Text | Type::Any) => format!("${{{path}}}"),
        (SlotKind::Text, Type::Int | Type::Number | Type::Bool) => format!("${{string({path})}}"),
        (SlotKind::Text, Type::List(_)) => format!("${{{}.join('\\n')}}", lines(kind)?),
        (SlotKind::Texts, Type::Text) => return Some(Value::from(vec![format!("${{{path}}}")])),
        (SlotKind::Texts, Type::Any) => return Some(Value::from(vec![format!("${{{path}}}")])),
        (SlotKind::Texts, Type::List(_)) => format!("${{{}}}", lines(kind)?),
        _ => return None,
    };
    Some(Value::from(expression))
}

/// A list of texts from a list.
fn list(path: &str, kind: &Type, member: Option<&str>) -> Option<String> {
    let Type::List(item) = kind else { return None };
    match &**item {
        Type::Text => Some(path.to_owned()),
        Type::Object(shape) => {
            let known = |name: &&str| matches!(shape.named.get(*name), Some(Type::Text));
            let name = match member {
                Some(member) => Some(member).filter(known)?,
                None => ITEM_NAMES.iter().copied().find(known)?,
            };
            let there =
                if shape.required.contains(name) { String::new() } else { format!(".filter(x, has(x.{name}))") };
            Some(format!("{path}{there}.map(x, x.{name})"))
        }
        _ => None,
    }
}
