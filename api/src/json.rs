//! Strict JSON parsing of request bodies.
//!
//! serde_json accepts documents that are refused here: duplicate keys mean different things to different
//! parsers, deep nesting costs stack, and not every store can hold NUL. They are refused anywhere in the
//! document, before a typed value is made.

use chimera_core::json::{self, ParseError, ParseLimit};
use chimera_core::limits;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::any::TypeId;
use std::fmt;

#[derive(Debug, PartialEq)]
pub(crate) enum JsonError {
    /// Not JSON, or not strict JSON.
    Syntax { line: usize, column: usize, reason: String },
    /// A string contains U+0000, which not every store can hold.
    Nul { line: usize, column: usize },
    /// JSON that does not match the type.
    Shape { pointer: String, reason: String },
}

/// Precedes the expected type in serde's messages.
const EXPECTED: &str = "expected ";

/// The strict parser's message for a string with NUL; [`syntax`] recognises it.
const NUL: &str = "a string contains U+0000";

/// Parses one strict JSON document. A number that would be rounded is refused, because people would approve,
/// and tools would get, another number than was sent.
pub(crate) fn parse(bytes: &[u8]) -> Result<Value, JsonError> {
    let inexact = |at: usize, reason: &str| {
        let pointer = json::pointer_at(bytes, at);
        Err(JsonError::Shape { pointer, reason: format!("{reason}; send it as a string") })
    };
    match json::parse_bounded(bytes) {
        Ok(document) if !json::has_nul(&document) => Ok(document),
        Err(ParseError::LimitExceeded { at, what: ParseLimit::Values }) => Err(too_many_values(bytes, at)),
        Err(ParseError::IntegerTooLarge { at }) => inexact(at, "an integer beyond 64 bits would be rounded"),
        Err(ParseError::NumberTooLarge { at }) => inexact(at, "the number exceeds the range of a double"),
        Err(ParseError::NumberInexact { at }) => inexact(at, "the number has more digits than a double holds"),
        Ok(_) | Err(_) => parse_with_position(bytes),
    }
}

/// Refuses a document with too many values before another parser allocates them. That parser reports everything else.
pub(crate) fn check_values(bytes: &[u8]) -> Result<(), JsonError> {
    // Each value takes at least one byte.
    if bytes.len() <= limits::JSON_VALUES_MAX {
        return Ok(());
    }
    match json::parse_bounded(bytes) {
        Err(ParseError::LimitExceeded { at, what: ParseLimit::Values }) => Err(too_many_values(bytes, at)),
        _ => Ok(()),
    }
}

fn too_many_values(bytes: &[u8], at: usize) -> JsonError {
    let reason = format!("the document has more than {} values", limits::JSON_VALUES_MAX);
    JsonError::Shape { pointer: json::pointer_at(bytes, at), reason }
}

/// Parses a refused document again with a slower parser, which knows line, column and reason.
fn parse_with_position(bytes: &[u8]) -> Result<Value, JsonError> {
    let mut strict = serde_json::Deserializer::from_slice(bytes);
    let read = StrictValueSeed { depth: 0 }.deserialize(&mut strict);
    read.and_then(|value| strict.end().map(|()| value)).map_err(|error| syntax(&error))
}

/// Deserialises a document into a type.
///
/// Unlike serde, never accepts an array for a struct.
pub(crate) fn decode<T: DeserializeOwned + 'static>(document: &Value) -> Result<T, JsonError> {
    if document.is_array() && TypeId::of::<T>() != TypeId::of::<Value>() {
        return Err(JsonError::Shape { pointer: String::new(), reason: "expected an object, not an array".to_owned() });
    }
    serde_path_to_error::deserialize(document)
        .map_err(|error| JsonError::Shape { pointer: pointer(error.path()), reason: clean_message(error.inner()) })
}

fn syntax(error: &serde_json::Error) -> JsonError {
    let (line, column, reason) = (error.line(), error.column(), clean_message(error));
    if reason == NUL { JsonError::Nul { line, column } } else { JsonError::Syntax { line, column, reason } }
}

/// serde's message without the position, which is reported separately, and without the string that was
/// found, which may be private and would end up in a log.
fn clean_message(error: &serde_json::Error) -> String {
    let mut text = error.to_string();
    if let Some(at) = text.rfind(" at line ") {
        text.truncate(at);
    }
    let mut text = match (text.find(": string \""), text.rfind("\", expected ")) {
        (Some(from), Some(to)) => format!("{}: string{}", &text[..from], &text[to + 1..]),
        _ => text,
    };
    if let Some(at) = text.rfind(EXPECTED) {
        let kind = json_type_name(&text[at + EXPECTED.len()..]);
        text.truncate(at + EXPECTED.len());
        text.push_str(&kind);
    }
    text
}

/// The JSON name of a Rust type.
fn json_type_name(kind: &str) -> String {
    match kind.split_once(' ') {
        Some(("struct" | "internally", _)) => "an object".to_owned(),
        _ => match kind {
            "f32" | "f64" => "a number".to_owned(),
            "i8" | "i16" | "i32" | "i64" | "u8" | "u16" | "u32" | "u64" | "usize" => "an integer".to_owned(),
            "a sequence" => "an array".to_owned(),
            "a map" => "an object".to_owned(),
            // An enum is a word here.
            "string or map" => "a string".to_owned(),
            other => other.to_owned(),
        },
    }
}

fn pointer(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    path.iter().fold(String::new(), |mut text, segment| {
        match segment {
            Segment::Seq { index } => text.push_str(&format!("/{index}")),
            Segment::Map { key } => text.push_str(&format!("/{}", key.replace('~', "~0").replace('/', "~1"))),
            Segment::Enum { .. } | Segment::Unknown => {}
        }
        text
    })
}

#[derive(Clone, Copy)]
struct StrictValueSeed {
    depth: usize,
}

impl StrictValueSeed {
    fn nested<E: Error>(self) -> Result<Self, E> {
        if self.depth >= limits::JSON_DEPTH_MAX {
            return Err(E::custom(format_args!("nested deeper than {} levels", limits::JSON_DEPTH_MAX)));
        }
        Ok(Self { depth: self.depth + 1 })
    }
}

fn check_nul<E: Error>(text: &str) -> Result<(), E> {
    if text.contains('\0') { Err(E::custom(NUL)) } else { Ok(()) }
}

impl<'de> DeserializeSeed<'de> for StrictValueSeed {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Value, D::Error> {
        input.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictValueSeed {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, it: bool) -> Result<Value, E> {
        Ok(it.into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        check_nul(text)?;
        Ok(text.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = self.nested()?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let inner = self.nested()?;
        let mut members = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            check_nul::<A::Error>(&key)?;
            if members.contains_key(&key) {
                return Err(A::Error::custom(format_args!("duplicate key `{key}`")));
            }
            let value = entries.next_value_seed(inner)?;
            members.insert(key, value);
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        match parse(text.as_bytes()) {
            Err(JsonError::Syntax { line, column, reason }) => format!("{line}:{column} {reason}"),
            Err(JsonError::Nul { line, column }) => format!("{line}:{column} {NUL}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_document_with_too_many_values_is_refused_where_they_begin() {
        let list = |items: usize| format!("{{\"a\":[{}]}}", vec!["2"; items].join(","));
        assert!(parse(list(limits::JSON_VALUES_MAX - 2).as_bytes()).is_ok());
        let Err(JsonError::Shape { pointer, reason }) = parse(list(limits::JSON_VALUES_MAX - 1).as_bytes()) else {
            panic!("it was taken")
        };
        assert_eq!((pointer.as_str(), reason.as_str()), ("/a/99998", "the document has more than 100000 values"));
        assert_eq!(check_values(list(limits::JSON_VALUES_MAX - 2).as_bytes()), Ok(()));
        assert_eq!(
            check_values(list(limits::JSON_VALUES_MAX - 1).as_bytes()),
            Err(JsonError::Shape { pointer, reason })
        );
    }

    #[test]
    fn a_key_that_stands_twice_is_refused_at_any_depth() {
        assert_eq!(refusal(r#"{"a":[{"b":1,"b":2}]}"#), "1:16 duplicate key `b`");
    }

    #[test]
    fn a_number_that_would_be_another_is_refused_with_its_place() {
        let cases = [
            ("123456789012345678901234567890", "integer beyond 64 bits"),
            ("-9223372036854775809", "integer beyond 64 bits"),
            ("18446744073709551617", "integer beyond 64 bits"),
            ("1e999", "exceeds the range of a double"),
            ("1234567890123456.78", "more digits than a double"),
            ("0.1000000000000000055511151231257827", "more digits than a double"),
        ];
        for (number, why) in cases {
            let refused = parse(format!(r#"{{"a\"b":[true,{{"x/y":"],","n":{number}}}]}}"#).as_bytes());
            let Err(JsonError::Shape { pointer, reason }) = refused else { panic!("{number}: {refused:?}") };
            assert_eq!(pointer, "/a\"b/1/n", "{number}");
            assert!(reason.contains(why) && reason.ends_with("send it as a string"), "{reason}");
        }
        for number in ["0", "-0", "-0.0", "0.000", "1.50", "1e3", "1E+30", "0.10000000000000001", "5e-324"] {
            parse(number.as_bytes()).expect(number);
        }
        for number in
            ["18446744073709551615", "-9223372036854775808", "100000000000000000000", "1.7976931348623157e308"]
        {
            parse(number.as_bytes()).expect(number);
        }
    }

    #[test]
    fn text_behind_the_document_and_cut_documents_are_refused() {
        assert_eq!(refusal("{} {}"), "1:4 trailing characters");
        assert_eq!(refusal("{\"a\":\n"), "2:0 EOF while parsing a value");
    }

    #[test]
    fn a_text_that_no_store_can_hold_is_refused_as_value_and_as_key() {
        assert_eq!(refusal(r#"["a\u0000b"]"#), "1:11 a string contains U+0000");
        assert_eq!(refusal(r#"{"\u0000":1}"#), "1:9 a string contains U+0000");
    }

    #[test]
    fn nesting_beyond_the_limit_is_refused() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(nested(limits::JSON_DEPTH_MAX).as_bytes()).is_ok());
        assert!(refusal(&nested(limits::JSON_DEPTH_MAX + 1)).contains("nested deeper"));
        assert!(refusal(&"[".repeat(100_000)).contains("nested deeper"));
    }

    #[test]
    fn a_wrong_field_is_named_by_pointer_and_reason() {
        #[derive(Debug, serde::Deserialize)]
        #[allow(dead_code)]
        struct Outer {
            items: Vec<Inner>,
        }
        #[derive(Debug, serde::Deserialize)]
        #[allow(dead_code)]
        struct Inner {
            count: u8,
        }
        let document = parse(br#"{"items":[{"count":1},{"count":"x"}]}"#).unwrap();
        let error = decode::<Outer>(&document).unwrap_err();
        let reason = "invalid type: string, expected an integer".to_owned();
        assert_eq!(error, JsonError::Shape { pointer: "/items/1/count".into(), reason });
    }
}
