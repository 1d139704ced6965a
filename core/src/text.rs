//! Makes text from callers and other systems safe to store and show.
//!
//! Errors and ledger entries repeat such text, and they must always be writable. Text is therefore bounded in length,
//! and characters that a store rejects or a terminal interprets are replaced.

pub use chimera_expr::did_you_mean;

use crate::limits::{
    BLANKS_SHOWN_MAX, ERROR_DETAIL_BYTES_MAX, ERROR_DETAIL_DEPTH_MAX, ERROR_MESSAGE_CHARS_MAX, INDENT_SHOWN_MAX,
};
use serde_json::{Map, Value};
use std::borrow::Cow;

/// Bounds and sanitizes the text of an error message.
#[must_use]
pub fn sanitize_message(text: String) -> String {
    truncate(text, ERROR_MESSAGE_CHARS_MAX)
}

/// Bounds and sanitizes one detail of an error.
#[must_use]
pub fn sanitize_detail(value: Value) -> Value {
    truncate_value(value, ERROR_DETAIL_BYTES_MAX, ERROR_MESSAGE_CHARS_MAX)
}

/// Reduces a document to about `bytes_max` bytes, with strings of at most `chars_max` characters. The rest is dropped.
#[must_use]
pub fn truncate_value(value: Value, bytes_max: usize, chars_max: usize) -> Value {
    SizeBudget { bytes_left: bytes_max, chars_max }.fit(value, ERROR_DETAIL_DEPTH_MAX)
}

/// Makes invisible, bidirectional and look-alike space characters visible, for people who decide about the text: such
/// characters are written as JSON escapes. Distinct texts stay distinct: a backslash that could be read as the start of
/// an escape is doubled. Line breaks, tabs and emoji variation selectors stay. A long run of spaces or tabs is counted
/// (`\u0020(×400)`): where a long line wraps, the words after it would look like a line of their own.
#[must_use]
pub fn escape_invisible(text: &str) -> Cow<'_, str> {
    escape_characters(text, &['u'], b" \t")
}

/// Like [`escape_invisible`], on one line: line breaks and tabs are escaped too, so that quoted text cannot start a line of its
/// own.
#[must_use]
pub fn escape_invisible_line(text: &str) -> String {
    escape_characters(text, &['u', 'n', 't'], b" ").replace('\n', "\\n").replace('\t', "\\t")
}

/// Like [`escape_invisible`], for text that is already partly escaped and laid out: backslashes are not doubled, and
/// spaces stay.
#[must_use]
pub fn escape_invisible_only(text: &str) -> Cow<'_, str> {
    escape_characters(text, &[], b"")
}

/// Escapes invisible characters and long runs of `blanks`. Backslashes before one of `letters`, or before an escaped
/// character, are doubled, so that an odd number of them before such a letter always starts an escape.
fn escape_characters<'a>(text: &'a str, letters: &[char], blanks: &[u8]) -> Cow<'a, str> {
    let doubles = !letters.is_empty();
    let is_wide = |run: &[u8]| run.len() > BLANKS_SHOWN_MAX;
    let has_wide_run = text.as_bytes().split(|byte| !blanks.contains(byte)).any(is_wide);
    let is_escaped = doubles && text.contains('\\');
    if text.is_ascii() && !text.contains(is_invisible) && !is_escaped && !has_wide_run {
        return Cow::Borrowed(text);
    }
    let is_spelled = |c: char| is_invisible(c) || (letters.contains(&'n') && matches!(c, '\n' | '\t'));
    let mut shown = String::with_capacity(text.len());
    let (mut before, mut backslashes, mut rest) = ('\0', 0, text);
    while let Some(c) = rest.chars().next() {
        let run = &rest.as_bytes()[..rest.bytes().take_while(|byte| blanks.contains(byte)).count()];
        if is_wide(run) {
            shown.extend(std::iter::repeat_n('\\', if doubles { backslashes } else { 0 }));
            shown.extend(run.chunk_by(u8::eq).map(|alike| format!("\\u{:04x}(×{})", alike[0], alike.len())));
            (before, backslashes, rest) = (' ', 0, &rest[run.len()..]);
            continue;
        }
        let chooses_look = matches!(c, '\u{fe0e}' | '\u{fe0f}') && before >= '\u{203c}' && !is_invisible(before);
        let spelled = is_spelled(c) && !chooses_look;
        if doubles && (spelled || letters.contains(&c)) {
            shown.extend(std::iter::repeat_n('\\', backslashes));
        }
        backslashes = if c == '\\' { backslashes + 1 } else { 0 };
        if is_invisible(c) && !chooses_look {
            let mut units = [0; 2];
            shown.extend(c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            shown.push(c);
        }
        before = c;
        rest = &rest[c.len_utf8()..];
    }
    Cow::Owned(shown)
}

/// Whether a character is invisible, looks like a space, or only affects others: Unicode controls, spaces, format
/// characters (Cf), default-ignorable code points, and a few others with a blank glyph. The tests list each of these.
pub(crate) const fn is_invisible(c: char) -> bool {
    matches!(c,
        '\0'..='\u{8}' | '\u{b}'..='\u{1f}' | '\u{7f}'..='\u{a0}' | '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}'
        | '\u{6dd}' | '\u{70f}' | '\u{890}' | '\u{891}' | '\u{8e2}' | '\u{115f}' | '\u{1160}' | '\u{1680}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{2000}'..='\u{200f}' | '\u{2028}'..='\u{202f}' | '\u{205f}'..='\u{206f}' | '\u{2800}'
        | '\u{2d7f}' | '\u{3000}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{110bd}' | '\u{110cd}' | '\u{1107f}' | '\u{13430}'..='\u{13442}' | '\u{16fe4}' | '\u{1bc9d}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d159}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Renders a document as readable lines: one member per line, long strings as blocks, invisible characters escaped.
#[must_use]
pub fn render_lines(value: &Value) -> Vec<String> {
    match value {
        Value::Object(members) if !members.is_empty() => members
            .iter()
            .flat_map(|(name, value)| label_lines(&format!("{}:", quote_if_ambiguous(name)), value))
            .collect(),
        Value::Array(items) if !items.is_empty() => items.iter().flat_map(|item| label_lines("-", item)).collect(),
        Value::String(text) if text.contains('\n') => text.split('\n').map(block_line).collect(),
        Value::String(text) => vec![quote_if_ambiguous(text)],
        other => vec![other.to_string()],
    }
}

/// A line of a text with several. Its own indent stays, unless it is wide.
fn block_line(line: &str) -> String {
    let indent = line.bytes().take_while(|byte| *byte == b' ').count();
    let (indent, words) = line.split_at(if indent > INDENT_SHOWN_MAX { 0 } else { indent });
    format!("| {indent}{}", escape_invisible(words))
}

/// The text, quoted where it could be mistaken for something else.
fn quote_if_ambiguous(text: &str) -> String {
    let other = serde_json::from_str::<Value>(text).is_ok() || text.trim() != text || text.is_empty();
    let marks = text.starts_with(['-', '|', '"']) || text.contains(": ") || text.ends_with(':');
    let quoted = other || marks || text.contains(['\n', '\t']);
    // JSON quoting has already doubled the backslashes.
    if quoted {
        escape_characters(&Value::from(text).to_string(), &[], b" ").into_owned()
    } else {
        escape_invisible(text).into_owned()
    }
}

fn label_lines(label: &str, value: &Value) -> Vec<String> {
    let lines = render_lines(value);
    match lines.as_slice() {
        [one] if !one.starts_with("| ") && !matches!(value, Value::Object(_)) && !matches!(value, Value::Array(_)) => {
            vec![format!("{label} {one}")]
        }
        [one] if matches!(value, Value::Object(members) if members.is_empty()) => vec![format!("{label} {one}")],
        [one] if matches!(value, Value::Array(items) if items.is_empty()) => vec![format!("{label} {one}")],
        _ => std::iter::once(label.to_owned()).chain(lines.into_iter().map(|line| format!("  {line}"))).collect(),
    }
}

fn truncate(text: String, chars_max: usize) -> String {
    let steers = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    let fits = text.len() <= chars_max || text.chars().nth(chars_max).is_none();
    if fits && !text.contains(steers) {
        return text;
    }
    let harmless = |c: char| if steers(c) { char::REPLACEMENT_CHARACTER } else { c };
    let mark = if fits { None } else { Some('…') };
    text.chars().take(chars_max).map(harmless).chain(mark).collect()
}

struct SizeBudget {
    bytes_left: usize,
    chars_max: usize,
}

impl SizeBudget {
    fn fit(&mut self, value: Value, depth_left: usize) -> Value {
        match value {
            Value::String(text) => {
                let text = truncate(text, self.chars_max);
                self.spend(text.len() + 2);
                Value::String(text)
            }
            Value::Array(_) | Value::Object(_) if depth_left == 0 => Value::Null,
            Value::Array(items) => {
                self.spend(3);
                let mut kept = Vec::new();
                for item in items {
                    if self.bytes_left == 0 {
                        break;
                    }
                    kept.push(self.fit(item, depth_left - 1));
                }
                Value::Array(kept)
            }
            Value::Object(members) => {
                self.spend(3);
                let mut kept = Map::new();
                for (name, member) in members {
                    if self.bytes_left == 0 {
                        break;
                    }
                    let name = truncate(name, self.chars_max);
                    self.spend(name.len() + 3);
                    kept.insert(name, self.fit(member, depth_left - 1));
                }
                Value::Object(kept)
            }
            plain => {
                self.spend(8);
                plain
            }
        }
    }

    const fn spend(&mut self, bytes: usize) {
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reverses `escape_invisible`.
    fn spelled_back(shown: &str) -> String {
        let (mut text, mut rest) = (String::new(), shown);
        while let Some(at) = rest.find('\\') {
            text.push_str(&rest[..at]);
            let run = rest[at..].chars().take_while(|c| *c == '\\').count();
            let after = &rest[at + run..];
            if !after.starts_with('u') {
                text.push_str(&"\\".repeat(run));
                rest = after;
                continue;
            }
            text.push_str(&"\\".repeat(run / 2));
            rest = after;
            if run % 2 == 1 {
                let code = u32::from_str_radix(&after[1..5], 16).unwrap();
                let c = char::from_u32(code).unwrap();
                rest = &after[5..];
                let counted = matches!(c, ' ' | '\t').then(|| rest[1 + '×'.len_utf8()..].split_once(')').unwrap());
                let (count, after) = counted.unwrap_or(("1", rest));
                text.extend(std::iter::repeat_n(c, count.parse().unwrap()));
                rest = after;
            }
        }
        text + rest
    }

    #[test]
    fn what_hides_is_spelled_out() {
        for (text, shown) in [
            ("a\u{202e}moc.live", "a\\u202emoc.live"),
            ("pay\u{200b}pal", "pay\\u200bpal"),
            ("\u{2066}x\u{2069}", "\\u2066x\\u2069"),
            ("ok\u{e0041}", "ok\\udb40\\udc41"),
            ("a\u{feff}\u{ad}\u{3164}b", "a\\ufeff\\u00ad\\u3164b"),
            ("bell\u{7}", "bell\\u0007"),
            ("x\u{fe0f}\u{fe0f}", "x\\ufe0f\\ufe0f"),
            ("a\u{a0}b\u{2003}c\u{3000}d\u{202f}", "a\\u00a0b\\u2003c\\u3000d\\u202f"),
            ("a\\u200bb", "a\\\\u200bb"),
            ("C:\\temp\\users\\x", "C:\\temp\\\\users\\x"),
            ("\\\u{200b}", "\\\\\\u200b"),
            ("a   b", "a   b"),
            ("a    00 b", "a\\u0020(×4)00 b"),
            ("\\     b", "\\\\\\u0020(×5)b"),
            ("a \t\t  b\t\t\tc", "a\\u0020(×1)\\u0009(×2)\\u0020(×2)b\t\t\tc"),
            ("lines\nand\ttabs, ü, 漢字, ❤\u{fe0f}", "lines\nand\ttabs, ü, 漢字, ❤\u{fe0f}"),
        ] {
            assert_eq!(escape_invisible(text), shown);
        }
    }

    /// General category Cf of Unicode 17.
    const FORMATS: &[(u32, u32)] = &[
        (0xad, 0xad),
        (0x600, 0x605),
        (0x61c, 0x61c),
        (0x6dd, 0x6dd),
        (0x70f, 0x70f),
        (0x890, 0x891),
        (0x8e2, 0x8e2),
        (0x180e, 0x180e),
        (0x200b, 0x200f),
        (0x202a, 0x202e),
        (0x2060, 0x2064),
        (0x2066, 0x206f),
        (0xfeff, 0xfeff),
        (0xfff9, 0xfffb),
        (0x110bd, 0x110bd),
        (0x110cd, 0x110cd),
        (0x13430, 0x1343f),
        (0x1bca0, 0x1bca3),
        (0x1d173, 0x1d17a),
        (0xe0001, 0xe0001),
        (0xe0020, 0xe007f),
    ];

    /// Default_Ignorable_Code_Point of Unicode 17, with the reserved ranges.
    const IGNORABLE: &[(u32, u32)] = &[
        (0xad, 0xad),
        (0x34f, 0x34f),
        (0x61c, 0x61c),
        (0x115f, 0x1160),
        (0x17b4, 0x17b5),
        (0x180b, 0x180f),
        (0x200b, 0x200f),
        (0x202a, 0x202e),
        (0x2060, 0x206f),
        (0x3164, 0x3164),
        (0xfe00, 0xfe0f),
        (0xfeff, 0xfeff),
        (0xffa0, 0xffa0),
        (0xfff0, 0xfff8),
        (0x1bca0, 0x1bca3),
        (0x1d173, 0x1d17a),
        (0xe0000, 0xe0fff),
    ];

    /// In neither category, but with a blank glyph: the empty braille cell, joiners, hieroglyph blanks and the mirror
    /// sign, the Khitan filler, a shorthand selector, the note without a head.
    const BLANK: &[(u32, u32)] = &[
        (0x2800, 0x2800),
        (0x2d7f, 0x2d7f),
        (0x1107f, 0x1107f),
        (0x13440, 0x13442),
        (0x16fe4, 0x16fe4),
        (0x1bc9d, 0x1bc9d),
        (0x1d159, 0x1d159),
    ];

    #[test]
    fn every_character_without_a_shape_of_its_own_is_spelled_out_and_no_other() {
        let within =
            |table: &[(u32, u32)], c: char| table.iter().any(|(from, to)| (*from..=*to).contains(&u32::from(c)));
        for c in '\0'..=char::MAX {
            let plain = matches!(c, ' ' | '\n' | '\t');
            let listed = [FORMATS, IGNORABLE, BLANK].iter().any(|table| within(table, c));
            let hides = !plain && (c.is_control() || c.is_whitespace() || listed);
            assert_eq!(is_invisible(c), hides, "U+{:04X}", u32::from(c));
            let text = format!("a{c}b");
            assert_eq!(escape_invisible(&text).contains(c), !hides, "U+{:04X}", u32::from(c));
        }
    }

    #[test]
    fn a_document_tells_a_spelling_from_what_it_spells() {
        let shown = |text: &str| render_lines(&serde_json::json!({ "memo": text })).join("\n");
        for (spelled, real) in [("a\\u200bb", "a\u{200b}b"), (" \\u200b", " \u{200b}"), ("x\\u00a0", "x\u{a0}")] {
            assert_ne!(shown(spelled), shown(real));
        }
        assert_ne!(escape_invisible_line("a\\nb"), escape_invisible_line("a\nb"));
    }

    #[test]
    fn spaces_can_not_push_words_to_the_start_of_a_line() {
        let gap = " ".repeat(400);
        let shown = |text: String| render_lines(&serde_json::json!({ "title": text })).join("\n");
        assert_eq!(shown(format!("Refund{gap}amount 5")), "title: Refund\\u0020(×400)amount 5");
        assert_eq!(shown(format!("Refund{gap}amount: 5")), "title: \"Refund\\u0020(×400)amount: 5\"");
        assert_eq!(
            shown(format!("def f():\n    pass\n{gap}key: x\nend{gap}key: x")),
            "title:\n  | def f():\n  |     pass\n  | \\u0020(×400)key: x\n  | end\\u0020(×400)key: x"
        );
        assert_eq!(escape_invisible_line(&format!("would refund{gap}x")), "would refund\\u0020(×400)x");
    }

    proptest! {
        #[test]
        fn no_document_shows_a_wide_run_of_blanks(
            name in "[a: \t\n\\\\]{0,40}( {0,40})a?",
            text in "[a: \t\n|\\\\]{0,40}( {0,40})[a: \t\n]{0,9}",
        ) {
            let document = serde_json::json!({ "m": [{ (name.as_str()): text.as_str() }, text.as_str()] });
            for line in render_lines(&document) {
                // The layout indents by three levels; a text with several lines may have an indent of its own.
                let words = line.trim_start_matches(' ');
                prop_assert!(line.len() - words.len() <= 6, "{line:?}");
                let words = words.strip_prefix("| ").map_or(words, |own| {
                    let words = own.trim_start_matches(' ');
                    assert!(own.len() - words.len() <= INDENT_SHOWN_MAX, "{line:?}");
                    words
                });
                let runs = words.split(|c| !matches!(c, ' ' | '\t'));
                prop_assert!(runs.map(str::len).all(|run| run <= BLANKS_SHOWN_MAX), "{line:?}");
            }
            let runs = escape_invisible_line(&text);
            prop_assert!(!runs.contains(&" ".repeat(BLANKS_SHOWN_MAX + 1)));
            prop_assert_eq!(spelled_back(&escape_invisible(&text)), text);
        }

        #[test]
        fn no_two_texts_are_shown_alike(
            one in "[\\\\unt02b \u{200b}\u{a0}\u{202e}]{0,12}",
            other in "[\\\\unt02b \u{200b}\u{a0}\u{202e}]{0,12}",
        ) {
            prop_assert_eq!(one == other, escape_invisible(&one) == escape_invisible(&other));
            prop_assert_eq!(one == other, escape_invisible_line(&one) == escape_invisible_line(&other));
            prop_assert_eq!(spelled_back(&escape_invisible(&one)), one);
        }

        #[test]
        fn two_texts_that_differ_are_shown_differently(text in "[a-z]{1,8}", at in 0_usize..8, hidden in prop::sample::select(vec!['\u{200d}', '\u{202e}', '\u{e0100}', '\u{2064}', '\0'])) {
            let mut other = text.clone();
            other.insert(at.min(text.len()), hidden);
            prop_assert_ne!(escape_invisible(&text).into_owned(), escape_invisible(&other).into_owned());
            prop_assert!(!escape_invisible(&other).contains(hidden));
        }
    }
}
