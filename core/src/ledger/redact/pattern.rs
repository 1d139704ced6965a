//! Finds what looks like a credential, in one pass over the bytes.
//!
//! Every pattern hangs on one byte (`=`, `:`, `e`, `b`, `-`), so that a line without credentials
//! costs one look at each byte and no allocation. All patterns begin and end at ASCII bytes or at
//! the ends of the text, so that a span always lies on character boundaries.

use super::REDACTED;
use std::ops::Range;

/// Ends of field names, without `-`, `_`, `.` and case, whose values are secret.
const SECRET_NAMES: [&str; 18] = [
    "authorization",
    "cookie",
    "apikey",
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "token",
    "secret",
    "signature",
    "credential",
    "credentials",
    "privatekey",
    "secretkey",
    "accesskey",
    "hmackey",
    "signingkey",
    "encryptionkey",
];
/// Those that are also ordinary words before a colon: `unexpected token: found '}'`.
const WORDS: [&str; 5] = ["token", "secret", "signature", "credential", "credentials"];
/// Those whose value is the whole rest of a header line.
const HEADERS: [&str; 2] = ["authorization", "cookie"];
const NAME_BYTES_MAX: usize = 64;

/// A part of a text that must not be read.
pub(super) struct Span {
    /// Where it is.
    pub(super) range: Range<usize>,
    /// The quote to put around the mask, as the text spells it, where a bare value of a JSON
    /// document is masked; else the document could not be read any more.
    pub(super) quote: Range<usize>,
}

impl From<Range<usize>> for Span {
    fn from(range: Range<usize>) -> Self {
        Self { range, quote: 0..0 }
    }
}

/// Appends the spans of everything that looks like a credential.
pub(super) fn find(text: &str, spans: &mut Vec<Span>) {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let found = match byte {
            b':' if bytes[at..].starts_with(b"://") => user_info(bytes, at).map(Span::from),
            b'=' | b':' => field(text, at),
            b'e' => jwt(bytes, at).map(Span::from),
            b'B' | b'b' => after_scheme(bytes, at).map(Span::from),
            b'-' => private_key(text, at).map(Span::from),
            _ => None,
        };
        match found {
            Some(span) => {
                at = span.range.end.max(at + 1);
                spans.push(span);
            }
            None => at += 1,
        }
    }
}

/// Whether a field of this name holds a secret.
pub(super) fn names_a_secret(name: &str) -> bool {
    // The working directory of a shell.
    SECRET_NAMES.iter().any(|secret| ends_with(name, secret)) && !matches!(name, "PWD" | "OLDPWD")
}

/// Whether a secret's place holds only nothing, a reference, or what was masked before.
pub(super) fn is_harmless(value: &str) -> bool {
    matches!(value, "" | REDACTED | "null" | "true" | "false" | "None") || value.starts_with("secret://")
}

/// Compares from the end, without case and separators in `name`.
fn ends_with(name: &str, suffix: &str) -> bool {
    let mut letters = name.bytes().rev().filter(|b| !matches!(b, b'-' | b'_' | b'.')).map(|b| b.to_ascii_lowercase());
    suffix.bytes().rev().all(|wanted| letters.next() == Some(wanted))
}

/// `name=value`, `name: value`, `"name":"value"`, also inside a quoted JSON string.
fn field(text: &str, at: usize) -> Option<Span> {
    let bytes = text.as_bytes();
    let name = name_before(text, at)?;
    if !names_a_secret(name) || matches!(bytes.get(at + 1), Some(b'=')) || bytes[at + 1..].starts_with(b":") {
        return None;
    }
    let colon = bytes[at] == b':';
    let name_quote = quote_before(bytes, at);
    let mut from = at + 1;
    if !colon && bytes.get(from) == Some(&b'>') {
        from += 1;
    }
    let spaced = bytes.get(from) == Some(&b' ');
    from += bytes[from..].iter().take_while(|b| **b == b' ').count();
    if bytes[from..].starts_with(b"Some(") {
        from += b"Some(".len();
    }
    let quoting = bytes[from..].iter().take_while(|b| **b == b'\\').count();
    let span = match bytes.get(from + quoting)? {
        quote @ (b'"' | b'\'') => {
            let start = from + quoting + 1;
            start..closing_quote(bytes, start, *quote, quoting)
        }
        b'[' | b'{' => from..closing_bracket(bytes, from),
        _ if colon && name_quote.is_empty() && HEADERS.iter().any(|header| ends_with(name, header)) => {
            from..end_of(bytes, from, b"\r\n\"'\\")
        }
        _ => from..end_of_word(bytes, from),
    };
    let value = &text[span.clone()];
    let quoted = span.start > from + quoting || !name_quote.is_empty();
    let word = colon && spaced && !quoted && WORDS.iter().any(|word| ends_with(name, word));
    if is_harmless(value) || (word && !is_opaque(value.as_bytes())) {
        return None;
    }
    let quote = if span.start == from { name_quote } else { 0..0 };
    Some(Span { range: span, quote })
}

/// The quote, with the backslashes before it, that ends the name before `at`.
fn quote_before(bytes: &[u8], at: usize) -> Range<usize> {
    let end = at - bytes[..at].iter().rev().take_while(|b| **b == b' ').count();
    if end == 0 || !matches!(bytes[end - 1], b'"' | b'\'') {
        return end..end;
    }
    let escapes = bytes[..end - 1].iter().rev().take_while(|b| **b == b'\\').count();
    end - 1 - escapes..end
}

/// The field name that ends right before `at`, without its closing quote.
fn name_before(text: &str, at: usize) -> Option<&str> {
    let bytes = text.as_bytes();
    let end = quote_before(bytes, at).start;
    let len = bytes[..end]
        .iter()
        .rev()
        .take(NAME_BYTES_MAX)
        .take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        .count();
    (len > 0).then(|| &text[end - len..end])
}

/// Where the text quoted behind `depth` backslashes ends: at a quote that is not escaped deeper.
fn closing_quote(bytes: &[u8], start: usize, quote: u8, depth: usize) -> usize {
    let mut escapes = 0;
    for (offset, byte) in bytes[start..].iter().enumerate() {
        match byte {
            b'\\' => escapes += 1,
            b if *b == quote => {
                if (depth == 0 && escapes % 2 == 0) || (depth > 0 && escapes <= depth) {
                    return start + offset - if depth > 0 { escapes } else { 0 };
                }
                escapes = 0;
            }
            _ => escapes = 0,
        }
    }
    bytes.len()
}

/// Just past the bracket that closes the one at `start`; brackets within strings don't count.
fn closing_bracket(bytes: &[u8], start: usize) -> usize {
    let (mut depth, mut at) = (0_usize, start);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' if depth == 1 => return at + 1,
            b']' | b'}' => depth -= 1,
            b'"' if at > 0 && bytes[at - 1] != b'\\' => at = closing_quote(bytes, at + 1, b'"', 0),
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

fn end_of(bytes: &[u8], from: usize, ends: &[u8]) -> usize {
    from + bytes[from..].iter().take_while(|b| !ends.contains(b)).count()
}

/// The end of an unquoted value; an authentication scheme takes its parameter along.
fn end_of_word(bytes: &[u8], from: usize) -> usize {
    const ENDS: &[u8] = b" \t\r\n&;,\"'\\(){}[]<>";
    let end = end_of(bytes, from, ENDS);
    let schemes: [&[u8]; 4] = [b"bearer", b"basic", b"token", b"digest"];
    let is_scheme = schemes.iter().any(|scheme| bytes[from..end].eq_ignore_ascii_case(scheme));
    if is_scheme && bytes.get(end) == Some(&b' ') { end_of(bytes, end + 1, ENDS) } else { end }
}

/// Whether a word looks drawn at random rather than written: digits, or long with both cases.
fn is_opaque(word: &[u8]) -> bool {
    let digit = word.iter().any(u8::is_ascii_digit);
    let both_cases = word.iter().any(u8::is_ascii_lowercase) && word.iter().any(u8::is_ascii_uppercase);
    (word.len() >= 8 && digit) || (word.len() >= 16 && both_cases) || word.len() >= 32
}

fn begins_word(bytes: &[u8], at: usize) -> bool {
    at == 0 || !(bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_')
}

/// The parameter of `Bearer …` or `Basic …`.
fn after_scheme(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    let schemes: [&[u8]; 2] = [b"bearer ", b"basic "];
    let scheme = schemes.iter().find(|s| bytes.get(at..at + s.len()).is_some_and(|w| w.eq_ignore_ascii_case(s)))?;
    let start = at + scheme.len();
    let token = |b: &&u8| b.is_ascii_alphanumeric() || b"-._~+/=".contains(b);
    let len = bytes[start..].iter().take_while(token).count();
    (begins_word(bytes, at) && is_opaque(&bytes[start..start + len])).then_some(start..start + len)
}

/// Three dotted parts of base64url of which the first is the beginning of a JSON object.
fn jwt(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    const PART_BYTES_MIN: usize = 10;
    if !bytes[at..].starts_with(b"eyJ") || !begins_word(bytes, at) {
        return None;
    }
    let part = |from: usize| {
        let url_safe = |b: &&u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        from + bytes.get(from..).unwrap_or_default().iter().take_while(url_safe).count()
    };
    let header = part(at);
    let claims = part(header + 1);
    let dotted = bytes.get(header) == Some(&b'.') && bytes.get(claims) == Some(&b'.');
    let long = header - at >= PART_BYTES_MIN && claims.saturating_sub(header + 1) >= PART_BYTES_MIN;
    (dotted && long).then(|| at..part(claims + 1))
}

/// The user info of `scheme://user:password@host`.
fn user_info(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    let start = at + 3;
    let word = end_of(bytes, start, b" \t\r\n\"'<>`");
    let authority = end_of(bytes, start, b"/?# \t\r\n\"'<>`");
    let last_at = |end: usize| bytes[start..end].iter().rposition(|b| *b == b'@').map(|offset| start + offset);
    let end = last_at(authority).or_else(|| {
        // A slash within the password: what follows the colon is no port number.
        let colon = bytes[start..authority].iter().position(|b| *b == b':')?;
        let port = &bytes[start + colon + 1..authority];
        let broken = !port.iter().all(u8::is_ascii_digit) && bytes.get(start) != Some(&b'[');
        if broken { last_at(word) } else { None }
    })?;
    (end > start && &bytes[start..end] != REDACTED.as_bytes()).then_some(start..end)
}

/// A private key in PEM armour, to its end or, cut off, to the end of the text or string.
fn private_key(text: &str, at: usize) -> Option<Range<usize>> {
    const BEGIN: &str = "-----BEGIN ";
    let rest = text.get(at..)?.strip_prefix(BEGIN)?;
    let label = rest.split("-----").next()?;
    if !label.ends_with("PRIVATE KEY") || label.len() > NAME_BYTES_MAX {
        return None;
    }
    let end_mark = format!("-----END {label}-----");
    let whole = text[at..].find(&end_mark).map(|offset| at + offset + end_mark.len());
    let end = whole.unwrap_or_else(|| end_of(text.as_bytes(), at, b"\""));
    Some(at..end)
}
