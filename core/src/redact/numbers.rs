//! Bytes written as numbers: `115, 107`, `0x73 0x6b`, `73-6b`, and hex dumps.

use super::view::{DecodedView, ViewBuilder};
use crate::limits::SECRET_MASK_BYTES_MIN;
use std::ops::Range;

/// Maximum bytes between two numbers, and how many of them may be other than white space.
const BETWEEN_BYTES_MAX: usize = 64;
const BETWEEN_MARKS_MAX: usize = 4;
/// Maximum characters of a number: `0x73`.
const NUMBER_CHARS_MAX: usize = 4;
/// Digits of the offset at the start of a dump line.
const OFFSET_DIGITS: std::ops::RangeInclusive<usize> = 4..=16;
/// Maximum digits of a group in a dump.
const GROUP_DIGITS_MAX: usize = 8;

/// Consecutive numbers in one notation.
#[derive(Default)]
struct NumberRun {
    bytes: Vec<u8>,
    places: Vec<Range<usize>>,
}

impl NumberRun {
    fn push(&mut self, byte: u8, place: Range<usize>) {
        self.bytes.push(byte);
        self.places.push(place);
    }

    fn end(&mut self, view: &DecodedView, each: &mut impl FnMut(DecodedView)) {
        if self.bytes.len() >= SECRET_MASK_BYTES_MIN {
            let mut made = ViewBuilder::with_capacity(self.bytes.len());
            for (byte, place) in self.bytes.iter().zip(&self.places) {
                made.push(&[*byte], view.place(place));
            }
            each(made.view(view.depth + 1));
        }
        self.bytes.clear();
        self.places.clear();
    }
}

/// Emits the bytes that numbers in a view stand for, decimal, hexadecimal and from hex dumps.
pub(super) fn decode_numbers(view: &DecodedView, mut each: impl FnMut(DecodedView)) {
    // Dumps come first, since they mask more than the numbers alone.
    decode_hex_dumps(view, &mut each);
    let bytes = &view.bytes;
    let (mut decimal, mut hex) = (NumberRun::default(), NumberRun::default());
    let (mut at, mut last) = (0, 0);
    while let Some(more) = bytes[at..].iter().position(u8::is_ascii_alphanumeric) {
        let start = at + more;
        at = start + bytes[start..].iter().take_while(|b| b.is_ascii_alphanumeric()).count();
        let (as_decimal, as_hex) = parse_byte(&bytes[start..at]);
        if as_decimal.is_none() && as_hex.is_none() && decimal.bytes.is_empty() && hex.bytes.is_empty() {
            continue;
        }
        let goes_on = is_separator(&bytes[last..start]);
        for (run, byte) in [(&mut decimal, as_decimal), (&mut hex, as_hex)] {
            if !goes_on || byte.is_none() {
                run.end(view, &mut each);
            }
            if let Some(byte) = byte {
                run.push(byte, start..at);
            }
        }
        last = at;
    }
    decimal.end(view, &mut each);
    hex.end(view, &mut each);
}

/// Parses a byte as a decimal and as a hexadecimal number.
fn parse_byte(word: &[u8]) -> (Option<u8>, Option<u8>) {
    if word.len() > NUMBER_CHARS_MAX {
        return (None, None);
    }
    let text = std::str::from_utf8(word).unwrap_or_default();
    let marked = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let decimal = if word.len() <= 3 { text.parse().ok() } else { None };
    let digits = marked.or_else(|| (word.len() == 2).then_some(text));
    (decimal, digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()))
}

fn is_separator(gap: &[u8]) -> bool {
    let is_mark = |b: &&u8| !b.is_ascii_whitespace();
    gap.len() <= BETWEEN_BYTES_MAX
        && gap.iter().all(|b| b.is_ascii_whitespace() || b",;:()[]{}|'\"-".contains(b))
        && gap.iter().filter(is_mark).count() <= BETWEEN_MARKS_MAX
}

/// Reads hex dumps. The text column after the bytes of a line is masked with each of them.
fn decode_hex_dumps(view: &DecodedView, each: &mut impl FnMut(DecodedView)) {
    let (mut run, mut start) = (NumberRun::default(), 0);
    for line in view.bytes.split(|b| *b == b'\n') {
        let before = run.bytes.len();
        dump_line(line, |byte, at| run.push(byte, start + at..start + line.len()));
        if run.bytes.len() == before {
            run.end(view, each);
        }
        start += line.len() + 1;
    }
    run.end(view, each);
}

/// The bytes of a dump line with their positions. Other text may precede the offset.
fn dump_line(line: &[u8], mut byte: impl FnMut(u8, usize)) {
    let mut at = 0;
    while let Some(more) = line[at..].iter().position(u8::is_ascii_alphanumeric) {
        let start = at + more;
        at = start + line[start..].iter().take_while(|b| b.is_ascii_alphanumeric()).count();
        let is_offset = OFFSET_DIGITS.contains(&(at - start)) && line[start..at].iter().all(u8::is_ascii_hexdigit);
        if is_offset && groups(line, at, &mut byte) {
            return;
        }
    }
}

/// Reads the groups of bytes after the offset. Returns false if there are none.
fn groups(line: &[u8], mut at: usize, byte: &mut impl FnMut(u8, usize)) -> bool {
    let hex_from = |at: usize| line[at..].iter().take_while(|b| b.is_ascii_hexdigit()).count();
    let blanks_from = |at: usize| line[at..].iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
    // With a colon only blanks separate the text column from the bytes.
    let colon = line.get(at) == Some(&b':');
    at += usize::from(colon);
    let (mut blanks, mut any) = (blanks_from(at), false);
    while blanks > 0 && (!any || blanks <= if colon { 1 } else { 2 }) {
        at += blanks;
        let digits = hex_from(at);
        let ends = line.get(at + digits).is_none_or(u8::is_ascii_whitespace);
        if digits == 0 || digits % 2 == 1 || digits > GROUP_DIGITS_MAX || !ends {
            break;
        }
        for pair in (at..at + digits).step_by(2) {
            let text = std::str::from_utf8(&line[pair..pair + 2]).unwrap_or_default();
            byte(u8::from_str_radix(text, 16).unwrap_or_default(), pair);
        }
        at += digits;
        any = true;
        blanks = blanks_from(at);
    }
    any
}
