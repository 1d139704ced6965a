//! Vendor tokens with a recognizable prefix.
//!
//! They are masked in any context. The rest must be as long as in real tokens, so that ordinary words with the same
//! prefix stay.

use super::scanned_text::ScannedText;
use std::ops::Range;

/// The format of a vendor's tokens.
struct TokenFormat {
    begins: &'static [u8],
    /// Minimum number of characters after the prefix.
    more: usize,
    /// Allowed characters besides letters and digits.
    marks: &'static [u8],
    /// Only capitals and digits.
    capitals: bool,
}

const fn shape(begins: &'static str, more: usize, marks: &'static str) -> TokenFormat {
    TokenFormat { begins: begins.as_bytes(), more, marks: marks.as_bytes(), capitals: false }
}

const fn capitals(begins: &'static str, more: usize) -> TokenFormat {
    TokenFormat { begins: begins.as_bytes(), more, marks: b"", capitals: true }
}

/// AWS, GitHub, Slack, Stripe, Google, GitLab, OpenAI and Anthropic, npm, Hugging Face, SendGrid, Shopify, DigitalOcean.
const SHAPES: [TokenFormat; 27] = [
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

/// Whether a token begins with a byte.
static FIRST: [bool; 256] = {
    let (mut first, mut shape) = ([false; 256], 0);
    while shape < SHAPES.len() {
        first[SHAPES[shape].begins[0] as usize] = true;
        shape += 1;
    }
    first
};

/// Scan state: per format, the position before which no token begins.
#[derive(Default)]
pub(super) struct TokenScanState {
    none_before: [usize; SHAPES.len()],
}

/// The token that begins at `at`, if any.
pub(super) fn find_token(source: ScannedText<'_>, at: usize, seen: &mut TokenScanState) -> Option<Range<usize>> {
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
    // A candidate inside this one is shorter and has no other digits.
    *none_before = end;
    let more = source.bytes(start..end);
    // Ordinary words have no digits.
    let drawn = more.iter().any(u8::is_ascii_digit);
    (more.len() >= shape.more && drawn).then_some(at..end)
}

/// Token prefixes, for tests that repeat them.
#[cfg(test)]
pub(super) fn parts() -> Vec<&'static str> {
    SHAPES.iter().filter_map(|shape| std::str::from_utf8(shape.begins).ok()).collect()
}

/// One token prefix per alphabet.
#[cfg(test)]
pub(super) fn alphabets() -> Vec<&'static str> {
    let by_alphabet: std::collections::BTreeMap<_, _> =
        SHAPES.iter().zip(parts()).map(|(shape, begins)| ((shape.marks, shape.capitals), begins)).collect();
    by_alphabet.into_values().collect()
}
