//! Values within a document: in its texts, in its numbers, and in what its parts spell together.
//!
//! A program that repeats a text may write it as a list of its bytes, of its letters or of pieces, or as a number. So the
//! parts of a document are also read one after the other: the pieces without anything between them, the numbers as bytes.

use super::decode::Budget;
use super::view::View;
use super::{REDACTED, Redactor, numbers};
use serde_json::Value;
use std::borrow::Cow;
use std::ops::Range;

/// A text that is longer is no piece.
const PIECE_BYTES_MAX: usize = 256;
/// A text that is longer is no number: `"0x73"`.
const NUMBER_BYTES_MAX: usize = 8;
/// Stands where something else than a piece does. No value has it.
const NO_PIECE: char = '\0';
/// Two pieces that are a short value together may be anybody's words.
const PIECES_MIN: usize = 3;
const PIECES_BYTES_MIN: usize = 12;

pub(super) fn mask(redactor: &Redactor, value: &mut Value) {
    mask_each(redactor, value, &Budget::default());
    let mut spelled = redactor.spelled(value);
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

/// Masks each text, name and number alone.
fn mask_each(redactor: &Redactor, value: &mut Value, budget: &Budget) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(masked) = redactor.values_within(text, budget) {
                *text = masked;
            }
        }
        Value::Number(number) => {
            let same = number.as_f64().is_some_and(|number| redactor.is_number(number));
            if same || matches!(redactor.values_within(&number.to_string(), budget), Cow::Owned(_)) {
                *value = REDACTED.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| mask_each(redactor, item, budget)),
        Value::Object(members) => {
            members.values_mut().for_each(|member| mask_each(redactor, member, budget));
            if members.keys().any(|name| matches!(redactor.values_within(name, budget), Cow::Owned(_))) {
                let renamed = std::mem::take(members).into_iter();
                let masked = |name: String| redactor.values_within(&name, budget).into_owned();
                *members = renamed.map(|(name, member)| (masked(name), member)).collect();
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

/// Visits every part that has no parts, in order. One of which the visitor says so is dropped if it stands in a list.
fn walk(value: &mut Value, visit: &mut impl FnMut(&mut Value) -> bool) -> bool {
    match value {
        Value::Array(items) => items.retain_mut(|item| !walk(item, visit)),
        Value::Object(members) => {
            // A list of bytes becomes an object in some languages, with the places as names.
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

/// The parts of a document one after the other, and where each begins.
#[derive(Default)]
struct Spelled {
    text: String,
    begins: Vec<usize>,
}

impl Spelled {
    fn push(&mut self, part: Option<&str>, behind: &str) {
        self.begins.push(self.text.len());
        match part {
            Some(part) => self.text.push_str(part),
            None => self.text.push(NO_PIECE),
        }
        self.text.push_str(behind);
    }

    /// The parts that spell a range, if they are several.
    fn parts(&self, range: &Range<usize>) -> Option<Range<usize>> {
        let of = |at: usize| self.begins.partition_point(|begin| *begin <= at).checked_sub(1);
        let (first, last) = (of(range.start)?, of(range.end.checked_sub(1)?)?);
        (first < last).then_some(first..last + 1)
    }
}

impl Redactor {
    /// Which parts of a document spell values together.
    fn spelled(&self, value: &mut Value) -> Vec<Range<usize>> {
        let (mut pieces, mut listed) = (Spelled::default(), Spelled::default());
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
        self.plain.each_in(pieces.text.as_bytes(), |range, _| pieced(range));
        self.encoded.each_in(pieces.text.as_bytes(), |range, _| pieced(range));
        numbers::each(&View::of(&listed.text), |view| {
            self.plain.each_in(&view.bytes, |range, _| {
                found.extend(listed.parts(&view.span(&range, &listed.text).range));
            });
        });
        found
    }
}
