//! JSON that is signed, approved, stored or compared: one document, one text, one digest.
//!
//! The canonical form is that of RFC 8785, except that integers beyond 2^53 keep their digits: 64-bit ids are common,
//! and distinct values never share a text. Every value has a canonical form, so digesting cannot fail. Documents that
//! are nested too deeply are rejected on entry.

mod digest;
mod position;
pub mod schema;
mod strict;

pub use chimera_expr::{canonical, number_text};
pub(crate) use chimera_expr::{write_integer, write_text};
pub use digest::Digest32;
pub use position::{Position, locate, pointer_at, pointers_at, positions};
pub(crate) use strict::parse_nested;
pub use strict::{ParseError, ParseLimit, ReadableFault, parse, parse_bounded, parse_collecting, parse_exact};

use crate::limits::{JSON_DEPTH_MAX, JSON_OBJECT_MEMORY_BYTES, JSON_VALUE_BYTES, JSON_VALUE_MEMORY_BYTES};
use serde_json::Value;
use std::sync::Arc;

/// A document and the digest of its canonical form, computed on entry.
#[derive(Clone, Debug, PartialEq)]
pub struct CanonicalJson {
    value: Arc<Value>,
    digest: Digest32,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nested more than {levels} levels deep at {pointer}")]
pub struct TooDeep {
    /// The allowed depth.
    pub levels: usize,
    /// JSON Pointer to the first value that is too deep.
    pub pointer: String,
}

impl CanonicalJson {
    /// Checks the depth and computes the digest.
    pub fn new(value: Value) -> Result<Self, TooDeep> {
        check_depth(&value, JSON_DEPTH_MAX)?;
        Ok(Self { digest: Digest32::of(&value), value: Arc::new(value) })
    }

    #[must_use]
    pub const fn value(&self) -> &Arc<Value> {
        &self.value
    }

    #[must_use]
    pub const fn digest(&self) -> Digest32 {
        self.digest
    }
}

/// Checks that a document is nested at most `levels` deep.
pub fn check_depth(value: &Value, levels: usize) -> Result<(), TooDeep> {
    let mut path = Vec::new();
    if find_too_deep(value, levels, &mut path) {
        path.reverse();
        let escaped = |part: &String| format!("/{}", part.replace('~', "~0").replace('/', "~1"));
        return Err(TooDeep { levels, pointer: path.iter().map(escaped).collect() });
    }
    Ok(())
}

/// Whether a value is nested deeper. If so, `path` is filled with its location, innermost first.
fn find_too_deep(value: &Value, levels: usize, path: &mut Vec<String>) -> bool {
    let found = match value {
        Value::Array(_) | Value::Object(_) if levels == 0 => return true,
        Value::Array(items) => {
            items.iter().position(|item| find_too_deep(item, levels - 1, path)).map(|at| at.to_string())
        }
        Value::Object(members) => {
            members.iter().find(|(_, member)| find_too_deep(member, levels - 1, path)).map(|(name, _)| name.clone())
        }
        _ => None,
    };
    let is_deeper = found.is_some();
    path.extend(found);
    is_deeper
}

/// Whether a document is larger than about `bytes`. Stops as soon as that is known.
#[must_use]
pub fn is_larger_than(value: &Value, bytes: usize) -> bool {
    size_left(value, bytes).is_none()
}

/// Approximate size of a document: its text, plus a constant per value.
#[must_use]
pub fn size(value: &Value) -> usize {
    let inside = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(size).fold(0, usize::saturating_add),
        Value::Object(members) => {
            members.iter().map(|(name, member)| name.len() + size(member)).fold(0, usize::saturating_add)
        }
        _ => 0,
    };
    inside.saturating_add(JSON_VALUE_BYTES)
}

/// Approximate memory use of a document.
#[must_use]
pub fn memory_size(value: &Value) -> usize {
    let inside = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(memory_size).fold(0, usize::saturating_add),
        Value::Object(members) => members
            .iter()
            .map(|(name, member)| name.len() + memory_size(member))
            .fold(if members.is_empty() { 0 } else { JSON_OBJECT_MEMORY_BYTES }, usize::saturating_add),
        _ => 0,
    };
    inside.saturating_add(JSON_VALUE_MEMORY_BYTES)
}

/// Whether a document has more than `values` values, including lists and objects. Stops as soon as that is known.
#[must_use]
pub fn has_more_values_than(value: &Value, values: usize) -> bool {
    fn left(value: &Value, values: usize) -> Option<usize> {
        let values = values.checked_sub(1)?;
        match value {
            Value::Array(items) => items.iter().try_fold(values, |values, item| left(item, values)),
            Value::Object(members) => members.values().try_fold(values, |values, member| left(member, values)),
            _ => Some(values),
        }
    }
    left(value, values).is_none()
}

/// Whether a text would have more than `values` values if it is JSON, without parsing it.
#[must_use]
pub fn text_has_more_values_than(text: &[u8], values: usize) -> bool {
    spelled_values(text, values).0 > values
}

/// Approximate memory use of a JSON text once it is parsed, without parsing it.
#[must_use]
pub fn weight_of_text(text: &[u8]) -> usize {
    let (values, objects) = spelled_values(text, usize::MAX);
    let objects = objects.saturating_mul(JSON_OBJECT_MEMORY_BYTES);
    values.saturating_mul(JSON_VALUE_MEMORY_BYTES).saturating_add(objects).saturating_add(text.len())
}

/// Counts the values of a text and the objects among them, until there are more than `values`.
fn spelled_values(text: &[u8], values: usize) -> (usize, usize) {
    let (mut count, mut opened, mut in_text, mut escaped) = (1_usize, false, false, false);
    let mut objects = 0_usize;
    for byte in text {
        if in_text {
            in_text = escaped || *byte != b'"';
            escaped = !escaped && *byte == b'\\';
            continue;
        }
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' => continue,
            // Counts the first value of a container; each further one follows a comma.
            b']' | b'}' => opened = false,
            byte => {
                count += usize::from(std::mem::replace(&mut opened, matches!(byte, b'[' | b'{')));
                count += usize::from(*byte == b',');
                objects += usize::from(*byte == b'{');
                in_text = *byte == b'"';
            }
        }
        if count > values {
            break;
        }
    }
    (count, objects)
}

fn size_left(value: &Value, bytes: usize) -> Option<usize> {
    let bytes = bytes.checked_sub(JSON_VALUE_BYTES)?;
    match value {
        Value::String(text) => bytes.checked_sub(text.len()),
        Value::Array(items) => items.iter().try_fold(bytes, |bytes, item| size_left(item, bytes)),
        Value::Object(members) => {
            members.iter().try_fold(bytes, |bytes, (name, member)| size_left(member, bytes.checked_sub(name.len())?))
        }
        _ => Some(bytes),
    }
}

/// Whether a string or member name contains U+0000, which no store can hold.
#[must_use]
pub fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_nul),
        Value::Object(members) => members.iter().any(|(name, member)| name.contains('\0') || has_nul(member)),
        _ => false,
    }
}

/// Why no store can hold a document, or none if one can.
#[must_use]
pub fn unstorable_reason(value: &Value) -> Option<String> {
    match check_depth(value, JSON_DEPTH_MAX) {
        Err(error) => Some(format!("the value is {error}")),
        Ok(()) => has_nul(value).then(|| "the value holds the character U+0000, which can't be stored".to_owned()),
    }
}
