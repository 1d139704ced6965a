//! Redaction takes linear time, whatever is repeated in the text.
//!
//! The tests count byte accesses, so they do not depend on the machine. The texts are built from the pattern tables,
//! so a new pattern is covered without a change here.

use super::scanned_text::looked_at_by;
use super::*;
use proptest::prelude::*;

/// Maximum accesses per byte of a text.
const LOOKS_MAX: usize = 96;
/// The same where known values are searched, including in decoded text.
const VALUE_LOOKS_MAX: usize = 512;
/// Bytes of the shorter text; the longer one has four times as many.
const SHORT_BYTES: usize = 1024;

/// Punctuation, one letter and digit, and everything that has a meaning in escapes.
const COMMON: [&str; 12] = ["a", "A", "1", "é", "%25", "%2525", "\\u", "\\ud83d", "\\n", "0x", "Some(", "(\""];

fn marks() -> impl Iterator<Item = String> {
    (0..128_u8).filter(|b| !b.is_ascii_alphanumeric()).map(|b| char::from(b).to_string())
}

/// Every prefix and fixed part of patterns and known tokens.
fn parts() -> Vec<String> {
    let names = name::SECRETS.iter().copied();
    let tables = pattern::parts().into_iter().chain(token::parts()).chain(names);
    let mut parts: Vec<String> = tables.chain(COMMON).map(String::from).chain(marks()).collect();
    parts.sort();
    parts.dedup();
    parts
}

/// Those that differ in more than their letters: pattern prefixes, a token of each alphabet, and punctuation.
fn begins() -> Vec<String> {
    let fields = ["token=", "token: ", "token:x( ", "cookie:", "Some(", "a", "1", "%25"];
    let marks = "\"\\ \n:@./-_([])".chars().map(String::from);
    let tables = pattern::begins().into_iter().chain(token::alphabets()).chain(fields);
    let mut begins: Vec<String> = tables.map(String::from).chain(marks).collect();
    begins.sort();
    begins.dedup();
    begins
}

/// Repeats the parts until the text has this many bytes.
fn repeated(parts: &[&str], bytes: usize) -> String {
    let unit = parts.concat();
    unit.repeat(bytes.div_ceil(unit.len()))
}

/// Repeats each part, one after the other.
fn in_a_row(parts: &[&str], bytes: usize) -> String {
    parts.iter().map(|part| repeated(&[part], bytes / parts.len())).collect()
}

/// What is wrong with the number of accesses for a text, if anything.
fn fault(redactor: &Redactor, parts: &[&str], made: impl Fn(usize) -> String, looks_max: usize) -> Option<String> {
    [SHORT_BYTES, 4 * SHORT_BYTES].into_iter().find_map(|bytes| {
        let text = made(bytes);
        let looked = looked_at_by(|| drop(redactor.text(&text).into_owned()));
        (looked > looks_max * text.len())
            .then(|| format!("{parts:?}: {looked} looks at {} bytes, {} each", text.len(), looked / text.len()))
    })
}

fn assert_linear(faults: &[String]) {
    assert!(faults.is_empty(), "{} texts, such as\n{}", faults.len(), faults[..faults.len().min(12)].join("\n"));
}

#[test]
fn no_part_of_a_pattern_is_costly_to_repeat() {
    let redactor = Redactor::default();
    let fault = |part: &String| fault(&redactor, &[part], |bytes| repeated(&[part], bytes), LOOKS_MAX);
    assert_linear(&parts().iter().filter_map(fault).collect::<Vec<_>>());
}

#[test]
fn no_two_parts_of_patterns_are_costly_to_repeat() {
    let (redactor, begins) = (Redactor::default(), begins());
    let mut faults = Vec::new();
    for one in &begins {
        for two in &begins {
            let parts = [one.as_str(), two];
            faults.extend(fault(&redactor, &parts, |bytes| repeated(&parts, bytes), LOOKS_MAX));
            faults.extend(fault(&redactor, &parts, |bytes| in_a_row(&parts, bytes), LOOKS_MAX));
        }
    }
    assert_linear(&faults);
}

/// Many fields that share one value behind their brackets.
#[test]
fn a_value_that_many_fields_share_is_looked_at_once() {
    let redactor = Redactor::default();
    let faults = ["\"", "'", "x", "[redacted]"].iter().filter_map(|quote| {
        let made = |bytes| {
            let escapes = "\\".repeat(bytes);
            format!("{}{escapes}{quote}{escapes}{quote}", repeated(&["token:x( "], bytes * 2))
        };
        fault(&redactor, &["token:x( ", "\\", quote], made, LOOKS_MAX)
    });
    assert_linear(&faults.collect::<Vec<_>>());
}

/// Values with a long common prefix with the text.
#[test]
fn no_part_is_costly_to_repeat_where_known_values_are_looked_for() {
    let values =
        ["\\\\\\\\\\\\a", "\n\n\n\n\n\n\nz", "%%%%%%%a", "aaaaaaaaaaaaab", "\u{1f4a9}\u{1f4a9}\\\n", "\"\"\"\"\"\"b"];
    let redactor = Redactor::new(&values.map(Secret::new));
    let begins: Vec<String> = begins();
    let escapes: Vec<&str> =
        COMMON.into_iter().chain(["\\", "%", "n", "u", "\"", "\n", "\u{1f4a9}", "=", "&#", "<"]).collect();
    let mut faults = Vec::new();
    for one in begins.iter().map(String::as_str).chain(escapes.iter().copied()) {
        faults.extend(fault(&redactor, &[one], |bytes| repeated(&[one], bytes), VALUE_LOOKS_MAX));
    }
    for one in &escapes {
        for two in &escapes {
            let parts = [*one, two];
            faults.extend(fault(&redactor, &parts, |bytes| repeated(&parts, bytes), VALUE_LOOKS_MAX));
            faults.extend(fault(&redactor, &parts, |bytes| in_a_row(&parts, bytes), VALUE_LOOKS_MAX));
        }
    }
    assert_linear(&faults);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    /// Such texts are not scanned.
    #[test]
    fn ids_and_digests_match_no_pattern(text in "[0-9a-f-]{0,200}") {
        let mut spans = Vec::new();
        pattern::scan(&text, &mut spans);
        prop_assert!(spans.is_empty(), "{text}");
    }

    #[test]
    fn no_three_parts_of_patterns_are_costly_to_repeat(
        parts in prop::collection::vec(prop::sample::select(parts()), 3),
        behind in prop::collection::vec(prop::sample::select(parts()), 1..=3),
    ) {
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let behind: Vec<&str> = behind.iter().map(String::as_str).collect();
        let redactor = Redactor::default();
        let rows = |bytes| in_a_row(&parts, bytes);
        let halves = |bytes| repeated(&parts, bytes / 2) + &repeated(&behind, bytes / 2);
        let fault = fault(&redactor, &parts, rows, LOOKS_MAX).or_else(|| fault(&redactor, &parts, halves, LOOKS_MAX));
        prop_assert!(fault.is_none(), "{} before {behind:?}", fault.unwrap_or_default());
    }
}
