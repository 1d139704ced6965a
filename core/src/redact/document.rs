//! Known values in a document: in its strings, in its numbers, and in what its parts spell together.
//!
//! A program may write a text as a list of bytes, of letters or of fragments, or as a number. The parts of a document
//! are therefore also concatenated: the fragments without separators, the numbers as bytes.

use super::decode::Budget;
use super::view::DecodedView;
use super::{REDACTED, Redactor, numbers};
use serde_json::Value;
use std::borrow::Cow;
use std::ops::Range;

/// A longer text is not a fragment.
const PIECE_BYTES_MAX: usize = 256;
/// A longer text is not a number: `"0x73"`.
const NUMBER_BYTES_MAX: usize = 8;
/// Stands for a part that is not a fragment. No value contains it.
const NO_PIECE: char = '\0';
/// Two fragments that form a short value may be ordinary words.
const PIECES_MIN: usize = 3;
const PIECES_BYTES_MIN: usize = 12;

pub(super) fn mask(redactor: &Redactor, value: &mut Value) {
    mask_each(redactor, value, &Budget::default());
    let mut spelled = find_spelled_values(redactor, value);
    if spelled.is_empty() {
        return;
    }
    spelled.sort_by_key(|range| (range.start, range.end));
    let (mut at, mut ranges) = (0, spelled.into_iter().peekable());
    walk(value, &mut |part| {
        while ranges.next_if(|range| range.end <= at).is_some() {}
        let inside = ranges.peek().filter(|range| range.contains(&at));
        let goes_on = inside.is_some_and(|range| range.start < at);
        if inside.is_some() {
            *part = REDACTED.into();
        }
        at += 1;
        goes_on
    });
}

/// Masks each string, name and number on its own.
fn mask_each(redactor: &Redactor, value: &mut Value, budget: &Budget) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(masked) = redactor.mask_values_within(text, budget) {
                *text = masked;
            }
        }
        Value::Number(number) => {
            let same = number.as_f64().is_some_and(|number| redactor.is_number(number));
            if same || matches!(redactor.mask_values_within(&number.to_string(), budget), Cow::Owned(_)) {
                *value = REDACTED.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| mask_each(redactor, item, budget)),
        Value::Object(members) => {
            members.values_mut().for_each(|member| mask_each(redactor, member, budget));
            if members.keys().any(|name| matches!(redactor.mask_values_within(name, budget), Cow::Owned(_))) {
                let renamed = std::mem::take(members).into_iter();
                let masked = |name: String| redactor.mask_values_within(&name, budget).into_owned();
                *members = renamed.map(|(name, member)| (masked(name), member)).collect();
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

/// Visits every scalar in order. If the visitor returns true, the scalar is removed from its list.
fn walk(value: &mut Value, visit: &mut impl FnMut(&mut Value) -> bool) -> bool {
    match value {
        Value::Array(items) => items.retain_mut(|item| !walk(item, visit)),
        Value::Object(members) => {
            // Some languages serialize a byte list as an object with indexes as names.
            let mut members: Vec<(&String, &mut Value)> = members.iter_mut().collect();
            if members.iter().all(|(name, _)| name.parse::<u32>().is_ok()) {
                members.sort_by_key(|(name, _)| name.parse::<u32>().unwrap_or_default());
            }
            members.into_iter().for_each(|(_, member)| {
                walk(member, visit);
            });
        }
        part => return visit(part),
    }
    false
}

/// The concatenated scalars of a document, and where each begins.
#[derive(Default)]
struct ConcatenatedScalars {
    text: String,
    begins: Vec<usize>,
}

impl ConcatenatedScalars {
    fn push(&mut self, part: Option<&str>, behind: &str) {
        self.begins.push(self.text.len());
        match part {
            Some(part) => self.text.push_str(part),
            None => self.text.push(NO_PIECE),
        }
        self.text.push_str(behind);
    }

    /// The parts that cover a range, if there are several.
    fn parts(&self, range: &Range<usize>) -> Option<Range<usize>> {
        let of = |at: usize| self.begins.partition_point(|begin| *begin <= at).checked_sub(1);
        let (first, last) = (of(range.start)?, of(range.end.checked_sub(1)?)?);
        (first < last).then_some(first..last + 1)
    }
}

/// Finds the parts of a document that spell a known value together.
fn find_spelled_values(redactor: &Redactor, value: &mut Value) -> Vec<Range<usize>> {
    let (mut pieces, mut listed) = (ConcatenatedScalars::default(), ConcatenatedScalars::default());
    walk(value, &mut |part| {
        let number = part.is_number().then(|| part.to_string());
        let text = number.as_deref().or_else(|| part.as_str());
        pieces.push(text.filter(|text| text.len() <= PIECE_BYTES_MAX), "");
        listed.push(text.filter(|text| text.len() <= NUMBER_BYTES_MAX), ",");
        false
    });
    let mut found = Vec::new();
    let mut pieced = |range: Range<usize>| {
        let long = range.len() >= PIECES_BYTES_MIN;
        found.extend(pieces.parts(&range).filter(|parts| long || parts.len() >= PIECES_MIN));
    };
    redactor.plain.for_each_match(pieces.text.as_bytes(), |range, _| pieced(range));
    redactor.encoded.for_each_match(pieces.text.as_bytes(), |range, _| pieced(range));
    numbers::decode_numbers(&DecodedView::of(&listed.text), |view| {
        redactor.plain.for_each_match(&view.bytes, |range, _| {
            found.extend(listed.parts(&view.span(&range, &listed.text).range));
        });
    });
    found
}
