//! Maps a vendor's answer to a tool's output.
//!
//! A place in the answer is a JSON pointer in which `*` stands for the first member or element that has the rest; a
//! list of pointers means the first that finds something. A table may be `{ value = … }` (constant), `{ header = "…"
//! }`, `{ from = pointer, each = mapping }` (a list), `{ paging = "more" | "cursor" }`, or a nested output. Missing
//! values are left out.

use serde_json::{Map, Value};

/// What outputs are taken from.
#[derive(Clone, Copy)]
pub(super) struct MappingSource<'a> {
    pub(super) document: &'a Value,
    pub(super) header: &'a dyn Fn(&str) -> Option<String>,
    /// Whether there are more pages, and the cursor of the next one.
    pub(super) more: bool,
    pub(super) cursor: Option<&'a str>,
}

/// A place in a document.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct JsonPlace(Vec<Vec<String>>);

/// How an output is computed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Mapping {
    At(JsonPlace),
    Fixed(Value),
    Header(String),
    Each(JsonPlace, Box<Mapping>),
    More,
    Cursor,
    Object(Vec<(String, Mapping)>),
}

impl JsonPlace {
    pub(super) fn parse(value: &Value) -> Result<Self, String> {
        let one = |value: &Value| -> Result<Vec<String>, String> {
            let text = value.as_str().ok_or("a pointer must be a string")?;
            if text.is_empty() {
                return Ok(Vec::new());
            }
            let rest = text
                .strip_prefix('/')
                .ok_or_else(|| format!("{text:?} is not a JSON pointer: it must begin with /"))?;
            Ok(rest.split('/').map(|part| part.replace("~1", "/").replace("~0", "~")).collect())
        };
        match value {
            Value::Array(several) if several.is_empty() => Err("the list of pointers is empty".into()),
            Value::Array(several) => Ok(Self(several.iter().map(one).collect::<Result<_, _>>()?)),
            single => Ok(Self(vec![one(single)?])),
        }
    }

    /// The value at this place; null counts as missing.
    pub(super) fn find<'a>(&self, document: &'a Value) -> Option<&'a Value> {
        self.0.iter().find_map(|path| walk(document, path))
    }

    /// The same for changing the value. Only plain pointers work.
    pub(super) fn find_mut<'a>(&self, document: &'a mut Value) -> Option<&'a mut Value> {
        let [path] = self.0.as_slice() else { return None };
        path.iter().try_fold(document, |at, part| match at {
            Value::Array(items) => items.get_mut(part.parse::<usize>().ok()?),
            at => at.get_mut(part),
        })
    }
}

fn walk<'a>(at: &'a Value, path: &[String]) -> Option<&'a Value> {
    let Some((part, rest)) = path.split_first() else {
        return (!at.is_null()).then_some(at);
    };
    match at {
        Value::Object(members) if part == "*" => members.values().find_map(|member| walk(member, rest)),
        Value::Array(items) if part == "*" => items.iter().find_map(|item| walk(item, rest)),
        Value::Array(items) => walk(items.get(part.parse::<usize>().ok()?)?, rest),
        at => walk(at.get(part)?, rest),
    }
}

impl Mapping {
    pub(super) fn parse(value: &Value) -> Result<Self, String> {
        let Value::Object(members) = value else {
            return JsonPlace::parse(value).map(Self::At);
        };
        let only = |name: &str| members.get(name).filter(|_| members.len() == 1);
        if let (Some(from), Some(each), 2) = (members.get("from"), members.get("each"), members.len()) {
            return Ok(Self::Each(JsonPlace::parse(from)?, Box::new(Self::parse(each)?)));
        }
        if let Some(value) = only("value") {
            return Ok(Self::Fixed(value.clone()));
        }
        if let Some(Value::String(name)) = only("header") {
            return Ok(Self::Header(name.clone()));
        }
        match only("paging").and_then(Value::as_str) {
            Some("more") => return Ok(Self::More),
            Some("cursor") => return Ok(Self::Cursor),
            Some(other) => return Err(format!("unknown paging value {other:?}; use more or cursor")),
            None => {}
        }
        let members = members
            .iter()
            .map(|(name, member)| Ok((name.clone(), Self::parse(member).map_err(|error| format!("{name}: {error}"))?)));
        Ok(Self::Object(members.collect::<Result<_, String>>()?))
    }

    /// The output, as far as the answer has the values.
    pub(super) fn apply(&self, source: &MappingSource<'_>) -> Option<Value> {
        match self {
            Self::At(place) => place.find(source.document).cloned(),
            Self::Fixed(value) => Some(value.clone()),
            Self::Header(name) => (source.header)(name).map(Value::from),
            Self::Each(place, each) => {
                let items = place.find(source.document)?.as_array()?.iter();
                Some(items.filter_map(|item| each.apply(&MappingSource { document: item, ..*source })).collect())
            }
            Self::More => Some(source.more.into()),
            Self::Cursor => source.cursor.map(Value::from),
            Self::Object(members) => {
                let found = members.iter().filter_map(|(name, member)| Some((name.clone(), member.apply(source)?)));
                Some(Value::Object(found.collect::<Map<_, _>>()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn apply(mapping: Value, document: Value) -> Option<Value> {
        let header = |name: &str| (name == "location").then(|| "/jobs/1".to_owned());
        let source = MappingSource { document: &document, header: &header, more: true, cursor: Some("c9") };
        Mapping::parse(&mapping).unwrap().apply(&source)
    }

    #[test]
    fn an_output_is_put_together_from_many_places() {
        let mapping = json!({
            "id": "/id", "missing": "/nothing", "null": "/empty", "kind": {"value": "page"},
            "job": {"header": "location"}, "more": {"paging": "more"}, "next": {"paging": "cursor"},
            "owner": {"name": "/user/login"}, "slash": "/a~1b",
            "title": ["/title/0/text", "/properties/*/title/0/text"],
            "tags": {"from": "/tags", "each": {"name": "/name"}},
        });
        let document = json!({
            "id": 7, "empty": null, "user": {"login": "ada"}, "a/b": 1, "tags": [{"name": "x"}, {"name": "y", "z": 1}],
            "properties": {"Due": {"date": 1}, "Name": {"title": [{"text": "Plan"}]}},
        });
        let expected = json!({
            "id": 7, "kind": "page", "job": "/jobs/1", "more": true, "next": "c9", "owner": {"name": "ada"},
            "slash": 1, "title": "Plan", "tags": [{"name": "x"}, {"name": "y"}],
        });
        assert_eq!(apply(mapping, document), Some(expected));
        assert_eq!(apply(json!(""), json!([1])), Some(json!([1])));
    }

    #[test]
    fn a_mapping_that_makes_no_sense_is_refused() {
        for mapping in [json!("id"), json!(1), json!([]), json!({"a": {"paging": "all"}}), json!({"a": [1]})] {
            assert!(Mapping::parse(&mapping).is_err(), "{mapping}");
        }
    }
}
