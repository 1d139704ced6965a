//! Masks secrets in log lines, error details and stored copies of requests.
//!
//! Two mechanisms. Known secret values are masked wherever they occur: in any letter case, escaped for JSON or a URL,
//! in base64 and hex, whole or broken into lines, byte by byte as numbers, split over a list, and behind several
//! nested encodings (see [`decode`]). What looks like a credential (bearer tokens, JWTs, `password=…`, fields named
//! like secrets, user info of URLs, private keys) is masked by pattern. Masking too much is a nuisance, too little a
//! leak; still, ordinary words near these patterns stay. A reference such as `secret://smtp` is a name and stays
//! readable.

mod decode;
mod document;
mod encoded_word;
mod index;
mod name;
mod numbers;
mod pattern;
mod scanned_text;
mod spelling;
mod token;
mod view;

use crate::limits::{JSON_DEPTH_MAX, SECRET_MASK_BYTES_MIN};
use crate::secret::Secret;
use decode::Budget;
use index::ValueIndex;
use pattern::MaskSpan;
use serde_json::Value;
use spelling::{Backslashes, KnownSecret, UnbrokenText, has_escapes, widen};
use std::borrow::Cow;
use std::cmp::Reverse;
use zeroize::Zeroizing;

/// The replacement for masked text.
pub const REDACTED: &str = "[redacted]";

/// Masks known values and credential patterns.
#[derive(Clone)]
pub struct Redactor {
    needles: Vec<KnownSecret>,
    plain: ValueIndex,
    /// Values without line breaks and separators.
    bare: ValueIndex,
    /// Values in base64 and hex.
    encoded: ValueIndex,
    /// Numeric values.
    numbers: Zeroizing<Vec<f64>>,
}

/// Masks by pattern only.
impl Default for Redactor {
    fn default() -> Self {
        let (needles, numbers) = (Vec::new(), Zeroizing::default());
        Self {
            needles,
            plain: ValueIndex::ignoring_case(),
            bare: ValueIndex::ignoring_case(),
            encoded: ValueIndex::default(),
            numbers,
        }
    }
}

impl Redactor {
    /// Masks by pattern, and these values.
    #[must_use]
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a Secret>) -> Self {
        let mut redactor = Self::default();
        secrets.into_iter().for_each(|secret| redactor.add_secret(secret));
        redactor
    }

    /// Adds a known value. If it is a URL, the secrets in it are added too.
    pub fn add_secret(&mut self, secret: &Secret) {
        match secret.expose_text().map(str::trim) {
            Some(text) => {
                self.add_text(text);
                self.add_url_secrets(text);
            }
            None => self.add_bytes(secret.expose()),
        }
    }

    /// Adds the secrets of a URL: its password, and parameters named like secrets.
    pub fn add_url_secrets(&mut self, url: &str) {
        for spelled in pattern::secrets_of_url(url) {
            self.add_text(spelled);
            if let Some(meant) = percent_decoded(spelled) {
                self.add_text(&meant);
            }
        }
    }

    /// Very short values are left to the patterns.
    fn add_text(&mut self, plain: &str) {
        if pattern::is_harmless(plain) {
            return;
        }
        self.add_bytes(plain.as_bytes());
        if plain.len() < SECRET_MASK_BYTES_MIN {
            return;
        }
        // Non-ASCII letters have an upper and lower case too.
        for other in [plain.to_uppercase(), plain.to_lowercase()].map(Zeroizing::new) {
            if !other.eq_ignore_ascii_case(plain) {
                self.plain.add(other.as_bytes());
            }
        }
        if plain.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
            self.numbers.extend(plain.parse::<f64>());
        }
    }

    fn add_bytes(&mut self, plain: &[u8]) {
        if plain.len() >= SECRET_MASK_BYTES_MIN && !self.needles.iter().any(|known| known.is(plain)) {
            let needle = KnownSecret::of(plain);
            self.plain.add(plain);
            needle.bare().into_iter().for_each(|bare| self.bare.add(bare));
            needle.encoded().into_iter().for_each(|encoded| self.encoded.add_form(encoded));
            self.needles.push(needle);
        }
    }

    /// `text` with known values masked, without patterns. Borrowed if there are none.
    #[must_use]
    pub fn mask_values<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.mask_values_within(text, &Budget::default())
    }

    fn mask_values_within<'a>(&self, text: &'a str, budget: &Budget) -> Cow<'a, str> {
        let spans = self.find_values(text, budget);
        if spans.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(apply_masks(text, spans)) }
    }

    /// Masks known values in a document in place, without patterns: in its strings, names and numbers, and where
    /// several parts spell one together.
    pub fn mask_document_values(&self, document: &mut Value) {
        if !self.needles.is_empty() {
            document::mask(self, document);
        }
    }

    /// Whether a known value is this number.
    fn is_number(&self, number: f64) -> bool {
        self.numbers.iter().any(|known| known.to_bits() == number.to_bits())
    }

    /// Finds the known values.
    fn find_values(&self, text: &str, budget: &Budget) -> Vec<MaskSpan> {
        let mut spans = Vec::new();
        // No encoding is shorter than the value.
        let shortest = self.plain.shortest().into_iter().chain(self.bare.shortest()).min();
        if shortest.is_none_or(|shortest| text.len() < shortest) {
            return spans;
        }
        let bytes = text.as_bytes();
        self.encoded.for_each_match(bytes, |range, found| spans.push(widen(bytes, range, found.shares).into()));
        if let Some(joined) = UnbrokenText::of(text) {
            let bytes = joined.text.as_bytes();
            let mut place = |range| spans.extend(joined.place(range).map(MaskSpan::from));
            self.encoded.for_each_match(bytes, |range, found| place(widen(bytes, range, found.shares)));
            self.bare.for_each_match(bytes, |range, _| place(range));
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
    pub fn is_secret_name(name: &str) -> bool {
        name::is_secret(name)
    }

    /// `text` with secrets masked. Borrowed if there are none.
    #[must_use]
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut spans = self.find_values(text, &Budget::default());
        pattern::find(text, &mut spans);
        if spans.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(apply_masks(text, spans)) }
    }

    /// Masks a document in place: whole values of fields that are named like secrets, and secrets in every other string
    /// and field name.
    pub fn json(&self, value: &mut Value) {
        self.mask_json_at(value, 0);
        self.mask_document_values(value);
    }

    /// Masks secrets in the strings of a document in place. Names decide nothing, so ids and counts stay, whatever their
    /// fields are called.
    pub fn strings(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Cow::Owned(masked) = self.text(text) {
                    *text = masked;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.strings(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.strings(field)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Whether a document contains a mask, or the text of one. Every document that masking changed does.
    #[must_use]
    pub fn is_masked(value: &Value) -> bool {
        match value {
            Value::String(text) => text.contains(REDACTED),
            Value::Array(items) => items.iter().any(Self::is_masked),
            Value::Object(fields) => {
                fields.iter().any(|(name, field)| name.contains(REDACTED) || Self::is_masked(field))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }

    fn mask_json_at(&self, value: &mut Value, depth: usize) {
        match value {
            Value::String(text) => {
                if let Cow::Owned(masked) = self.text(text) {
                    *text = masked;
                }
            }
            // Deeper than any accepted document: mask it rather than skip it.
            Value::Array(_) | Value::Object(_) if depth >= JSON_DEPTH_MAX => *value = REDACTED.into(),
            Value::Array(items) => items.iter_mut().for_each(|item| self.mask_json_at(item, depth + 1)),
            Value::Object(fields) => {
                for (name, field) in fields.iter_mut() {
                    if Self::is_secret_name(name) && has_secret_value(field) {
                        *field = REDACTED.into();
                    } else {
                        self.mask_json_at(field, depth + 1);
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
fn has_secret_value(field: &Value) -> bool {
    match field {
        Value::Null | Value::Bool(_) => false,
        Value::String(text) => !pattern::is_harmless(text),
        Value::Number(_) => true,
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

fn apply_masks(text: &str, mut spans: Vec<MaskSpan>) -> String {
    // Of two spans that begin together, the longer one determines the quoting of the mask.
    spans.sort_by_key(|span| (span.range.start, Reverse(span.range.end)));
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for MaskSpan { range, quote } in spans {
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
