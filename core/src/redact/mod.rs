//! Masks secrets in log lines, error details and stored copies of requests.
//!
//! Two mechanisms. Known secret values are masked wherever they occur: in any letter case, escaped for JSON or a URL,
//! in base64 and hex, whole or broken into lines, byte by byte as numbers, split over a list, and behind several
//! nested encodings (see [`decode`]). What looks like a credential (bearer tokens, JWTs, `password=…`, fields named
//! like secrets, user info of URLs, private keys) is masked by pattern. Masking too much is a nuisance, too little a
//! leak; still, ordinary words near these patterns stay. A reference such as `secret://smtp` is a name and stays
//! readable.

mod block;
mod decode;
mod document;
mod index;
mod name;
mod numbers;
mod pattern;
mod source;
mod spelling;
mod token;
mod view;

use crate::limits::{JSON_DEPTH_MAX, SECRET_MASK_BYTES_MIN};
use crate::secret::Secret;
use decode::Budget;
use index::Index;
use pattern::Span;
use serde_json::Value;
use spelling::{Backslashes, Joined, Needle, has_escapes, widened};
use std::borrow::Cow;
use std::cmp::Reverse;
use zeroize::Zeroizing;

/// The replacement for masked text.
pub const REDACTED: &str = "[redacted]";

/// Masks known values and credential patterns.
#[derive(Clone)]
pub struct Redactor {
    needles: Vec<Needle>,
    plain: Index,
    /// Values without line breaks and separators.
    bare: Index,
    /// Values in base64 and hex.
    encoded: Index,
    /// Numeric values.
    numbers: Zeroizing<Vec<f64>>,
}

/// Masks by pattern only.
impl Default for Redactor {
    fn default() -> Self {
        let (needles, numbers) = (Vec::new(), Zeroizing::default());
        Self { needles, plain: Index::folded(), bare: Index::folded(), encoded: Index::default(), numbers }
    }
}

impl Redactor {
    /// Masks by pattern, and these values.
    #[must_use]
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a Secret>) -> Self {
        let mut redactor = Self::default();
        secrets.into_iter().for_each(|secret| redactor.learn(secret));
        redactor
    }

    /// Adds a known value. If it is a URL, the secrets in it are added too.
    pub fn learn(&mut self, secret: &Secret) {
        match secret.expose_text().map(str::trim) {
            Some(text) => {
                self.learn_text(text);
                self.learn_url(text);
            }
            None => self.learn_bytes(secret.expose()),
        }
    }

    /// Adds the secrets of a URL: its password, and parameters named like secrets.
    pub fn learn_url(&mut self, url: &str) {
        for spelled in pattern::secrets_of_url(url) {
            self.learn_text(spelled);
            if let Some(meant) = percent_decoded(spelled) {
                self.learn_text(&meant);
            }
        }
    }

    /// Very short values are left to the patterns.
    fn learn_text(&mut self, plain: &str) {
        if pattern::is_harmless(plain) {
            return;
        }
        self.learn_bytes(plain.as_bytes());
        if plain.len() < SECRET_MASK_BYTES_MIN {
            return;
        }
        // Non-ASCII letters have an upper and lower case too.
        for other in [plain.to_uppercase(), plain.to_lowercase()].map(Zeroizing::new) {
            if !other.eq_ignore_ascii_case(plain) {
                self.plain.learn(other.as_bytes());
            }
        }
        if plain.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
            self.numbers.extend(plain.parse::<f64>());
        }
    }

    fn learn_bytes(&mut self, plain: &[u8]) {
        if plain.len() >= SECRET_MASK_BYTES_MIN && !self.needles.iter().any(|known| known.is(plain)) {
            let needle = Needle::of(plain);
            self.plain.learn(plain);
            needle.bare().into_iter().for_each(|bare| self.bare.learn(bare));
            needle.encoded().into_iter().for_each(|encoded| self.encoded.learn_as(encoded));
            self.needles.push(needle);
        }
    }

    /// `text` with known values masked, without patterns. Borrowed if there are none.
    #[must_use]
    pub fn values<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.values_within(text, &Budget::default())
    }

    fn values_within<'a>(&self, text: &'a str, budget: &Budget) -> Cow<'a, str> {
        let spans = self.found(text, budget);
        if spans.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(masked(text, spans)) }
    }

    /// Masks known values in a document in place, without patterns: in its strings, names and numbers, and where
    /// several parts spell one together.
    pub fn values_of(&self, document: &mut Value) {
        if !self.needles.is_empty() {
            document::mask(self, document);
        }
    }

    /// Whether a known value is this number.
    fn is_number(&self, number: f64) -> bool {
        self.numbers.iter().any(|known| known.to_bits() == number.to_bits())
    }

    /// Finds the known values.
    fn found(&self, text: &str, budget: &Budget) -> Vec<Span> {
        let mut spans = Vec::new();
        // No encoding is shorter than the value.
        let shortest = self.plain.shortest().into_iter().chain(self.bare.shortest()).min();
        if shortest.is_none_or(|shortest| text.len() < shortest) {
            return spans;
        }
        let bytes = text.as_bytes();
        self.encoded.each_in(bytes, |range, found| spans.push(widened(bytes, range, found.shares).into()));
        if let Some(joined) = Joined::of(text) {
            let bytes = joined.text.as_bytes();
            let mut place = |range| spans.extend(joined.place(range).map(Span::from));
            self.encoded.each_in(bytes, |range, found| place(widened(bytes, range, found.shares)));
            self.bare.each_in(bytes, |range, _| place(range));
        }
        if has_escapes(text) {
            let backslashes = Backslashes::of(text);
            self.needles.iter().for_each(|needle| needle.find_escaped(text, &backslashes, &mut spans));
        }
        decode::find(text, (&self.plain, &self.bare), budget, &mut spans);
        spans
    }

    /// Whether a field of this name is masked as a whole.
    #[must_use]
    pub fn hides(name: &str) -> bool {
        name::is_secret(name)
    }

    /// `text` with secrets masked. Borrowed if there are none.
    #[must_use]
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut spans = self.found(text, &Budget::default());
        pattern::find(text, &mut spans);
        if spans.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(masked(text, spans)) }
    }

    /// Masks a document in place: whole values of fields that are named like secrets, and secrets in every other string
    /// and field name.
    pub fn json(&self, value: &mut Value) {
        self.json_at(value, 0);
        self.values_of(value);
    }

    fn json_at(&self, value: &mut Value, depth: usize) {
        match value {
            Value::String(text) => {
                if let Cow::Owned(masked) = self.text(text) {
                    *text = masked;
                }
            }
            // Deeper than any accepted document: mask it rather than skip it.
            Value::Array(_) | Value::Object(_) if depth >= JSON_DEPTH_MAX => *value = REDACTED.into(),
            Value::Array(items) => items.iter_mut().for_each(|item| self.json_at(item, depth + 1)),
            Value::Object(fields) => {
                for (name, field) in fields.iter_mut() {
                    if Self::hides(name) && is_worth_hiding(field) {
                        *field = REDACTED.into();
                    } else {
                        self.json_at(field, depth + 1);
                    }
                }
                if fields.keys().any(|name| matches!(self.text(name), Cow::Owned(_))) {
                    let renamed = std::mem::take(fields).into_iter();
                    *fields = renamed.map(|(name, field)| (self.text(&name).into_owned(), field)).collect();
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redactor").field("needles", &self.needles.len()).finish()
    }
}

/// Whether a field that is named like a secret has a value worth masking.
fn is_worth_hiding(field: &Value) -> bool {
    match field {
        Value::Null | Value::Bool(_) => false,
        Value::String(text) => !pattern::is_harmless(text),
        Value::Number(_) => true,
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

fn masked(text: &str, mut spans: Vec<Span>) -> String {
    // Of two spans that begin together, the longer one determines the quoting of the mask.
    spans.sort_by_key(|span| (span.range.start, Reverse(span.range.end)));
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for Span { range, quote } in spans {
        if range.start >= done {
            out.push_str(&text[done..range.start]);
            [&text[quote.clone()], REDACTED, &text[quote]].iter().for_each(|part| out.push_str(part));
        }
        done = done.max(range.end);
    }
    out.push_str(&text[done..]);
    out
}

/// Percent-decodes a text, or none if the result is not text.
fn percent_decoded(text: &str) -> Option<Zeroizing<String>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, tail @ ..] = rest {
        let digits = tail.get(..2).filter(|_| *byte == b'%').and_then(|pair| hex::decode(pair).ok());
        rest = if digits.is_some() { &tail[2..] } else { tail };
        bytes.push(digits.map_or(*byte, |decoded| decoded[0]));
    }
    String::from_utf8(bytes).ok().map(Zeroizing::new)
}

#[cfg(test)]
mod encoded_tests;
#[cfg(test)]
mod linear_tests;
#[cfg(test)]
mod tests;
