//! HTTP method overrides in a request.
//!
//! Many servers take the method from a header or from a query or body field: a POST with `_method=DELETE` deletes.
//! Such a call is classified by the worst method that it names. What it names is known only of a body that is read as
//! the other side reads it: as JSON, as a form, or as multipart. A body that says that it is one of these and is not, or
//! whose bytes mean something else than they show, could name any method; so could any other text with the word `method`
//! in it.

mod multipart;

use crate::json;
use crate::limits::ESCAPES_UNDONE_MAX;
use multipart::Fields;
use serde_json::Value;
use std::borrow::Cow;

/// Names of override fields besides `_method`, in lower case and with `-` for each other sign.
const OVERRIDE_NAMES: [&str; 2] = ["x-http-method", "method-override"];

/// Names that may mean something else too, written like the others. Only a value that is a deleting method counts: batch
/// and graph APIs take `?method=delete`, while `{"method": "card"}` is a payment.
const AMBIGUOUS_NAMES: [&str; 3] = ["method", "http-method", "httpmethod"];

/// A field that overrides the method in Google's APIs.
const DOLLAR: &str = "$httpmethod";

/// The word that every override field has in its name.
const METHOD: &str = "method";

/// Character sets in which the bytes of a text mean what they show, as far as names of fields go.
const CHARSETS: [&str; 5] = ["utf-8", "utf8", "us-ascii", "iso-8859-1", "windows-1252"];

/// Whether a header or field of this name overrides the method. Servers write other signs of a name as `_`, and cut it
/// behind a bracket or a zero byte. So `_method` may have any signs in place of its own, and any signs behind it;
/// `payment_method`, `payment[method]` and `method` are other names.
#[must_use]
pub fn is_method_override(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let words: String = name.chars().map(|sign| if sign.is_ascii_alphanumeric() { sign } else { '-' }).collect();
    if name.trim() == DOLLAR || OVERRIDE_NAMES.iter().any(|known| words.contains(known)) {
        return true;
    }
    // Items of lists: `a[0][method]` is the member `method` of one.
    let name = name.replace("[][", "[").replace("][", "[");
    let is_sign = |sign: char| !sign.is_alphanumeric();
    name.match_indices(METHOD).any(|(at, _)| {
        let before = name[..at].trim_end_matches(is_sign);
        let signs = name[before.len()..at].chars().count();
        let ends = name[at + METHOD.len()..].chars().next().is_none_or(is_sign);
        ends && (signs > 1 || (signs == 1 && before.is_empty()))
    })
}

/// Whether a field of this name may override the method.
fn is_ambiguous(name: &str) -> bool {
    let name = name.trim().to_ascii_lowercase().replace(|sign: char| !sign.is_ascii_alphanumeric(), "-");
    AMBIGUOUS_NAMES.contains(&name.trim_end_matches('-'))
}

/// The override methods in an input, in upper case. An empty one is not known, or not known yet.
pub(super) fn override_methods(input: &Value) -> Vec<String> {
    let mut found = Found::default();
    found.find_in_value(&input["headers"]);
    found.find_in_value(&input["query"]);
    let url = input["url"].as_str().unwrap_or_default();
    // Parsers of URLs drop some of them, so what is sent would say something else.
    if url.contains(|sign: char| sign.is_control()) {
        found.unknown();
    }
    let query = url.split('#').next().and_then(|url| url.split_once('?'));
    found.form(query.map_or("", |(_, query)| query));
    found.body(input);
    found.0
}

#[derive(Default)]
struct Found(Vec<String>);

/// How the other side reads a body.
enum Reading {
    Json,
    Form,
    Multipart,
    /// As something else, or nobody knows.
    Other,
}

impl Found {
    /// It could name any method.
    fn unknown(&mut self) {
        self.0.push(String::new());
    }

    fn body(&mut self, input: &Value) {
        let Some((text, kind)) = body_of(input) else { return };
        let Ok(reading) = reading(&input["headers"], kind.as_deref()) else { return self.unknown() };
        match reading {
            Reading::Json => match json::parse(&*text) {
                Ok(value) => self.find_in_value(&value),
                // What is not filled in yet is read again when it is.
                Err(_) if text.contains("${") => self.free(&text),
                Err(_) => self.unknown(),
            },
            Reading::Form => self.form(&text),
            Reading::Multipart => match Fields::read(&text, kind.as_deref().unwrap_or_default()) {
                Some(fields) => fields.0.iter().for_each(|(name, value)| self.field(name, Some(value))),
                None => self.unknown(),
            },
            Reading::Other => match json::parse(&*text) {
                Ok(value @ (Value::Object(_) | Value::Array(_))) => self.find_in_value(&value),
                _ => self.free(&text),
            },
        }
    }

    /// Finds override fields in a document.
    fn find_in_value(&mut self, value: &Value) {
        match value {
            Value::Object(members) => {
                for (name, value) in members {
                    self.field(name, value.as_str());
                    self.find_in_value(value);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.find_in_value(item)),
            _ => {}
        }
    }

    /// Finds override fields in a query or a form.
    fn form(&mut self, text: &str) {
        for field in text.split(['&', ';']) {
            let (name, value) = field.split_once('=').unwrap_or((field, ""));
            self.field(name, Some(value));
        }
    }

    /// A field whose value is a text, or something else.
    fn field(&mut self, name: &str, value: Option<&str>) {
        let Some(names) = spellings(name) else { return self.unknown() };
        if names.iter().any(|name| is_method_override(name)) {
            match value.and_then(spellings) {
                Some(values) => self.0.extend(values.iter().map(|value| first_word(value))),
                None => self.unknown(),
            }
        } else if names.iter().any(|name| is_ambiguous(name)) {
            let values = value.and_then(spellings).unwrap_or_default();
            let deletes = values.iter().any(|value| value.trim().eq_ignore_ascii_case("delete"));
            self.0.extend(deletes.then(|| "DELETE".to_owned()));
        }
    }

    /// A text of no format that is known here.
    fn free(&mut self, text: &str) {
        let says = |read: &Cow<'_, str>| read.to_ascii_lowercase().contains(METHOD);
        if spellings(text).is_none_or(|read| read.iter().any(says)) {
            self.unknown();
        }
    }
}

/// The body of a request as it is sent, and the type that is said of it, if it has one.
fn body_of(input: &Value) -> Option<(Cow<'_, str>, Option<String>)> {
    let said = headers(&input["headers"], "content-type").next().map(|kind| kind.as_str().unwrap_or_default());
    let said = said.map(str::to_owned);
    match (input.get("json"), input["text"].as_str()) {
        (Some(json), _) => Some((json.to_string().into(), said.or_else(|| Some("application/json".to_owned())))),
        (None, Some(text)) => Some((text.into(), said)),
        (None, None) => None,
    }
}

fn headers<'a>(headers: &'a Value, name: &'static str) -> impl Iterator<Item = &'a Value> {
    let all = headers.as_object().into_iter().flatten();
    all.filter(move |(said, _)| said.trim().eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// How the other side reads a body; an error if its bytes could mean something else than they show.
fn reading(given: &Value, kind: Option<&str>) -> Result<Reading, ()> {
    let plain = |value: &Value| value.as_str().is_some_and(|value| value.trim().eq_ignore_ascii_case("identity"));
    if headers(given, "content-type").count() > 1 || !headers(given, "content-encoding").all(plain) {
        return Err(());
    }
    let Some(kind) = kind.map(str::to_ascii_lowercase) else { return Ok(Reading::Other) };
    let mut charsets = kind.split("charset").skip(1);
    let charset = charsets.next().map(|said| said.trim_start().trim_start_matches('=').split(';').next());
    let charset = charset.flatten().map(|said| said.trim().trim_matches('"'));
    if charsets.next().is_some() || charset.is_some_and(|said| !CHARSETS.contains(&said)) {
        return Err(());
    }
    let essence = kind.split(';').next().unwrap_or_default().trim();
    Ok(match essence {
        "application/json" | "text/json" => Reading::Json,
        "application/x-www-form-urlencoded" => Reading::Form,
        json if json.ends_with("+json") => Reading::Json,
        multipart if multipart.starts_with("multipart/") => Reading::Multipart,
        _ => Reading::Other,
    })
}

/// A text as it is written, and as it reads each time that its escapes are undone. None: there is no end to them.
fn spellings(text: &str) -> Option<Vec<Cow<'_, str>>> {
    let mut all: Vec<Cow<'_, str>> = vec![text.into()];
    for _ in 0..=ESCAPES_UNDONE_MAX {
        match all.last().and_then(|last| unescaped(last)) {
            Some(next) => all.push(next.into()),
            None => return Some(all),
        }
    }
    None
}

/// A text with its escapes undone once: `%5F`, `+` and `\u005f`. None: it has none.
fn unescaped(text: &str) -> Option<String> {
    if !text.contains(['%', '+', '\\']) {
        return None;
    }
    let (bytes, mut read, mut at) = (text.as_bytes(), Vec::with_capacity(text.len()), 0);
    while let Some(byte) = bytes.get(at) {
        let hex = |from: usize, digits: usize| {
            let digits = text.get(from..from + digits).filter(|hex| hex.bytes().all(|digit| digit.is_ascii_hexdigit()));
            digits.and_then(|hex| u32::from_str_radix(hex, 16).ok())
        };
        let (sign, length) = match byte {
            b'%' => (hex(at + 1, 2), 3),
            b'\\' if bytes.get(at + 1) == Some(&b'u') => (hex(at + 2, 4), 6),
            b'+' => (Some(u32::from(b' ')), 1),
            _ => (None, 1),
        };
        match (sign.and_then(|sign| u8::try_from(sign).ok()), sign) {
            (Some(byte), _) => read.push(byte),
            (None, Some(sign)) => read.extend(char::from_u32(sign).unwrap_or('\u{fffd}').to_string().bytes()),
            (None, None) => {
                read.push(*byte);
                at += 1;
                continue;
            }
        }
        at += length;
    }
    let read = String::from_utf8_lossy(&read).into_owned();
    (read != text).then_some(read)
}

/// The first word of a text, or an empty string.
fn first_word(text: &str) -> String {
    let text = text.trim_start_matches(|sign: char| !sign.is_ascii_alphanumeric() && sign != '$');
    text.chars().take_while(char::is_ascii_alphanumeric).collect::<String>().to_ascii_uppercase()
}
