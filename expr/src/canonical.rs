//! Canonical JSON (RFC 8785): equal documents have equal text.
//!
//! Members are sorted by UTF-16 code units, numbers are written as in ECMAScript, and only what must
//! be escaped is. Parsing is strict and lives in `chimera_core::json::strict`.
//!
//! One difference from the RFC: an integer that fits 64 bits is written exactly, where ECMAScript
//! would round it to a double. So different values never share a text.

use serde_json::{Map, Number, Value};
use std::cmp::Ordering;
use std::fmt::{Display, Write as _};

/// The canonical text of a document.
#[must_use]
pub fn canonical(value: &Value) -> String {
    let mut out = String::with_capacity(256);
    write_value(&mut out, value);
    out
}

fn write_value(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => write_number(out, number),
        Value::String(text) => write_text(out, text),
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_value(out, item);
            }
            out.push(']');
        }
        Value::Object(members) => write_members(out, members),
    }
}

fn write_members(out: &mut String, members: &Map<String, Value>) {
    let mut member = |(at, (name, value)): (usize, (&String, &Value))| {
        out.push(if at == 0 { '{' } else { ',' });
        write_text(out, name);
        out.push(':');
        write_value(out, value);
    };
    // The map is sorted by bytes, which is also UTF-16 order for ASCII names.
    let is_sorted = members.keys().all(|name| name.is_ascii())
        || members.keys().is_sorted_by(|a, b| utf16_order(a, b) != Ordering::Greater);
    if is_sorted {
        members.iter().enumerate().for_each(&mut member);
    } else {
        let mut sorted: Vec<_> = members.iter().collect();
        sorted.sort_unstable_by(|a, b| utf16_order(a.0, b.0));
        sorted.into_iter().enumerate().for_each(&mut member);
    }
    out.push_str(if members.is_empty() { "{}" } else { "}" });
}

/// UTF-8 bytes and UTF-16 units sort alike, except that U+E000 to U+FFFF sort after the surrogates
/// of all higher code points.
fn utf16_order(a: &str, b: &str) -> Ordering {
    let differs = |text: &str| text.bytes().any(|byte| byte >= 0xee);
    if differs(a) && differs(b) { a.encode_utf16().cmp(b.encode_utf16()) } else { a.cmp(b) }
}

/// Appends a quoted, escaped string.
pub fn write_text(out: &mut String, text: &str) {
    out.reserve(text.len() + 2);
    out.push('"');
    // Most strings need no escapes. Checking all bytes without a branch is faster than stopping at the first.
    let escapes = text.bytes().fold(false, |found, byte| found | is_escaped(byte));
    if escapes {
        write_escaped(out, text);
    } else {
        out.push_str(text);
    }
    out.push('"');
}

const fn is_escaped(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

fn write_escaped(out: &mut String, text: &str) {
    let mut plain = 0;
    for (at, byte) in text.bytes().enumerate() {
        if !is_escaped(byte) {
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
}

pub fn write_integer(out: &mut String, number: impl Display) {
    // Writing to a `String` can't fail.
    let _ = write!(out, "{number}");
}

fn write_number(out: &mut String, number: &Number) {
    match (number.as_i64(), number.as_u64(), number.as_f64()) {
        (Some(whole), ..) => write_integer(out, whole),
        (_, Some(whole), _) => write_integer(out, whole),
        (.., Some(value)) => match whole(value) {
            Some(whole) => write_integer(out, whole),
            None => out.push_str(&number_text(value)),
        },
        // Unreachable: a number is one of the three.
        (.., None) => out.push_str("null"),
    }
}

/// The integer that a double above 2^53 is equal to, if it fits 64 bits. Equal values need equal text.
fn whole(value: f64) -> Option<i128> {
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    #[allow(clippy::cast_possible_truncation)]
    let whole = (value.abs() > EXACT_MAX).then_some(value as i128)?;
    (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&whole).then_some(whole)
}

/// With fewer digits, no two shortest representations of a double are equally close.
const TIE_DIGITS_MIN: usize = 15;

/// Digits and decimal exponent of a text like `1.25e-7`.
fn scientific(text: &str) -> (String, i32) {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    (mantissa.chars().filter(char::is_ascii_digit).collect(), exponent.parse().unwrap_or(0))
}

/// A finite double as ECMAScript's `Number::toString` writes it.
///
/// The shortest digits that parse back to the same double come from the standard library. The
/// layout is done here, and so is the choice between two equally short and equally close
/// candidates: the even one, as ECMAScript recommends and RFC 8785 requires.
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
    // The number of digits before the decimal point.
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
