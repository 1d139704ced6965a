//! Canonical JSON (RFC 8785): one document, one text.
//!
//! Members are sorted by UTF-16 code units, numbers are written as ECMAScript writes them, and
//! nothing is escaped that need not be. Reading is strict and lives in `strict`.
//!
//! Stricter than the RFC in one point: a number that would be written as a whole number beyond
//! 2^53 has no canonical form here, because half of all readers would change it silently.

use crate::limits::JSON_DEPTH_MAX;
use serde_json::{Map, Number, Value};
use std::cmp::Ordering;
use std::fmt::Write as _;

pub use super::strict::{ParseError, parse};

/// The greatest whole number that every reader keeps exactly.
pub const INTEGER_MAX: i64 = 1 << 53;

/// Why a document has no canonical form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JcsError {
    /// A whole number beyond 2^53, which not every reader keeps exactly.
    #[error("integer beyond 2^53")]
    IntegerTooLarge,
    /// A number that no double can hold.
    #[error("number out of range")]
    NumberTooLarge,
    /// Nested too deeply.
    #[error("nested more than {JSON_DEPTH_MAX} levels")]
    TooDeep,
}

/// The canonical text of a document.
pub fn canonical(value: &Value) -> Result<String, JcsError> {
    let mut out = String::with_capacity(256);
    write_value(&mut out, value, JSON_DEPTH_MAX)?;
    Ok(out)
}

/// Appends the canonical text of `value`, which may be nested `depth` levels deep.
pub(crate) fn write_value(out: &mut String, value: &Value, depth: usize) -> Result<(), JcsError> {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => write_number(out, number)?,
        Value::String(text) => write_text(out, text),
        Value::Array(items) => {
            let depth = depth.checked_sub(1).ok_or(JcsError::TooDeep)?;
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_value(out, item, depth)?;
            }
            out.push(']');
        }
        Value::Object(members) => write_members(out, members, depth.checked_sub(1).ok_or(JcsError::TooDeep)?)?,
    }
    Ok(())
}

fn write_members(out: &mut String, members: &Map<String, Value>, depth: usize) -> Result<(), JcsError> {
    let mut member = |(at, (name, value)): (usize, (&String, &Value))| {
        out.push(if at == 0 { '{' } else { ',' });
        write_text(out, name);
        out.push(':');
        write_value(out, value, depth)
    };
    if members.keys().is_sorted_by(|a, b| utf16_order(a, b) != Ordering::Greater) {
        members.iter().enumerate().try_for_each(&mut member)?;
    } else {
        let mut sorted: Vec<_> = members.iter().collect();
        sorted.sort_unstable_by(|a, b| utf16_order(a.0, b.0));
        sorted.into_iter().enumerate().try_for_each(&mut member)?;
    }
    out.push_str(if members.is_empty() { "{}" } else { "}" });
    Ok(())
}

/// Bytes of UTF-8 and units of UTF-16 sort alike, except that U+E000 to U+FFFF come after the
/// surrogates that spell everything above them.
fn utf16_order(a: &str, b: &str) -> Ordering {
    let differs = |text: &str| text.bytes().any(|byte| byte >= 0xee);
    if differs(a) && differs(b) { a.encode_utf16().cmp(b.encode_utf16()) } else { a.cmp(b) }
}

/// Appends a text in quotes.
pub(crate) fn write_text(out: &mut String, text: &str) {
    out.push('"');
    let mut plain = 0;
    for (at, byte) in text.bytes().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.push_str(&text[plain..at]);
        plain = at + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            0x08 => out.push_str("\\b"),
            b'\t' => out.push_str("\\t"),
            b'\n' => out.push_str("\\n"),
            0x0c => out.push_str("\\f"),
            b'\r' => out.push_str("\\r"),
            _ => {
                let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
                out.push_str("\\u00");
                out.push(digit(byte >> 4));
                out.push(digit(byte & 15));
            }
        }
    }
    out.push_str(&text[plain..]);
    out.push('"');
}

/// Appends a whole number.
pub(crate) fn write_integer(out: &mut String, number: i64) -> Result<(), JcsError> {
    if !(-INTEGER_MAX..=INTEGER_MAX).contains(&number) {
        return Err(JcsError::IntegerTooLarge);
    }
    write!(out, "{number}").map_err(|_| JcsError::NumberTooLarge)
}

fn write_number(out: &mut String, number: &Number) -> Result<(), JcsError> {
    if let Some(whole) = number.as_i64() {
        return write_integer(out, whole);
    }
    if number.is_u64() {
        return Err(JcsError::IntegerTooLarge);
    }
    let value = number.as_f64().filter(|value| value.is_finite()).ok_or(JcsError::NumberTooLarge)?;
    let text = number_text(value);
    if value.abs() > 9_007_199_254_740_992.0 && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') {
        return Err(JcsError::IntegerTooLarge);
    }
    out.push_str(&text);
    Ok(())
}

/// With fewer digits no two shortest spellings of a double are equally close.
const TIE_DIGITS_MIN: usize = 15;

/// Digits and decimal exponent of a text like `1.25e-7`.
fn scientific(text: &str) -> (String, i32) {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    (mantissa.chars().filter(char::is_ascii_digit).collect(), exponent.parse().unwrap_or(0))
}

/// A finite double as ECMAScript's `Number::toString` writes it.
///
/// The shortest digits that read back as the same double come from the standard library; their
/// layout is ours, and so is the choice between two equally short and equally close ones: the
/// even one, as ECMAScript advises and RFC 8785 demands.
#[must_use]
pub fn number_text(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let (mut digits, mut exponent) = scientific(&format!("{:e}", value.abs()));
    if digits.len() >= TIE_DIGITS_MIN {
        let nearest = format!("{:.*e}", digits.len() - 1, value.abs());
        if nearest.parse() == Ok(value.abs()) {
            (digits, exponent) = scientific(&nearest);
        }
    }
    let mut out = String::with_capacity(25);
    if value < 0.0 {
        out.push('-');
    }
    let zeros = |n: usize| "0".repeat(n);
    // How many digits stand before the decimal point.
    match usize::try_from(exponent + 1) {
        Ok(before @ 1..=21) if before >= digits.len() => {
            out.push_str(&digits);
            out.push_str(&zeros(before - digits.len()));
        }
        Ok(before @ 1..=21) => {
            let (whole, fraction) = digits.split_at(before);
            out.extend([whole, ".", fraction]);
        }
        _ if (-6..=-1).contains(&exponent) => {
            let leading = usize::try_from(-exponent - 1).unwrap_or(0);
            out.extend(["0.", &zeros(leading), &digits]);
        }
        _ => {
            let (first, rest) = digits.split_at(1);
            out.push_str(first);
            if !rest.is_empty() {
                out.extend([".", rest]);
            }
            out.extend(["e", if exponent < 0 { "-" } else { "+" }, &exponent.unsigned_abs().to_string()]);
        }
    }
    out
}
