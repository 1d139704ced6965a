//! HTTP method overrides in a request.
//!
//! Many servers take the method from a header or from a query or body field: a POST with `_method=DELETE` deletes.
//! Such a call is classified by the worst method that it names.

use serde_json::Value;

/// Names of override fields, in lower case and with `-` for `_`.
const OVERRIDE_NAMES: [&str; 4] = ["-method", "x-http-method-override", "x-http-method", "x-method-override"];

/// Whether a header or field of this name overrides the method. Some servers treat `_` and `-` alike.
#[must_use]
pub fn is_method_override(name: &str) -> bool {
    let name = name.trim().to_ascii_lowercase().replace('_', "-");
    OVERRIDE_NAMES.contains(&name.trim_end_matches("[]"))
}

/// The override methods in an input, in upper case. An empty one is not known yet.
pub(super) fn override_methods(input: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for member in ["headers", "query", "json"] {
        find_in_value(&input[member], &mut found);
    }
    for member in ["url", "text"] {
        let Some(text) = input[member].as_str() else { continue };
        find_in_text(text, &mut found);
        if text.contains('%') {
            find_in_text(&percent_decode(text), &mut found);
        }
        if let Ok(body) = serde_json::from_str(text) {
            find_in_value(&body, &mut found);
        }
    }
    found
}

/// Finds override fields in a document.
fn find_in_value(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                if is_method_override(name) {
                    found.push(value.as_str().map(first_word).unwrap_or_default());
                }
                find_in_value(value, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| find_in_value(item, found)),
        _ => {}
    }
}

/// Finds override fields in a text of any format: a query, a form, multipart.
fn find_in_text(text: &str, found: &mut Vec<String>) {
    let text = text.to_ascii_lowercase().replace('_', "-");
    let begins = |at: usize| !text[..at].ends_with(|sign: char| sign.is_ascii_alphanumeric() || "-./".contains(sign));
    let ends = |at: usize| text[at..].starts_with(|sign: char| sign.is_whitespace() || "=:[]>\"'".contains(sign));
    for name in OVERRIDE_NAMES {
        let fields = text.match_indices(name).map(|(at, _)| (at, at + name.len()));
        found.extend(fields.filter(|(at, end)| begins(*at) && ends(*end)).map(|(_, end)| first_word(&text[end..])));
    }
}

/// Percent-decodes a text.
fn percent_decode(text: &str) -> String {
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

/// The first word of a text, or an empty string.
fn first_word(text: &str) -> String {
    let text = text.trim_start_matches(|sign: char| !sign.is_ascii_alphanumeric() && sign != '$');
    text.chars().take_while(char::is_ascii_alphanumeric).collect::<String>().to_ascii_uppercase()
}
