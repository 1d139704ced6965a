//! Text of others, made fit to be stored.
//!
//! Errors and entries of the ledger repeat what callers and other systems said. Whatever that was, the act that they
//! are about must be written down: a text is cut at a length, and has no character that a store refuses or a
//! terminal obeys.

use crate::limits::{ERROR_DETAIL_BYTES_MAX, ERROR_MESSAGE_CHARS_MAX};
use serde_json::{Map, Value};

/// Nesting of a document at the most; what lies deeper is left out.
const DEPTH_MAX: usize = 16;

/// A text of the length that a message may have.
#[must_use]
pub fn storable(text: String) -> String {
    cut(text, ERROR_MESSAGE_CHARS_MAX)
}

/// A document of the size that a detail of an error may have.
#[must_use]
pub fn storable_value(value: Value) -> Value {
    bounded(value, ERROR_DETAIL_BYTES_MAX, ERROR_MESSAGE_CHARS_MAX)
}

/// A document of about so many bytes at the most, with texts of so many characters. What is beyond is left out.
#[must_use]
pub fn bounded(value: Value, bytes_max: usize, chars_max: usize) -> Value {
    Room { bytes_left: bytes_max, chars_max }.fit(value, DEPTH_MAX)
}

fn cut(text: String, chars_max: usize) -> String {
    let steers = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    let fits = text.len() <= chars_max || text.chars().nth(chars_max).is_none();
    if fits && !text.contains(steers) {
        return text;
    }
    let harmless = |c: char| if steers(c) { char::REPLACEMENT_CHARACTER } else { c };
    let mark = if fits { None } else { Some('…') };
    text.chars().take(chars_max).map(harmless).chain(mark).collect()
}

struct Room {
    bytes_left: usize,
    chars_max: usize,
}

impl Room {
    fn fit(&mut self, value: Value, depth_left: usize) -> Value {
        match value {
            Value::String(text) => {
                let text = cut(text, self.chars_max);
                self.spend(text.len() + 2);
                Value::String(text)
            }
            Value::Array(_) | Value::Object(_) if depth_left == 0 => Value::Null,
            Value::Array(items) => {
                self.spend(3);
                let mut kept = Vec::new();
                for item in items {
                    if self.bytes_left == 0 {
                        break;
                    }
                    kept.push(self.fit(item, depth_left - 1));
                }
                Value::Array(kept)
            }
            Value::Object(members) => {
                self.spend(3);
                let mut kept = Map::new();
                for (name, member) in members {
                    if self.bytes_left == 0 {
                        break;
                    }
                    let name = cut(name, self.chars_max);
                    self.spend(name.len() + 3);
                    kept.insert(name, self.fit(member, depth_left - 1));
                }
                Value::Object(kept)
            }
            plain => {
                self.spend(8);
                plain
            }
        }
    }

    const fn spend(&mut self, bytes: usize) {
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
    }
}
