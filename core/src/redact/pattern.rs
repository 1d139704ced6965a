//! Finds what looks like a credential, in one pass over the bytes.
//!
//! Every pattern is triggered by a fixed prefix ([`PATTERNS`], and the tokens of [`token`]), so that a line without
//! credentials costs one look per byte and no allocation. All patterns begin and end at ASCII bytes or at the ends of
//! the text, so a span always lies on character boundaries.

use super::scanned_text::ScannedText;
use super::{REDACTED, name, token};
use std::collections::BTreeMap;
use std::ops::Range;

/// Names of secrets that are also ordinary words before a colon: `unexpected token: found '}'`.
const WORDS: [&str; 6] = ["token", "secret", "secrets", "signature", "credential", "credentials"];
/// Header names whose value is the rest of the line.
const HEADERS: [&str; 2] = ["authorization", "cookie"];
/// Words that may follow `Bearer` in a sentence; shorter words always may.
const AFTER_BEARER: [&str; 6] = ["authentication", "authorization", "tokens", "scheme", "header", "credentials"];
/// Authentication schemes whose parameter is a secret.
const SCHEMES: [&str; 2] = ["bearer ", "basic "];
const KEY_BEGINS: &str = "-----BEGIN ";
const KEY_ENDS: &str = "-----END ";
const KEY_LABEL: &str = "PRIVATE KEY";
const DASHES: &str = "-----";
/// A reference to a secret, which stays readable.
const REFERENCE: &str = "secret://";
const LINK: &str = "approvals";
const AFTER_BEARER_BYTES_MIN: usize = 6;
const ACRONYM_BYTES_MAX: usize = 5;
const NAME_BYTES_MAX: usize = 64;
/// Minimum length that no ordinary word has.
const OPAQUE_BYTES_MIN: usize = 32;

/// A part of a text to mask.
pub(super) struct MaskSpan {
    pub(super) range: Range<usize>,
    /// The quote to put around the mask, as spelled in the text, where an unquoted JSON value is masked; otherwise the
    /// document would become invalid.
    pub(super) quote: Range<usize>,
}

impl From<Range<usize>> for MaskSpan {
    fn from(range: Range<usize>) -> Self {
        Self { range, quote: 0..0 }
    }
}

/// A pattern: its prefixes, ignoring case, and its matcher.
struct Pattern {
    begins: &'static [&'static str],
    find: fn(ScannedText<'_>, usize, &mut PatternScanState) -> Option<MaskSpan>,
}

/// If two match, the first one wins.
const PATTERNS: [Pattern; 6] = [
    Pattern { begins: &["://"], find: user_info },
    Pattern { begins: &["=", ":"], find: field },
    Pattern { begins: &["eyJ"], find: jwt },
    Pattern { begins: &SCHEMES, find: after_scheme },
    Pattern { begins: &[KEY_BEGINS], find: private_key },
    // Each letter of the path may be percent-encoded.
    Pattern { begins: &["a", "%"], find: link_token },
];

/// Scan state. Whatever a pattern reads beyond what it masks is remembered here, so that it is not read again from the
/// next position where the pattern begins. This keeps scanning linear.
#[derive(Default)]
struct PatternScanState {
    tokens: token::TokenScanState,
    /// No JWT begins before this place.
    no_jwt_before: usize,
    /// Nested constructors (`Some(String(`), and the bare name after them.
    brackets: Range<usize>,
    bare_name: Range<usize>,
    /// Backslashes after those names.
    backslashes: Range<usize>,
    /// The last quoted value.
    quoted: Range<usize>,
    /// A word that contains `://`, and its last `@`.
    word: Range<usize>,
    last_at: Option<usize>,
    /// Positions of private key footers, by label.
    key_ends: Option<BTreeMap<Vec<u8>, Vec<usize>>>,
}

/// The end of the run that contains `from`: the remembered one, or a new one.
fn run_end(run: &mut Range<usize>, from: usize, find: impl FnOnce() -> usize) -> usize {
    if run.contains(&from) {
        return run.end;
    }
    let end = find();
    if end > from {
        *run = from..end;
    }
    end
}

/// Whether a pattern begins with a byte.
static FIRST: [bool; 256] = {
    let (mut first, mut pattern) = ([false; 256], 0);
    while pattern < PATTERNS.len() {
        let mut at = 0;
        while at < PATTERNS[pattern].begins.len() {
            let byte = PATTERNS[pattern].begins[at].as_bytes()[0];
            first[byte.to_ascii_lowercase() as usize] = true;
            first[byte.to_ascii_uppercase() as usize] = true;
            at += 1;
        }
        pattern += 1;
    }
    first
};

/// Appends the spans of everything that looks like a credential.
pub(super) fn find(text: &str, spans: &mut Vec<MaskSpan>) {
    // Most texts of the ledger are ids and digests.
    if !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-')) {
        scan(text, spans);
    }
}

pub(super) fn scan(text: &str, spans: &mut Vec<MaskSpan>) {
    let (source, mut seen) = (ScannedText::of(text), PatternScanState::default());
    let mut at = 0;
    while let Some(byte) = source.byte(at) {
        let begins = |pattern: &&Pattern| pattern.begins.iter().any(|begin| source.has_letters(at, begin.as_bytes()));
        let pattern = if FIRST[usize::from(byte)] { PATTERNS.iter().find(begins) } else { None };
        let found = pattern.and_then(|pattern| (pattern.find)(source, at, &mut seen));
        match found.or_else(|| token::find_token(source, at, &mut seen.tokens).map(MaskSpan::from)) {
            Some(span) => {
                at = span.range.end.max(at + 1);
                spans.push(span);
            }
            None => at += 1,
        }
    }
}

/// Whether a value is empty, a reference, or already masked.
pub(super) fn is_harmless(value: &(impl AsRef<[u8]> + ?Sized)) -> bool {
    let value = value.as_ref();
    let is = |harmless: &&str| harmless.as_bytes() == value;
    ["", REDACTED, "null", "true", "false", "None"].iter().any(is) || value.starts_with(REFERENCE.as_bytes())
}

/// `name=value`, `name: value`, `"name":"value"`, also inside a quoted JSON string.
fn field(source: ScannedText<'_>, at: usize, seen: &mut PatternScanState) -> Option<MaskSpan> {
    let name = name_before(source, at)?;
    let sign = source.byte(at)?;
    if source.byte(at + 1) == Some(sign) || !name::is_secret(name) {
        return None;
    }
    let colon = sign == b':';
    let name_quote = quote_before(source, at);
    let arrow = usize::from(!colon && source.byte(at + 1) == Some(b'>'));
    let behind = at + 1 + arrow;
    let value_at = source.run(behind, is_blank);
    let from = unwrapped(source, value_at, seen);
    let quoting = run_end(&mut seen.backslashes, from, || source.run(from, is_backslash)) - from;
    let quoted_from = from + quoting + usize::from(source.byte(from + quoting).is_some_and(is_quote));
    // Harmless, wherever it ends.
    if source.has(quoted_from, REFERENCE.as_bytes()) {
        return None;
    }
    let span = match source.byte(from + quoting)? {
        quote @ (b'"' | b'\'' | b'`') => {
            let start = from + quoting + 1;
            let is_same = seen.quoted.start == start;
            let end = if is_same { seen.quoted.end } else { closing_quote(source, start, quote, quoting) };
            seen.quoted = start..end;
            start..end
        }
        b'[' | b'{' => from..closing_bracket(source, from),
        _ if colon && name_quote.is_empty() && HEADERS.iter().any(|header| name::ends_with(name, header)) => {
            from..end_of(source, from, b"\r\n\"'\\")
        }
        _ => from..end_of_word(source, from),
    };
    let value = source.bytes(span.clone());
    let quoted = span.start > from + quoting || !name_quote.is_empty();
    let word = colon && value_at > behind && !quoted && WORDS.iter().any(|word| name::ends_with(name, word));
    if is_harmless(value) || (word && !is_opaque(value)) {
        return None;
    }
    let quote = if span.start == from { name_quote } else { 0..0 };
    Some(MaskSpan { range: span, quote })
}

const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

const fn is_quote(byte: u8) -> bool {
    matches!(byte, b'"' | b'\'' | b'`')
}

const fn is_backslash(byte: u8) -> bool {
    byte == b'\\'
}

/// Skips `Some(`, `String(` and the like if their content is quoted or masked; otherwise a bracket is part of the
/// value.
fn unwrapped(source: ScannedText<'_>, from: usize, seen: &mut PatternScanState) -> usize {
    let is_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b':');
    let mut at = from;
    // A start inside one of the names leads to the same end.
    if seen.brackets.contains(&from) && source.byte(from).is_some_and(is_name) {
        at = seen.brackets.end;
    }
    loop {
        let name = run_end(&mut seen.bare_name, at, || source.run(at, is_name));
        if name == at || source.byte(name) != Some(b'(') {
            break;
        }
        at = source.run(name + 1, |b| b.is_ascii_whitespace());
    }
    if at > from {
        seen.brackets = from..at;
    }
    let held = run_end(&mut seen.backslashes, at, || source.run(at, is_backslash));
    let shows = source.byte(held).is_some_and(is_quote) || source.has(held, REDACTED.as_bytes());
    if shows { at } else { from }
}

/// The closing quote, with its backslashes, of the name before `at`.
fn quote_before(source: ScannedText<'_>, at: usize) -> Range<usize> {
    let end = source.run_before(at, is_blank);
    if end == 0 || !matches!(source.byte(end - 1), Some(b'"' | b'\'')) {
        return end..end;
    }
    source.run_before(end - 1, is_backslash)..end
}

/// The field name that ends before `at`, without its closing quote.
fn name_before(source: ScannedText<'_>, at: usize) -> Option<&str> {
    let end = quote_before(source, at).start;
    let is_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let start = source.run_before_within(end, NAME_BYTES_MAX, is_name);
    std::str::from_utf8(source.bytes(start..end)).ok().filter(|name| !name.is_empty())
}

/// The end of a string that is quoted with `depth` backslashes: the next quote that is not escaped deeper.
fn closing_quote(source: ScannedText<'_>, start: usize, quote: u8, depth: usize) -> usize {
    let (mut escapes, mut at) = (0, start);
    while let Some(byte) = source.byte(at) {
        match byte {
            b'\\' => escapes += 1,
            b if b == quote => {
                if (depth == 0 && escapes % 2 == 0) || (depth > 0 && escapes <= depth) {
                    return at - if depth > 0 { escapes } else { 0 };
                }
                escapes = 0;
            }
            _ => escapes = 0,
        }
        at += 1;
    }
    source.len()
}

/// The position after the bracket that closes the one at `start`. Brackets in strings are ignored.
fn closing_bracket(source: ScannedText<'_>, start: usize) -> usize {
    let (mut depth, mut at) = (0_usize, start);
    while let Some(byte) = source.byte(at) {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' if depth == 1 => return at + 1,
            b']' | b'}' => depth -= 1,
            b'"' if at > 0 && source.byte(at - 1) != Some(b'\\') => at = closing_quote(source, at + 1, b'"', 0),
            _ => {}
        }
        at += 1;
    }
    source.len()
}

fn end_of(source: ScannedText<'_>, from: usize, ends: &[u8]) -> usize {
    source.run(from, |b| !ends.contains(&b))
}

/// The end of an unquoted value. An authentication scheme includes its parameter, and a bracket that the value opened
/// includes its closing one.
fn end_of_word(source: ScannedText<'_>, from: usize) -> usize {
    const ENDS: &[u8] = b" \t\r\n&;,\"'`\\)}]>";
    let mut end = end_of(source, from, ENDS);
    let schemes: [&[u8]; 4] = [b"bearer", b"basic", b"token", b"digest"];
    let is_scheme = schemes.iter().any(|scheme| end - from == scheme.len() && source.has_letters(from, scheme));
    if is_scheme && source.byte(end) == Some(b' ') {
        end = end_of(source, end + 1, ENDS);
    }
    for (opened, closes) in [(b'[', b']'), (b'(', b')')] {
        let open = source.bytes(from..end).iter().filter(|b| **b == opened).count();
        end = (end..end + open).find(|at| source.byte(*at) != Some(closes)).unwrap_or(end + open);
    }
    end
}

/// Whether a word looks random: with digits, or long with mixed case.
fn is_opaque(word: &[u8]) -> bool {
    let digit = word.iter().any(u8::is_ascii_digit);
    let both_cases = word.iter().any(u8::is_ascii_lowercase) && word.iter().any(u8::is_ascii_uppercase);
    (word.len() >= 8 && digit) || (word.len() >= 16 && both_cases) || word.len() >= OPAQUE_BYTES_MIN
}

/// The token after `/approvals/`, which lets its holder decide. The path may be percent-encoded.
fn link_token(source: ScannedText<'_>, at: usize, _: &mut PatternScanState) -> Option<MaskSpan> {
    let mut end = at;
    for wanted in LINK.bytes() {
        let (byte, len) = unescaped(source, end)?;
        if !byte.eq_ignore_ascii_case(&wanted) {
            return None;
        }
        end += len;
    }
    let name = end;
    while let Some((b'/' | b'\\', len)) = unescaped(source, end) {
        end += len;
    }
    if end == name {
        return None;
    }
    let value = end..end_of(source, end, b" \t\r\n?#&\"'`<>,;)}]\\");
    // The route template has a placeholder here.
    is_opaque(source.bytes(value.clone())).then(|| value.into())
}

/// The decoded byte at a position of a URL, and its encoded length.
fn unescaped(source: ScannedText<'_>, at: usize) -> Option<(u8, usize)> {
    let byte = source.byte(at)?;
    if byte != b'%' {
        return Some((byte, 1));
    }
    // A `%` may itself be escaped: `%252F`.
    let mut digits = at + 1;
    while source.has(digits, b"25") {
        digits += 2;
    }
    let meant = hex::decode([source.byte(digits)?, source.byte(digits + 1)?]).ok()?;
    Some((meant[0], digits + 2 - at))
}

/// The parameter of `Bearer …` or `Basic …`.
fn after_scheme(source: ScannedText<'_>, at: usize, _: &mut PatternScanState) -> Option<MaskSpan> {
    let scheme = SCHEMES.iter().find(|scheme| source.has_letters(at, scheme.as_bytes()))?;
    let start = at + scheme.len();
    let end = source.run(start, |b| b.is_ascii_alphanumeric() || b"-._~+/=".contains(&b));
    let value = source.bytes(start..end);
    let unpadded = value.iter().rposition(|b| *b != b'=').map_or(0, |last| last + 1);
    // `realm="x"` and `realm=x` are parameters of a challenge.
    let challenge = value[..unpadded].contains(&b'=') || (unpadded < value.len() && source.byte(end) == Some(b'"'));
    let capital = source.has(at, b"Bearer ");
    (unpadded > 0 && source.begins_word(at) && !challenge && !is_prose(value, capital)).then(|| (start..end).into())
}

/// Whether the text after a scheme is prose: words, hyphenated or not, and acronyms.
fn is_prose(value: &[u8], after_bearer: bool) -> bool {
    let lower = |word: &[u8]| word.iter().all(u8::is_ascii_lowercase);
    let plain = value.split(|b| b"-./".contains(b)).all(|word| match word {
        [] => true,
        [first, rest @ ..] => {
            let acronym = word.len() <= ACRONYM_BYTES_MAX && word.iter().all(u8::is_ascii_uppercase);
            acronym || (first.is_ascii_alphabetic() && lower(rest))
        }
    });
    let expected = || {
        let word = value.strip_suffix(b".").unwrap_or(value);
        word.len() < AFTER_BEARER_BYTES_MIN || AFTER_BEARER.iter().any(|w| word.eq_ignore_ascii_case(w.as_bytes()))
    };
    plain && value.len() < OPAQUE_BYTES_MIN && (!after_bearer || expected())
}

/// Three base64url parts separated by dots, of which the first begins like a JSON object.
fn jwt(source: ScannedText<'_>, at: usize, seen: &mut PatternScanState) -> Option<MaskSpan> {
    const PART_BYTES_MIN: usize = 10;
    if at < seen.no_jwt_before || !source.has(at, b"eyJ") || !source.begins_word(at) {
        return None;
    }
    let part = |from: usize| source.run(from, |b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    let header = part(at);
    let claims = part(header + 1);
    let dotted = source.byte(header) == Some(b'.') && source.byte(claims) == Some(b'.');
    let long = header - at >= PART_BYTES_MIN && claims.saturating_sub(header + 1) >= PART_BYTES_MIN;
    // Another start within the same header would have the same parts and a shorter header.
    seen.no_jwt_before = header;
    (dotted && long).then(|| (at..part(claims + 1)).into())
}

/// The user info of `scheme://user:password@host`.
fn user_info(source: ScannedText<'_>, at: usize, seen: &mut PatternScanState) -> Option<MaskSpan> {
    let start = at + 3;
    let authority = end_of(source, start, b"/?# \t\r\n\"'<>`");
    let last_at = |end: usize| source.bytes(start..end).iter().rposition(|b| *b == b'@').map(|offset| start + offset);
    let end = last_at(authority).or_else(|| {
        // A slash in the password: the part after the colon is not a port number.
        let host = source.bytes(start..authority);
        let port = &host[host.iter().position(|b| *b == b':')? + 1..];
        let broken = !port.iter().all(u8::is_ascii_digit) && host.first() != Some(&b'[');
        if !broken {
            return None;
        }
        if !seen.word.contains(&start) {
            seen.word = start..end_of(source, start, b" \t\r\n\"'<>`");
            seen.last_at = last_at(seen.word.end);
        }
        seen.last_at.filter(|last| *last >= start)
    })?;
    let is_masked = end - start == REDACTED.len() && source.has(start, REDACTED.as_bytes());
    (end > start && !is_masked).then(|| (start..end).into())
}

/// The secrets of a URL as spelled there: its password, and the values of parameters that are named like secrets. A
/// password may contain any delimiter, so its longest reading counts too.
pub(super) fn secrets_of_url(url: &str) -> impl Iterator<Item = &str> {
    let info = url.find("://").and_then(|at| user_info(ScannedText::of(url), at, &mut PatternScanState::default()));
    let password = info.and_then(|info| url[info.range].split_once(':')).map(|(_, password)| password);
    let longest = url.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@')?.0.split_once(':'));
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let passwords = password.into_iter().chain(longest.map(|(_, password)| password));
    passwords.chain(pairs.filter(|(name, _)| name::is_secret(name)).map(|(_, value)| value))
}

/// A PEM private key, up to its footer or, if truncated, to the end of the text or string.
fn private_key(source: ScannedText<'_>, at: usize, seen: &mut PatternScanState) -> Option<MaskSpan> {
    if !source.has(at, KEY_BEGINS.as_bytes()) {
        return None;
    }
    let start = at + KEY_BEGINS.len();
    let label = key_label(source, start)?;
    let ends = seen.key_ends.get_or_insert_with(|| key_ends(source));
    let ends = ends.get(label).map_or(&[][..], Vec::as_slice);
    let whole = ends.get(ends.partition_point(|end| *end < start)).copied();
    let end = whole.unwrap_or_else(|| end_of(source, at, b"\""));
    Some((at..end).into())
}

/// The label of a private key header, from `start` to the dashes or the end of the text.
fn key_label(source: ScannedText<'_>, start: usize) -> Option<&[u8]> {
    let end = (start + NAME_BYTES_MAX + DASHES.len()).min(source.len());
    let rest = source.bytes(start..end);
    let dashes = rest.windows(DASHES.len()).position(|there| there == DASHES.as_bytes());
    let label = &rest[..dashes.unwrap_or(rest.len())];
    (label.ends_with(KEY_LABEL.as_bytes()) && label.len() <= NAME_BYTES_MAX).then_some(label)
}

/// Positions after each private key footer, by label.
fn key_ends(source: ScannedText<'_>) -> BTreeMap<Vec<u8>, Vec<usize>> {
    let (mut ends, mut from): (BTreeMap<Vec<u8>, Vec<usize>>, _) = (BTreeMap::new(), 0);
    while let Some(mark) = source.find(from, KEY_ENDS.as_bytes()) {
        from = mark + KEY_ENDS.len();
        if let Some(label) = key_label(source, from)
            && source.has(from + label.len(), DASHES.as_bytes())
        {
            ends.entry(label.to_vec()).or_default().push(from + label.len() + DASHES.len());
        }
    }
    ends
}

/// Prefixes and fixed parts of patterns, for tests that repeat them.
#[cfg(test)]
pub(super) fn begins() -> Vec<&'static str> {
    let key = "-----BEGIN PRIVATE KEY-----";
    let begins = PATTERNS.iter().flat_map(|pattern| pattern.begins).copied();
    begins.chain([key, KEY_ENDS, KEY_LABEL, DASHES, LINK, REFERENCE, REDACTED]).collect()
}

/// Like `begins`, with their words.
#[cfg(test)]
pub(super) fn parts() -> Vec<&'static str> {
    begins().into_iter().chain(WORDS).chain(HEADERS).chain(AFTER_BEARER).collect()
}
