//! Walks the inputs of a plan and scans every text, including nested encodings.
//!
//! A finding inside an encoded text is reported at the text that contains it. Bounded three ways: document depth,
//! nested encodings, decoded bytes per plan. Anything beyond counts as unreadable, so that one more encoding never
//! lowers a score.

use super::factor_set::FactorSet;
use super::text::{self, ValueHint};
use super::{Factor, ScoreBuilder, decode};
use crate::limits::{
    JSON_DEPTH_MAX, RISK_COMMAND_ITEMS_MAX, RISK_DECODED_BYTES_MAX, RISK_HUGE_INPUT_BYTES, RISK_LARGE_INPUT_BYTES,
    RISK_LAYERS_MAX, RISK_NAME_BYTES_MAX,
};
use serde_json::{Number, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Size of a value that is not a string.
const PLAIN_BYTES: usize = 8;
/// A name with more digits could be personal.
const NAME_DIGITS_MAX: usize = 5;
/// Smaller integers are too short to be personal.
const NUMBER_FROM: u64 = 1_000_000;

/// A segment of a JSON Pointer.
#[derive(Clone, Copy)]
enum PathSegment<'v> {
    Name(&'v str),
    Index(usize),
}

/// Where a value is: the input that contains it, and the way from there.
struct InputPath<'v> {
    /// The JSON Pointer of the input.
    input: &'v str,
    segments: Vec<PathSegment<'v>>,
}

impl InputPath<'_> {
    /// The pointer to the value, ending before the first name that could be personal.
    fn pointer(&self) -> String {
        let mut pointer = self.input.to_owned();
        for segment in &self.segments {
            match segment {
                PathSegment::Index(index) => {
                    // Writing to a `String` cannot fail.
                    let _ = write!(pointer, "/{index}");
                }
                PathSegment::Name(name) if is_plain(name) => {
                    pointer.push('/');
                    pointer.push_str(name);
                }
                PathSegment::Name(_) => break,
            }
        }
        pointer
    }
}

/// The state of walking the inputs of one plan.
pub(super) struct InputScanner<'p> {
    /// Step index by id.
    ids: BTreeMap<&'p str, usize>,
    /// Index of the current step.
    step: usize,
    /// Earlier steps whose outputs the current one uses.
    sources: BTreeSet<usize>,
    /// Remaining decode budget in bytes.
    decode_bytes_left: usize,
    /// Size of the input so far.
    bytes: usize,
}

impl<'p> InputScanner<'p> {
    pub(super) fn new(ids: impl Iterator<Item = &'p str>) -> Self {
        let ids = ids.enumerate().map(|(index, id)| (id, index)).collect();
        Self { ids, step: 0, sources: BTreeSet::new(), decode_bytes_left: RISK_DECODED_BYTES_MAX, bytes: 0 }
    }

    /// Number of earlier steps that the last input uses.
    pub(super) fn sources(&self) -> usize {
        self.sources.len()
    }

    /// Scans the input of one step.
    pub(super) fn scan_input(&mut self, step: usize, input: &Value, at: &str, tally: &mut ScoreBuilder) {
        self.step = step;
        self.sources.clear();
        self.bytes = 0;
        let mut path = InputPath { input: at, segments: Vec::new() };
        self.value(input, ValueHint::None, &mut path, tally);
        if self.bytes > RISK_HUGE_INPUT_BYTES {
            tally.add(Factor::HugeInput, || at.to_owned());
        } else if self.bytes > RISK_LARGE_INPUT_BYTES {
            tally.add(Factor::LargeInput, || at.to_owned());
        }
    }

    fn value<'v>(&mut self, value: &'v Value, hint: ValueHint, path: &mut InputPath<'v>, tally: &mut ScoreBuilder) {
        let mut found = FactorSet::default();
        match value {
            Value::String(text) => {
                self.bytes += text.len();
                found = self.text(text, hint, 0);
                self.record_sources(text, &mut found);
            }
            Value::Number(number) => {
                self.bytes += PLAIN_BYTES;
                found = scan_number(number, hint);
            }
            Value::Null | Value::Bool(_) => self.bytes += PLAIN_BYTES,
            Value::Array(_) | Value::Object(_) if path.segments.len() >= JSON_DEPTH_MAX => found.add(Factor::Unread),
            Value::Array(items) => {
                found = scan_command(items);
                for (index, item) in items.iter().enumerate() {
                    path.segments.push(PathSegment::Index(index));
                    self.value(item, hint, path, tally);
                    path.segments.pop();
                }
            }
            Value::Object(members) => {
                for (name, member) in members {
                    path.segments.push(PathSegment::Name(name));
                    self.bytes += name.len();
                    add_reasons(self.name(name, member, 0), path, tally);
                    self.value(member, ValueHint::of(name), path, tally);
                    path.segments.pop();
                }
            }
        }
        add_reasons(found, path, tally);
    }

    /// Scans a member name: it may itself be an operation or an address. A member that is null or false is not an
    /// operation.
    fn name(&mut self, name: &str, member: &Value, layer: usize) -> FactorSet {
        let found = self.text(name, ValueHint::Name, layer);
        if matches!(member, Value::Null | Value::Bool(false)) { found.without_destructive() } else { found }
    }

    /// Scans a text and whatever is encoded in it.
    fn text(&mut self, text: &str, hint: ValueHint, layer: usize) -> FactorSet {
        let mut found = FactorSet::default();
        let marks = text::scan(text, hint, &mut found);
        if marks.percent {
            self.scan_decoded(decode::percent_decode(text), hint, layer, &mut found);
        }
        if !text.is_ascii() {
            self.scan_decoded(decode::remove_disguise(text), hint, layer, &mut found);
        }
        if marks.escape {
            self.scan_decoded(decode::unescape(text), hint, layer, &mut found);
        }
        if text.trim_ascii_start().starts_with(['{', '[', '"']) {
            self.scan_document(text, hint, layer, &mut found);
        }
        if marks.opaque {
            for run in decode::encoded_runs(text) {
                self.scan_decoded(decode::base64(run), hint, layer, &mut found);
                self.scan_decoded(decode::hex(run), hint, layer, &mut found);
            }
        }
        found
    }

    /// Scans a decoded text, if there is one.
    fn scan_decoded(&mut self, decoded: Option<String>, hint: ValueHint, layer: usize, found: &mut FactorSet) {
        let Some(meant) = decoded else { return };
        if layer >= RISK_LAYERS_MAX || meant.len() > self.decode_bytes_left {
            return found.add(Factor::Unread);
        }
        self.decode_bytes_left -= meant.len();
        found.merge(self.text(&meant, hint, layer + 1));
    }

    /// Scans a JSON document inside a text.
    fn scan_document(&mut self, text: &str, hint: ValueHint, layer: usize, found: &mut FactorSet) {
        if text.len() > self.decode_bytes_left {
            return found.add(Factor::Unread);
        }
        let Ok(document) = serde_json::from_str::<Value>(text) else { return };
        if layer >= RISK_LAYERS_MAX {
            return found.add(Factor::Unread);
        }
        self.decode_bytes_left -= text.len();
        self.scan_nested_value(&document, hint, layer + 1, found);
    }

    fn scan_nested_value(&mut self, value: &Value, hint: ValueHint, layer: usize, found: &mut FactorSet) {
        match value {
            Value::String(text) => found.merge(self.text(text, hint, layer)),
            Value::Number(number) => found.merge(scan_number(number, hint)),
            Value::Null | Value::Bool(_) => {}
            Value::Array(items) => {
                found.merge(scan_command(items));
                items.iter().for_each(|item| self.scan_nested_value(item, hint, layer, found));
            }
            Value::Object(members) => {
                for (name, member) in members {
                    found.merge(self.name(name, member, layer));
                    self.scan_nested_value(member, ValueHint::of(name), layer, found);
                }
            }
        }
    }

    /// Records references to the outputs of earlier steps.
    fn record_sources(&mut self, text: &str, found: &mut FactorSet) {
        if self.step == 0 || !text.contains("${") {
            return;
        }
        for (start, _) in text.match_indices("nodes") {
            let rest = text[start + "nodes".len()..].trim_start_matches(['.', '[', '"', '\'']);
            let end = rest.bytes().position(|b| !(b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-')));
            let source = self.ids.get(&rest[..end.unwrap_or(rest.len())]);
            if let Some(source) = source.filter(|source| **source < self.step) {
                self.sources.insert(*source);
                found.add(Factor::DataFlow);
            }
        }
    }
}

/// Scans an integer as its digits.
fn scan_number(number: &Number, hint: ValueHint) -> FactorSet {
    let mut found = FactorSet::default();
    if number.as_u64().is_some_and(|number| number >= NUMBER_FROM) {
        text::scan(&number.to_string(), hint, &mut found);
    }
    found
}

/// Scans a list of strings as one command: `["rm", "-rf", "/"]`.
fn scan_command(items: &[Value]) -> FactorSet {
    let mut found = FactorSet::default();
    if !(2..=RISK_COMMAND_ITEMS_MAX).contains(&items.len()) || !items.iter().all(Value::is_string) {
        return found;
    }
    let words: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
    let mut all = FactorSet::default();
    text::scan(&words.join(" "), ValueHint::None, &mut all);
    if all.has(Factor::DestructiveOperation) {
        found.add(Factor::DestructiveOperation);
    }
    found
}

/// Adds one reason per factor. A destructive word is part of the operation it belongs to.
fn add_reasons(found: FactorSet, path: &InputPath<'_>, tally: &mut ScoreBuilder) {
    let is_part = |factor: &Factor| *factor == Factor::DestructiveWord && found.has(Factor::DestructiveOperation);
    for factor in found.factors().filter(|factor| !is_part(factor)) {
        tally.add(factor, || path.pointer());
    }
}

/// Whether a member name may be shown. Such names need no escaping in a pointer.
fn is_plain(name: &str) -> bool {
    let digits = name.bytes().filter(u8::is_ascii_digit).count();
    let spelled = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'$'));
    !name.is_empty() && name.len() <= RISK_NAME_BYTES_MAX && digits <= NAME_DIGITS_MAX && spelled
}
