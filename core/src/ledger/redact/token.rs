//! Tokens that their makers let everybody recognise: each begins with letters of its own.
//!
//! Under whatever name one stands, it is masked. The rest must be as long as the maker's, so that ordinary words that begin
//! alike stay.

use super::pattern::begins_word;
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

/// The token that begins at a byte, if one does.
pub(super) fn known(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    if !b"AghnrsSxd".contains(bytes.get(at)?) || !begins_word(bytes, at) {
        return None;
    }
    let shape = SHAPES.iter().find(|shape| bytes[at..].starts_with(shape.begins))?;
    let start = at + shape.begins.len();
    let letter = |b: &u8| if shape.capitals { b.is_ascii_uppercase() } else { b.is_ascii_alphabetic() };
    let fits = |b: &&u8| letter(b) || b.is_ascii_digit() || shape.marks.contains(b);
    let more = &bytes[start..start + bytes[start..].iter().take_while(fits).count()];
    // A whole word of a language has no digits.
    let drawn = more.iter().any(u8::is_ascii_digit);
    (more.len() >= shape.more && drawn).then(|| at..start + more.len())
}
