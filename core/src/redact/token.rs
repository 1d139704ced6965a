//! Tokens that their makers let everybody recognise: each begins with letters of its own.
//!
//! Under whatever name one stands, it is masked. The rest must be as long as the maker's, so that ordinary words that begin
//! alike stay.

use super::source::Source;
use std::ops::Range;

/// How a kind of token is written.
struct Shape {
    begins: &'static [u8],
    /// Characters behind that, at the least.
    more: usize,
    /// Which characters, besides letters and digits.
    marks: &'static [u8],
    /// Only capitals and digits.
    capitals: bool,
}

const fn shape(begins: &'static str, more: usize, marks: &'static str) -> Shape {
    Shape { begins: begins.as_bytes(), more, marks: marks.as_bytes(), capitals: false }
}

const fn capitals(begins: &'static str, more: usize) -> Shape {
    Shape { begins: begins.as_bytes(), more, marks: b"", capitals: true }
}

/// AWS, GitHub, Slack, Stripe, Google, GitLab, OpenAI and Anthropic, npm, Hugging Face, SendGrid, Shopify, DigitalOcean.
const SHAPES: [Shape; 27] = [
    capitals("AKIA", 16),
    capitals("ASIA", 16),
    shape("ghp_", 30, ""),
    shape("gho_", 30, ""),
    shape("ghu_", 30, ""),
    shape("ghs_", 30, ""),
    shape("ghr_", 30, ""),
    shape("github_pat_", 22, "_"),
    shape("xoxa-", 16, "-"),
    shape("xoxb-", 16, "-"),
    shape("xoxe-", 16, "-"),
    shape("xoxp-", 16, "-"),
    shape("xoxr-", 16, "-"),
    shape("xoxs-", 16, "-"),
    shape("xapp-", 16, "-"),
    shape("sk_live_", 16, ""),
    shape("sk_test_", 16, ""),
    shape("rk_live_", 16, ""),
    shape("rk_test_", 16, ""),
    shape("AIza", 30, "-_"),
    shape("glpat-", 16, "-_."),
    shape("sk-", 32, "-_"),
    shape("npm_", 30, ""),
    shape("hf_", 30, ""),
    shape("SG.", 32, "-_."),
    shape("shpat_", 30, ""),
    shape("dop_v1_", 32, ""),
];

/// For each byte whether a token begins with it.
static FIRST: [bool; 256] = {
    let (mut first, mut shape) = ([false; 256], 0);
    while shape < SHAPES.len() {
        first[SHAPES[shape].begins[0] as usize] = true;
        shape += 1;
    }
    first
};

/// What was seen of a text: for each shape, before which place no token of it begins.
#[derive(Default)]
pub(super) struct Seen {
    none_before: [usize; SHAPES.len()],
}

/// The token that begins at a byte, if one does.
pub(super) fn known(source: Source<'_>, at: usize, seen: &mut Seen) -> Option<Range<usize>> {
    if !FIRST[usize::from(source.byte(at)?)] || !source.begins_word(at) {
        return None;
    }
    let (shape, none_before) =
        SHAPES.iter().zip(&mut seen.none_before).find(|(shape, _)| source.has(at, shape.begins))?;
    if at < *none_before {
        return None;
    }
    let start = at + shape.begins.len();
    let letter = |b: u8| if shape.capitals { b.is_ascii_uppercase() } else { b.is_ascii_alphabetic() };
    let end = source.run(start, |b| letter(b) || b.is_ascii_digit() || shape.marks.contains(&b));
    // What begins within this is a part of it: shorter, and with no digit that this has not.
    *none_before = end;
    let more = source.bytes(start..end);
    // A whole word of a language has no digits.
    let drawn = more.iter().any(u8::is_ascii_digit);
    (more.len() >= shape.more && drawn).then_some(at..end)
}

/// What tokens begin with, for tests that repeat it.
#[cfg(test)]
pub(super) fn parts() -> Vec<&'static str> {
    SHAPES.iter().filter_map(|shape| std::str::from_utf8(shape.begins).ok()).collect()
}

/// What one token of each alphabet begins with.
#[cfg(test)]
pub(super) fn alphabets() -> Vec<&'static str> {
    let by_alphabet: std::collections::BTreeMap<_, _> =
        SHAPES.iter().zip(parts()).map(|(shape, begins)| ((shape.marks, shape.capitals), begins)).collect();
    by_alphabet.into_values().collect()
}
