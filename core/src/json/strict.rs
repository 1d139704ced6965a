//! A strict JSON parser (RFC 8259, I-JSON).
//!
//! It rejects what lenient parsers accept: duplicate members, unpaired surrogates, integers beyond 64 bits, trailing
//! content, unbounded nesting. Fractions are read as the nearest double, so that writing and reading never drift. In
//! received documents a fraction must be exactly representable. Errors that leave the rest of the document readable can
//! be collected.

use super::number_text;
use crate::limits::{JSON_DEPTH_MAX, JSON_VALUES_MAX};
use serde_json::{Map, Number, Value};
use std::fmt;

/// Why a document is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error("invalid JSON at byte {at}")]
    Syntax { at: usize },
    /// Invalid UTF-8 or an unpaired surrogate.
    #[error("invalid Unicode at byte {at}")]
    Unicode { at: usize },
    #[error("duplicate member before byte {at}")]
    DuplicateMember { at: usize },
    #[error("integer does not fit in 64 bits at byte {at}")]
    IntegerTooLarge { at: usize },
    #[error("number out of range at byte {at}")]
    NumberTooLarge { at: usize },
    /// A fraction that a double cannot represent exactly.
    #[error("number can't be represented exactly as a double at byte {at}")]
    NumberInexact { at: usize },
    /// A limit is exceeded.
    #[error("{what} at byte {at}")]
    LimitExceeded { at: usize, what: ParseLimit },
    #[error("trailing content at byte {at}")]
    Trailing { at: usize },
}

impl ParseError {
    /// The byte where it was noticed.
    #[must_use]
    pub const fn at(self) -> usize {
        match self {
            Self::Syntax { at }
            | Self::Unicode { at }
            | Self::DuplicateMember { at }
            | Self::IntegerTooLarge { at }
            | Self::NumberTooLarge { at }
            | Self::NumberInexact { at }
            | Self::LimitExceeded { at, .. }
            | Self::Trailing { at } => at,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseLimit {
    Depth,
    /// More values than a received document may have.
    Values,
}

impl fmt::Display for ParseLimit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Depth => out.write_str("nested too deeply"),
            Self::Values => write!(out, "more than {JSON_VALUES_MAX} values"),
        }
    }
}

/// Parses exactly one document.
pub fn parse(text: impl AsRef<[u8]>) -> Result<Value, ParseError> {
    parse_nested(text.as_ref(), JSON_DEPTH_MAX)
}

/// Parses exactly one received document. Fractions that would be rounded are rejected: nobody is shown a different
/// number than was sent.
pub fn parse_exact(text: impl AsRef<[u8]>) -> Result<Value, ParseError> {
    read(text.as_ref(), JSON_DEPTH_MAX, (true, usize::MAX))
}

/// Like [`parse_exact`], with at most [`JSON_VALUES_MAX`] values: the cost of a document depends on their number more
/// than on its bytes.
pub fn parse_bounded(text: impl AsRef<[u8]>) -> Result<Value, ParseError> {
    read(text.as_ref(), JSON_DEPTH_MAX, (true, JSON_VALUES_MAX))
}

/// An error that leaves the rest of the document readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadableFault {
    pub error: ParseError,
    /// The byte to point to: the second name of a duplicate member, or the number.
    pub at: usize,
    /// The byte where the value begins that the error is about.
    pub value_at: usize,
}

/// Like [`parse_exact`], but goes on after a duplicate member, whose last value counts, and after a number that can't
/// be kept. Reports the first `faults_max` of these, in the order of the text.
pub fn parse_collecting(text: &str, faults_max: usize) -> Result<(Value, Vec<ReadableFault>), ParseError> {
    let faults = FaultList { faults_max, kept: Vec::new() };
    let mut reader = Parser { text, at: 0, exact: true, values: usize::MAX, faults: Some(faults) };
    let value = reader.document(JSON_DEPTH_MAX)?;
    Ok((value, reader.faults.map(|faults| faults.kept).unwrap_or_default()))
}

/// Parses exactly one document that is at most `depth` levels deep.
pub(crate) fn parse_nested(bytes: &[u8], depth: usize) -> Result<Value, ParseError> {
    read(bytes, depth, (false, usize::MAX))
}

fn read(bytes: &[u8], depth: usize, (exact, values): (bool, usize)) -> Result<Value, ParseError> {
    let text = std::str::from_utf8(bytes).map_err(|error| ParseError::Unicode { at: error.valid_up_to() })?;
    Parser { text, at: 0, exact, values, faults: None }.document(depth)
}

struct FaultList {
    faults_max: usize,
    kept: Vec<ReadableFault>,
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    /// Reject fractions that would be rounded.
    exact: bool,
    /// Remaining number of values.
    values: usize,
    /// Where to collect errors that leave the rest readable. `None`: the first one ends the parsing.
    faults: Option<FaultList>,
}

impl Parser<'_> {
    fn document(&mut self, depth: usize) -> Result<Value, ParseError> {
        let value = self.value(depth)?;
        self.space();
        if self.at < self.text.len() { Err(ParseError::Trailing { at: self.at }) } else { Ok(value) }
    }

    /// Collects an error and goes on, or ends with it.
    fn fault(&mut self, error: ParseError, at: usize, value_at: usize) -> Result<(), ParseError> {
        let Some(faults) = &mut self.faults else { return Err(error) };
        if faults.kept.len() < faults.faults_max {
            faults.kept.push(ReadableFault { error, at, value_at });
        }
        Ok(())
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn syntax<T>(&self) -> Result<T, ParseError> {
        Err(ParseError::Syntax { at: self.at })
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, ParseError> {
        if !self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            return self.syntax();
        }
        self.at += word.len();
        Ok(value)
    }

    fn value(&mut self, depth: usize) -> Result<Value, ParseError> {
        self.space();
        self.values =
            self.values.checked_sub(1).ok_or(ParseError::LimitExceeded { at: self.at, what: ParseLimit::Values })?;
        match self.peek() {
            Some(b'n') => self.word("null", Value::Null),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'"') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(open @ (b'[' | b'{')) => {
                let depth =
                    depth.checked_sub(1).ok_or(ParseError::LimitExceeded { at: self.at, what: ParseLimit::Depth })?;
                self.at += 1;
                if open == b'[' { self.array(depth) } else { self.object(depth) }
            }
            _ => self.syntax(),
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value, ParseError> {
        let mut items = Vec::new();
        self.space();
        if self.take(b']') {
            return Ok(Value::Array(items));
        }
        loop {
            items.push(self.value(depth)?);
            self.space();
            if self.take(b']') {
                return Ok(Value::Array(items));
            }
            if !self.take(b',') {
                return self.syntax();
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, ParseError> {
        let mut members = Map::new();
        self.space();
        if self.take(b'}') {
            return Ok(Value::Object(members));
        }
        loop {
            self.space();
            let name_at = self.at;
            let name = self.string()?;
            let at = self.at;
            self.space();
            if !self.take(b':') {
                return self.syntax();
            }
            let value_at = self.at;
            let value = self.value(depth)?;
            if members.insert(name, value).is_some() {
                self.fault(ParseError::DuplicateMember { at }, name_at, value_at)?;
            }
            self.space();
            if self.take(b'}') {
                return Ok(Value::Object(members));
            }
            if !self.take(b',') {
                return self.syntax();
            }
        }
    }

    fn string(&mut self) -> Result<String, ParseError> {
        if !self.take(b'"') {
            return self.syntax();
        }
        let mut out = String::new();
        let mut plain = self.at;
        loop {
            match self.peek() {
                Some(b'"') => {
                    out.push_str(&self.text[plain..self.at]);
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => {
                    out.push_str(&self.text[plain..self.at]);
                    self.at += 1;
                    out.push(self.escape()?);
                    plain = self.at;
                }
                Some(0x20..) => self.at += 1,
                _ => return self.syntax(),
            }
        }
    }

    fn escape(&mut self) -> Result<char, ParseError> {
        let letter = self.peek();
        self.at += 1;
        Ok(match letter {
            Some(plain @ (b'"' | b'\\' | b'/')) => char::from(plain),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let at = self.at;
                let high = self.hex()?;
                let code = if (0xd800..0xdc00).contains(&high) {
                    if !(self.take(b'\\') && self.take(b'u')) {
                        return Err(ParseError::Unicode { at });
                    }
                    let low = self.hex()?;
                    if !(0xdc00..0xe000).contains(&low) {
                        return Err(ParseError::Unicode { at });
                    }
                    0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00)
                } else {
                    high
                };
                char::from_u32(code).ok_or(ParseError::Unicode { at })?
            }
            _ => {
                self.at -= 1;
                return self.syntax();
            }
        })
    }

    fn hex(&mut self) -> Result<u32, ParseError> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            code = code * 16 + digit.ok_or(ParseError::Syntax { at: self.at })?;
            self.at += 1;
        }
        Ok(code)
    }

    fn digits(&mut self) -> Result<(), ParseError> {
        let from = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == from { self.syntax() } else { Ok(()) }
    }

    fn number(&mut self) -> Result<Value, ParseError> {
        let at = self.at;
        let negative = self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        let mut whole = true;
        if self.take(b'.') {
            whole = false;
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            whole = false;
            let _signed = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        let text = &self.text[at..self.at];
        if whole && !(negative && text == "-0") {
            let signed = text.parse::<i64>().map(Value::from);
            let number = signed.ok().or_else(|| text.parse::<u64>().ok().map(Value::from)).or_else(|| spelled(text));
            return self.kept_number(number, ParseError::IntegerTooLarge { at }, at);
        }
        let number = text.parse::<f64>().ok().filter(|value| value.is_finite());
        if self.exact && number.is_some_and(|number| !is_kept(text, number)) {
            return self.kept_number(None, ParseError::NumberInexact { at }, at);
        }
        let number = number.and_then(Number::from_f64).map(Value::Number);
        self.kept_number(number, ParseError::NumberTooLarge { at }, at)
    }

    /// The number or, if there is none and errors are collected, zero.
    fn kept_number(&mut self, number: Option<Value>, error: ParseError, at: usize) -> Result<Value, ParseError> {
        match number {
            Some(number) => Ok(number),
            None => self.fault(error, at, at).map(|()| Value::from(0)),
        }
    }
}

/// Maximum number of digits of the shortest unambiguous form of a double.
const DOUBLE_DIGITS_MAX: usize = 17;

/// Whether a double has exactly the digits of its source text.
fn is_kept(text: &str, value: f64) -> bool {
    let Some(given) = significant(text) else { return false };
    let is = |written: String| significant(&written).as_ref() == Some(&given);
    let count = given.0.len();
    is(number_text(value)) || ((1..=DOUBLE_DIGITS_MAX).contains(&count) && is(format!("{:.*e}", count - 1, value)))
}

/// The significant digits of a number, and the decimal exponent of the first.
fn significant(text: &str) -> Option<(String, i64)> {
    let text = text.trim_start_matches('-').to_ascii_lowercase();
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let leading = digits.len() - digits.trim_start_matches('0').len();
    let significant = digits.trim_matches('0').to_owned();
    if significant.is_empty() {
        return Some((significant, 0));
    }
    let first = i64::try_from(whole.len()).ok()? - i64::try_from(leading).ok()?;
    Some((significant, exponent.parse::<i64>().ok()?.checked_add(first)?))
}

/// The double that is written exactly so: no digit is lost.
fn spelled(text: &str) -> Option<Value> {
    let value: f64 = text.parse().ok()?;
    (number_text(value) == text).then(|| Number::from_f64(value).map(Value::Number)).flatten()
}
