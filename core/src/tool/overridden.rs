//! Other acts that a request names beside its own.
//!
//! Many servers take another method than that of the request from a header, or from a field of the query or of the body: a POST with
//! `_method=DELETE` deletes. Such a call is what the worst of its names says.

use serde_json::Value;

/// Names under which servers look for another method, in lower case and with `-` for `_`.
const NAMES: [&str; 4] = ["-method", "x-http-method-override", "x-http-method", "x-method-override"];

/// Whether a header or a field of this name tells a server another method. Some servers don't tell `_` from `-`.
#[must_use]
pub fn overrides_method(name: &str) -> bool {
    let name = name.trim().to_ascii_lowercase().replace('_', "-");
    NAMES.contains(&name.trim_end_matches("[]"))
}

/// The methods that an input names beside its own, in upper case; an empty one is not known yet.
pub(super) fn methods_beside(input: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for member in ["headers", "query", "json"] {
        walk(&input[member], &mut found);
    }
    for member in ["url", "text"] {
        let Some(text) = input[member].as_str() else { continue };
        scan(text, &mut found);
        if text.contains('%') {
            scan(&decoded(text), &mut found);
        }
        if let Ok(body) = serde_json::from_str(text) {
            walk(&body, &mut found);
        }
    }
    found
}

/// Finds fields in a document.
fn walk(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                if overrides_method(name) {
                    found.push(value.as_str().map(word).unwrap_or_default());
                }
                walk(value, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| walk(item, found)),
        _ => {}
    }
}

/// Finds fields in a text, whatever they are written in: a query, a form, several parts.
fn scan(text: &str, found: &mut Vec<String>) {
    let text = text.to_ascii_lowercase().replace('_', "-");
    let begins = |at: usize| !text[..at].ends_with(|sign: char| sign.is_ascii_alphanumeric() || "-./".contains(sign));
    let ends = |at: usize| text[at..].starts_with(|sign: char| sign.is_whitespace() || "=:[]>\"'".contains(sign));
    for name in NAMES {
        let fields = text.match_indices(name).map(|(at, _)| (at, at + name.len()));
        found.extend(fields.filter(|(at, end)| begins(*at) && ends(*end)).map(|(_, end)| word(&text[end..])));
    }
}

/// A text without percent signs that hide others.
fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut decoded: Vec<u8> = parts.next().unwrap_or_default().bytes().collect();
    for part in parts {
        match part.get(..2).and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                decoded.extend(part[2..].bytes());
            }
            None => {
                decoded.push(b'%');
                decoded.extend(part.bytes());
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// The first word of a text, if one can be told.
fn word(text: &str) -> String {
    let text = text.trim_start_matches(|sign: char| !sign.is_ascii_alphanumeric() && sign != '$');
    text.chars().take_while(char::is_ascii_alphanumeric).collect::<String>().to_ascii_uppercase()
}
