//! Reads the members of an object one by one and reports those that are left over.
//!
//! Every getter returns a usable value even after a problem, so that one pass finds all problems.

use super::problem::{ProblemCode, Problems};
use crate::flow::expr::pointer_token;
use crate::text::did_you_mean;
use serde_json::{Map, Value};
use std::ops::RangeInclusive;

/// The members of one object, with its JSON pointer.
pub(crate) struct Members {
    members: Map<String, Value>,
    path: String,
    known: Vec<&'static str>,
    /// It was not an object: missing members are not reported.
    broken: bool,
}

/// A value's type, with its article.
const fn type_with_article(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// A pointer to the first string that contains U+0000, which not every store supports.
pub(crate) fn find_nul(value: &Value) -> Option<String> {
    let child = |name: &str, value: &Value| find_nul(value).map(|rest| format!("/{}{rest}", pointer_token(name)));
    match value {
        Value::String(text) => text.contains('\0').then(String::new),
        Value::Array(items) => items.iter().enumerate().find_map(|(at, item)| child(&at.to_string(), item)),
        Value::Object(members) => members.iter().find_map(|(name, value)| match name.contains('\0') {
            true => Some(String::new()),
            false => child(name, value),
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

impl Members {
    /// The members of `value`. Reports a problem if it is not an object.
    pub(crate) fn of(value: Value, path: impl Into<String>, out: &mut Problems) -> Self {
        let path = path.into();
        if let Some(place) = find_nul(&value).filter(|_| path.is_empty()) {
            out.add(ProblemCode::InvalidValue, place, "a text holds the character U+0000, which can't be stored");
        }
        let members = match value {
            Value::Object(members) => members,
            other => {
                out.add(
                    ProblemCode::InvalidValue,
                    path.as_str(),
                    format!("expected an object, found {}", type_with_article(&other)),
                );
                return Self { members: Map::new(), path, known: Vec::new(), broken: true };
            }
        };
        Self { members, path, known: Vec::new(), broken: false }
    }

    /// A JSON pointer to a member.
    pub(crate) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }

    /// A member, without taking it.
    pub(crate) fn peek(&self, name: &str) -> Option<&Value> {
        self.members.get(name)
    }

    /// Takes an optional member.
    pub(crate) fn take(&mut self, name: &'static str) -> Option<Value> {
        self.known.push(name);
        self.members.remove(name)
    }

    fn take_required(&mut self, name: &'static str, out: &mut Problems) -> Option<Value> {
        let value = self.take(name);
        if value.is_none() && !self.broken {
            out.add(ProblemCode::MissingMember, self.path(name), format!("{name} is missing"));
        }
        value
    }

    fn report_wrong_type(&self, name: &str, expected: &str, found: &Value, out: &mut Problems) {
        let reason = format!("{name} must be {expected}, not {}", type_with_article(found));
        out.add(ProblemCode::InvalidValue, self.path(name), reason);
    }

    fn as_text(&self, name: &str, value: Value, out: &mut Problems) -> Option<String> {
        match value {
            Value::String(text) => Some(text),
            other => {
                self.report_wrong_type(name, "a string", &other, out);
                None
            }
        }
    }

    /// A required string. Empty only after a reported problem.
    pub(crate) fn text(&mut self, name: &'static str, out: &mut Problems) -> String {
        let value = self.take_required(name, out);
        let text = value.and_then(|value| self.as_text(name, value, out));
        if text.as_ref().is_some_and(String::is_empty) {
            out.add(ProblemCode::InvalidValue, self.path(name), format!("{name} must not be empty"));
        }
        text.unwrap_or_default()
    }

    /// An optional string.
    pub(crate) fn optional_text(&mut self, name: &'static str, out: &mut Problems) -> Option<String> {
        let value = self.take(name)?;
        self.as_text(name, value, out)
    }

    /// An optional integer within bounds.
    pub(crate) fn number(
        &mut self,
        name: &'static str,
        bounds: RangeInclusive<i64>,
        out: &mut Problems,
    ) -> Option<i64> {
        let value = self.take(name)?;
        let number = value.as_i64();
        let good = number.filter(|number| bounds.contains(number));
        if good.is_none() {
            let reason = format!("{name} must be an integer from {} to {}", bounds.start(), bounds.end());
            out.add(ProblemCode::InvalidValue, self.path(name), reason);
        }
        good
    }

    /// An optional count, such as seconds, within bounds.
    pub(crate) fn count(&mut self, name: &'static str, bounds: RangeInclusive<u32>, out: &mut Problems) -> Option<u32> {
        let bounds = i64::from(*bounds.start())..=i64::from(*bounds.end());
        self.number(name, bounds, out).and_then(|number| u32::try_from(number).ok())
    }

    /// An optional boolean, false by default.
    pub(crate) fn flag(&mut self, name: &'static str, out: &mut Problems) -> bool {
        match self.take(name) {
            None => false,
            Some(Value::Bool(flag)) => flag,
            Some(other) => {
                self.report_wrong_type(name, "a boolean", &other, out);
                false
            }
        }
    }

    /// An optional object with arbitrary members.
    pub(crate) fn object(&mut self, name: &'static str, out: &mut Problems) -> Option<Map<String, Value>> {
        match self.take(name)? {
            Value::Object(members) => Some(members),
            other => {
                self.report_wrong_type(name, "an object", &other, out);
                None
            }
        }
    }

    /// An optional array.
    pub(crate) fn list(&mut self, name: &'static str, out: &mut Problems) -> Option<Vec<Value>> {
        match self.take(name)? {
            Value::Array(items) => Some(items),
            other => {
                self.report_wrong_type(name, "an array", &other, out);
                None
            }
        }
    }

    /// An optional object with known members.
    pub(crate) fn inner(&mut self, name: &'static str, out: &mut Problems) -> Option<Self> {
        let value = self.take(name)?;
        Some(Self::of(value, self.path(name), out))
    }

    /// A required value of any type.
    pub(crate) fn value(&mut self, name: &'static str, out: &mut Problems) -> Value {
        self.take_required(name, out).unwrap_or_default()
    }

    /// The remaining members, for nodes that keep them verbatim.
    pub(crate) fn take_rest(&mut self) -> Map<String, Value> {
        std::mem::take(&mut self.members)
    }

    /// Reports every remaining member as unknown.
    pub(crate) fn finish(self, out: &mut Problems) {
        for name in self.members.keys() {
            if out.is_full() {
                return;
            }
            let guess = did_you_mean(name, self.known.iter().copied());
            let pointer = format!("{}/{}", self.path, pointer_token(name));
            out.add(ProblemCode::UnknownMember, pointer, format!("unknown member {name:?}{guess}"));
        }
    }
}
