//! The lexer: splits an expression into CEL tokens.

use crate::{literal, operators};
use serde_json::{Number, Value};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token<'a> {
    Name(&'a str),
    Literal(Value),
    /// An operator or bracket.
    Symbol(&'static str),
}

/// Longer operators come first, so that `<=` is not read as `<`.
const SYMBOLS: &[&str] = &[
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",", "(", ")", "[", "]",
    "{", "}",
];

/// The tokens of an expression, each with its byte offset.
pub(crate) fn lex(text: &str) -> Result<Vec<(usize, Token<'_>)>, String> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        if matches!(first, ' ' | '\t' | '\n' | '\r' | '\u{c}') {
            at += 1;
            continue;
        }
        let (token, length) = if let Some(found) = literal::text(rest)? {
            (Token::Literal(Value::String(found.0)), found.1)
        } else if first.is_ascii_digit() || (first == '.' && rest[1..].starts_with(|next: char| next.is_ascii_digit()))
        {
            number(rest)?
        } else if first.is_ascii_alphabetic() || first == '_' {
            let length = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            (word(&rest[..length]), length)
        } else if let Some(sign) = SYMBOLS.iter().find(|sign| rest.starts_with(**sign)) {
            (Token::Symbol(sign), sign.len())
        } else {
            return Err(format!("unexpected character {first:?}"));
        };
        tokens.push((at, token));
        at += length;
    }
    Ok(tokens)
}

fn word(word: &str) -> Token<'_> {
    match word {
        "true" => Token::Literal(Value::Bool(true)),
        "false" => Token::Literal(Value::Bool(false)),
        "null" => Token::Literal(Value::Null),
        "in" => Token::Symbol("in"),
        name => Token::Name(name),
    }
}

fn number(text: &str) -> Result<(Token<'_>, usize), String> {
    let digits = |from: usize| text[from..].bytes().take_while(u8::is_ascii_digit).count();
    let (value, length) = if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        let count = hex.bytes().take_while(u8::is_ascii_hexdigit).count();
        (i128::from_str_radix(&hex[..count], 16).ok().and_then(whole), count + 2)
    } else {
        let mut length = digits(0);
        let mut fraction = false;
        if text[length..].starts_with('.') && digits(length + 1) > 0 {
            fraction = true;
            length += 1 + digits(length + 1);
        }
        if text[length..].starts_with(['e', 'E']) {
            let sign = usize::from(text[length + 1..].starts_with(['+', '-']));
            let exponent = digits(length + 1 + sign);
            if exponent > 0 {
                fraction = true;
                length += 1 + sign + exponent;
            }
        }
        let written = &text[..length];
        let value = if fraction {
            written.parse().ok().and_then(Number::from_f64).map(Value::Number)
        } else {
            written.parse().ok().and_then(whole)
        };
        (value, length)
    };
    match (text[length..].chars().next(), value) {
        (Some('u' | 'U'), _) => Err("unsigned numbers (`1u`) are not supported: JSON has one number type".to_owned()),
        (Some(next), _) if next.is_ascii_alphanumeric() || next == '_' => {
            Err("a number is followed by letters".to_owned())
        }
        (_, Some(value)) => Ok((Token::Literal(value), length)),
        (_, None) => Err("number out of range".to_owned()),
    }
}

fn whole(number: i128) -> Option<Value> {
    operators::integer_value(Some(number)).ok()
}
