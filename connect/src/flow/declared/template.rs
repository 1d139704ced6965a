//! Texts and documents with placeholders: `/repos/{input.owner}/issues`.
//!
//! A placeholder names a value: `input.…`, `output.…` (of the call that is rolled back), `item` (inside `$each`),
//! `idempotency_key`, `effect_id`, `run_id`, `run_started_at`. A text that is a single placeholder keeps the value's
//! type. A member whose placeholder has no value is left out; a member whose name ends with `?` is left out as a
//! whole if anything inside has no value. `{{` and `}}` stand for braces; `{x|quoted}` escapes single quotes and
//! backslashes.

use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// The values of placeholders.
#[derive(Clone, Copy, Default)]
pub(super) struct TemplateValues<'a> {
    pub(super) input: Option<&'a Value>,
    pub(super) output: Option<&'a Value>,
    pub(super) item: Option<&'a Value>,
    pub(super) idempotency_key: &'a str,
    pub(super) effect_id: &'a str,
    pub(super) run_id: &'a str,
    /// Not after the run's start; empty if the run's id holds no time.
    pub(super) run_started_at: &'a str,
    /// Properties of the input schema, for their defaults.
    pub(super) properties: Option<&'a Value>,
}

/// A placeholder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Placeholder {
    pub(super) root: String,
    pub(super) path: Vec<String>,
    quoted: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum TextPart {
    Text(String),
    Hole(Placeholder),
}

/// A text with placeholders.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TextTemplate(Vec<TextPart>);

/// A document with placeholders.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum JsonTemplate {
    Fixed(Value),
    Text(TextTemplate),
    List(Vec<JsonTemplate>),
    /// Name, whether the member is left out as a whole, value.
    Object(Vec<(String, bool, JsonTemplate)>),
    /// One element per element of a list.
    Each(Placeholder, Box<JsonTemplate>),
}

const ROOTS: &[&str] = &["input", "output", "item", "idempotency_key", "effect_id", "run_id", "run_started_at"];
const BARE: &[&str] = &["idempotency_key", "effect_id", "run_id", "run_started_at"];

impl Placeholder {
    fn parse(text: &str) -> Result<Self, String> {
        let (name, quoted) = match text.split_once('|') {
            None => (text, false),
            Some((name, "quoted")) => (name, true),
            Some((_, filter)) => return Err(format!("{{{text}}}: unknown filter {filter}")),
        };
        let mut parts = name.split('.').map(str::to_owned);
        let root = parts.next().unwrap_or_default();
        let path: Vec<String> = parts.collect();
        let sound = ROOTS.contains(&root.as_str())
            && path.iter().all(|part| !part.is_empty())
            && (!BARE.contains(&root.as_str()) || path.is_empty())
            && (!["input", "output"].contains(&root.as_str()) || !path.is_empty());
        if sound { Ok(Self { root, path, quoted }) } else { Err(format!("unknown placeholder {{{text}}}")) }
    }

    fn value(&self, values: &TemplateValues<'_>) -> Option<Value> {
        let walk = |from: &Value| {
            let found = self.path.iter().try_fold(from, |at, name| match at {
                Value::Array(items) => items.get(name.parse::<usize>().ok()?),
                at => at.get(name),
            });
            found.filter(|found| !found.is_null()).cloned()
        };
        let found = match self.root.as_str() {
            "input" => values.input.and_then(walk).or_else(|| {
                let [name] = self.path.as_slice() else { return None };
                values.properties?.get(name)?.get("default").cloned()
            }),
            "output" => values.output.and_then(walk),
            "item" => values.item.and_then(walk),
            "idempotency_key" => Some(values.idempotency_key.into()),
            "effect_id" => Some(values.effect_id.into()),
            "run_id" => Some(values.run_id.into()),
            _ => Some(values.run_started_at).filter(|at| !at.is_empty()).map(Value::from),
        };
        if self.quoted {
            return found.map(|found| plain(&found).replace('\\', "\\\\").replace('\'', "\\'").into());
        }
        found
    }
}

pub(super) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

impl TextTemplate {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (mut parts, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            let (brace, behind) = (&rest[at..=at], &rest[at + 1..]);
            if let Some(escaped) = behind.strip_prefix(brace) {
                plain.push_str(brace);
                rest = escaped;
                continue;
            }
            let hole = (brace == "{").then(|| behind.split_once('}')).flatten();
            let (name, behind) = hole.ok_or_else(|| format!("unmatched brace in {text:?}"))?;
            if !plain.is_empty() {
                parts.push(TextPart::Text(std::mem::take(&mut plain)));
            }
            parts.push(TextPart::Hole(Placeholder::parse(name)?));
            rest = behind;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(TextPart::Text(plain));
        }
        Ok(Self(parts))
    }

    /// The text with each placeholder filled and encoded by `spell`; `None` if one has no value.
    pub(super) fn fill(&self, values: &TemplateValues<'_>, spell: impl Fn(&str) -> String) -> Option<String> {
        self.0.iter().try_fold(String::new(), |text, part| {
            Some(match part {
                TextPart::Text(fixed) => text + fixed,
                TextPart::Hole(hole) => text + &spell(&plain(&hole.value(values)?)),
            })
        })
    }

    fn value(&self, values: &TemplateValues<'_>) -> Option<Value> {
        match self.0.as_slice() {
            [TextPart::Hole(hole)] => hole.value(values),
            _ => self.fill(values, str::to_owned).map(Value::from),
        }
    }

    pub(super) fn holes(&self) -> impl Iterator<Item = &Placeholder> {
        self.0.iter().filter_map(|part| match part {
            TextPart::Hole(hole) => Some(hole),
            TextPart::Text(_) => None,
        })
    }
}

impl JsonTemplate {
    pub(super) fn parse(value: &Value) -> Result<Self, String> {
        Ok(match value {
            Value::String(text) => Self::Text(TextTemplate::parse(text)?),
            Value::Array(items) => Self::List(items.iter().map(Self::parse).collect::<Result<_, _>>()?),
            Value::Object(members) if members.contains_key("$each") => {
                let (Some(Value::String(each)), Some(item), 2) =
                    (members.get("$each"), members.get("$item"), members.len())
                else {
                    return Err("$each must be the placeholder of a list, with $item beside it".into());
                };
                match TextTemplate::parse(each)?.0.as_slice() {
                    [TextPart::Hole(hole)] => Self::Each(hole.clone(), Box::new(Self::parse(item)?)),
                    _ => return Err(format!("$each: {each:?} is not a single placeholder")),
                }
            }
            Value::Object(members) => {
                let members = members.iter().map(|(name, member)| {
                    let bare = name.strip_suffix('?');
                    Ok((bare.unwrap_or(name).to_owned(), bare.is_some(), Self::parse(member)?))
                });
                Self::Object(members.collect::<Result<_, String>>()?)
            }
            fixed => Self::Fixed(fixed.clone()),
        })
    }

    /// The document; `None` if it is a single placeholder without a value.
    pub(super) fn fill(&self, values: &TemplateValues<'_>) -> Option<Value> {
        match self {
            Self::Fixed(value) => Some(value.clone()),
            Self::Text(text) => text.value(values),
            Self::List(items) => Some(items.iter().filter_map(|item| item.fill(values)).collect()),
            Self::Object(members) => {
                let kept = members.iter().filter(|(_, whole, tree)| !whole || tree.is_full(values));
                let kept = kept.filter_map(|(name, _, tree)| Some((name.clone(), tree.fill(values)?)));
                Some(Value::Object(kept.collect::<Map<_, _>>()))
            }
            Self::Each(hole, item) => {
                let items = match hole.value(values)? {
                    Value::Array(items) => items,
                    single => vec![single],
                };
                Some(items.iter().filter_map(|one| item.fill(&TemplateValues { item: Some(one), ..*values })).collect())
            }
        }
    }

    /// Whether every placeholder has a value.
    fn is_full(&self, values: &TemplateValues<'_>) -> bool {
        match self {
            Self::Fixed(_) => true,
            Self::Text(text) => text.holes().all(|hole| hole.value(values).is_some()),
            Self::List(items) => items.iter().all(|item| item.is_full(values)),
            Self::Object(members) => members.iter().all(|(_, whole, tree)| *whole || tree.is_full(values)),
            Self::Each(hole, _) => hole.value(values).is_some(),
        }
    }

    /// Every placeholder, for checking a file.
    pub(super) fn holes(&self) -> BTreeSet<Placeholder> {
        match self {
            Self::Fixed(_) => BTreeSet::new(),
            Self::Text(text) => text.holes().cloned().collect(),
            Self::List(items) => items.iter().flat_map(Self::holes).collect(),
            Self::Object(members) => members.iter().flat_map(|(_, _, tree)| tree.holes()).collect(),
            Self::Each(hole, item) => {
                item.holes().into_iter().filter(|hole| hole.root != "item").chain([hole.clone()]).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fill(template: Value, input: Value) -> Option<Value> {
        let properties = json!({"size": {"default": 20}});
        let values = TemplateValues {
            input: Some(&input),
            properties: Some(&properties),
            run_id: "r1",
            ..TemplateValues::default()
        };
        JsonTemplate::parse(&template).unwrap().fill(&values)
    }

    #[test]
    fn a_lone_hole_keeps_its_type_and_a_mixed_text_is_text() {
        let input = json!({"n": 7, "tags": ["a"], "who": {"name": "Ada"}});
        assert_eq!(
            fill(json!({"n": "{input.n}", "tags": "{input.tags}"}), input.clone()),
            Some(json!({"n": 7, "tags": ["a"]}))
        );
        assert_eq!(fill(json!("{input.who.name} #{input.n} {{x}} {run_id}"), input), Some(json!("Ada #7 {x} r1")));
    }

    #[test]
    fn what_has_no_value_is_left_out() {
        let template = json!({"a": "{input.a}", "b": "x {input.b}", "size": "{input.size}",
            "filter?": {"property": "object", "value": "{input.kind}"}, "list": ["{input.a}", 1]});
        assert_eq!(fill(template.clone(), json!({})), Some(json!({"size": 20, "list": [1]})));
        let full = fill(template, json!({"kind": "page", "size": 5, "a": null})).unwrap();
        assert_eq!(full, json!({"size": 5, "list": [1], "filter": {"property": "object", "value": "page"}}));
    }

    #[test]
    fn a_list_is_turned_element_by_element() {
        let template = json!({"to": {"$each": "{input.to}", "$item": {"address": "{item}", "as": "{input.as}"}}});
        let many = fill(template.clone(), json!({"to": ["a", "b"], "as": 1}));
        assert_eq!(many, Some(json!({"to": [{"address": "a", "as": 1}, {"address": "b", "as": 1}]})));
        assert_eq!(fill(template.clone(), json!({"to": "a"})), Some(json!({"to": [{"address": "a"}]})));
        assert_eq!(fill(template, json!({})), Some(json!({})));
    }

    #[test]
    fn quotes_can_not_break_out() {
        assert_eq!(
            fill(json!("name = '{input.q|quoted}'"), json!({"q": r"a' or \"})),
            Some(json!(r"name = 'a\' or \\'"))
        );
    }

    #[test]
    fn holes_that_name_nothing_are_refused() {
        for text in ["{x}", "{input}", "{input.}", "{run_id.x}", "{input.a|b}", "{", "}", "{input.a", "a}b", "{}"] {
            assert!(TextTemplate::parse(text).is_err(), "{text}");
        }
        assert!(JsonTemplate::parse(&json!({"$each": "x {input.a}", "$item": 1})).is_err());
        assert!(JsonTemplate::parse(&json!({"$each": "{input.a}"})).is_err());
    }
}
